//! The host driver in processes mode: one process a rank, each a worker of this program.

use std::ffi::OsString;
use std::io::{BufRead, BufReader, Write};
use std::process::{ChildStdin, ChildStdout, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

use aether::Device;

use super::Op;
use super::case::Case;
use super::driver::{Driver, Outcome, Plan};
use super::measure::{Times, outcome};
use super::movers;
use super::worker::{Answer, Order, Trouble};
use crate::cli::BenchArgs;
use crate::failure::{Failure, Result};
use crate::launch::{Program, Ranks, Stream, forward, how};

/// How long the first worker that says that another failed may wait for that other to say why.
const EXPLANATION: Duration = Duration::from_secs(3);

/// How long workers may take to leave their group at the end.
const FAREWELL: Duration = Duration::from_secs(2);

/// The workers.
pub(super) struct Processes {
    ranks: Ranks,
    orders: Vec<ChildStdin>,
    events: Receiver<Event>,
    /// Those on which one caller moves bytes; no worker takes part in that.
    devices: Vec<Device>,
    /// Whether a worker failed: others may wait for it, and need not be waited for.
    failed: bool,
}

/// What comes from workers.
enum Event {
    Answer(usize, String),
    /// No answer comes any more.
    Silent(usize),
    /// The process of a rank is no more.
    Ended(usize),
}

/// What is known of one worker during a case.
#[derive(Default)]
struct Worker {
    times: Option<Times>,
    silent: bool,
    /// How it ended, once it has.
    end: Option<String>,
}

impl Processes {
    pub(super) fn start(args: &BenchArgs) -> Result<Self> {
        let too_many = |_| Failure::new(format!("bench: {} ranks are too many", args.ranks));
        let devices = Device::cpus(u32::try_from(args.ranks).map_err(too_many)?);
        let path = std::env::current_exe()
            .map_err(|it| Failure::new(format!("bench: find this program: {it}")))?;
        let given = std::env::args_os().skip(1);
        let arguments = given.chain([OsString::from("--worker")]).collect();
        let program = Program { path: path.into(), arguments };
        let (sender, events) = channel();
        let mut ranks = Ranks::start(&program, args.ranks, sender.clone(), Event::Ended, connect)?;
        let mut orders = Vec::with_capacity(args.ranks);
        for rank in 0..args.ranks {
            let (stdout, stderr) = ranks.outputs(rank);
            if let Some(stdout) = stdout {
                listen(rank, stdout, sender.clone())?;
            }
            if let Some(stderr) = stderr {
                forward(stderr, rank, Stream::Err, |_| {})?;
            }
            orders.extend(ranks.input(rank));
        }
        Ok(Self { ranks, orders, events, devices, failed: false })
    }

    /// The answers of all workers, or why there aren't.
    fn answers(&mut self, case: &Case) -> Result<(Vec<Times>, Option<u64>)> {
        let failure =
            |rank: usize, why: &str| Failure::new(format!("bench {}: rank {rank}: {why}", case.op));
        let mut workers: Vec<Worker> = Vec::new();
        workers.resize_with(self.ranks.count(), Worker::default);
        let (mut found, mut wait) = (None, None::<(Failure, Instant)>);
        while workers.iter().any(|it| it.times.is_none()) {
            let event = match &wait {
                None => self.events.recv().map_err(|_| RecvTimeoutError::Disconnected),
                Some((_, until)) => {
                    self.events.recv_timeout(until.saturating_duration_since(Instant::now()))
                }
            };
            let Ok(event) = event else {
                let unknown = || Failure::new(format!("bench {}: no worker answers", case.op));
                return Err(wait.map_or_else(unknown, |(failure, _)| failure));
            };
            let rank = match event {
                Event::Answer(rank, _) | Event::Silent(rank) | Event::Ended(rank) => rank,
            };
            match event {
                Event::Answer(_, text) => match serde_json::from_str(&text) {
                    Ok(Answer::Done { times, wrong }) => {
                        workers[rank].times = Some(times);
                        found = wrong.map(|it| it + found.unwrap_or(0));
                    }
                    Ok(Answer::Failed(Trouble { message, of_another: true })) => {
                        let until = Instant::now() + EXPLANATION;
                        wait.get_or_insert_with(|| (failure(rank, &message), until));
                    }
                    Ok(Answer::Failed(trouble)) => return Err(failure(rank, &trouble.message)),
                    Err(error) => {
                        return Err(failure(rank, &format!("it answered nonsense: {error}")));
                    }
                },
                Event::Silent(_) => workers[rank].silent = true,
                Event::Ended(_) => workers[rank].end = Some(how(self.ranks.reap(rank)?.status)),
            }
            // Its last words come first, and one that has said why it failed just goes.
            if let Worker { silent: true, end: Some(end), .. } = &workers[rank]
                && (wait.is_none() || !end.ends_with("code 0"))
            {
                return Err(Failure::new(format!("bench {}: rank {rank} {end}", case.op)));
            }
        }
        let times = workers.into_iter().filter_map(|it| it.times).collect();
        Ok((times, found))
    }
}

impl Driver for Processes {
    fn run(&mut self, case: &Case, plan: Plan) -> Result<Outcome> {
        if matches!(case.op, Op::Replicate | Op::Scatter) {
            return Ok(movers::run(&self.devices, case, plan)?);
        }
        let order = serde_json::to_string(&Order::new(case))
            .map_err(|it| Failure::new(format!("bench: write an order: {it}")))?;
        for worker in &mut self.orders {
            // One that doesn't read any more has ended, and that is told by its end.
            drop(writeln!(worker, "{order}"));
        }
        let answers = self.answers(case);
        self.failed = answers.is_err();
        let (times, wrong) = answers?;
        Ok(outcome(plan, &times, wrong))
    }
}

impl Drop for Processes {
    /// Without orders workers leave their group and end; who doesn't is killed with the ranks.
    fn drop(&mut self) {
        self.orders.clear();
        let until = Instant::now() + FAREWELL;
        while !self.failed && self.ranks.left() > 0 {
            match self.events.recv_timeout(until.saturating_duration_since(Instant::now())) {
                Ok(Event::Ended(rank)) => drop(self.ranks.reap(rank)),
                Ok(_) => {}
                Err(_) => return,
            }
        }
    }
}

fn connect(command: &mut Command) {
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
}

/// Hands on the answers of a worker, on a thread of its own.
fn listen(rank: usize, from: ChildStdout, events: Sender<Event>) -> Result<()> {
    let listen = move || {
        for answer in BufReader::new(from).lines().map_while(std::io::Result::ok) {
            if events.send(Event::Answer(rank, answer)).is_err() {
                return;
            }
        }
        // Nobody may listen any more.
        let _ = events.send(Event::Silent(rank));
    };
    let started = std::thread::Builder::new().name(format!("answers of {rank}")).spawn(listen);
    started.map(drop).map_err(|it| Failure::new(format!("bench: start a thread: {it}")))
}

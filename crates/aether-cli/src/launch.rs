//! `aether launch`: a program as several ranks on this machine, whose first failure is the failure of
//! all.

mod interrupt;
mod keeper;
mod output;
mod ranks;

use std::process::{ExitCode, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

use crate::cli::LaunchArgs;
use crate::failure::{Failure, Result};
use crate::stderr;

pub(crate) use keeper::{WORD as KEEPER, run as keep};
pub(crate) use output::{Stream, Told, forward};
pub(crate) use ranks::{Program, Ranks, Signal, how};

/// How long what ranks have printed may take to come out after the last of them has ended. Somebody
/// that a rank started may hold its output open for ever.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// What happens while ranks run.
enum Event {
    /// The process of a rank is no more.
    Ended(usize),
    /// Somebody wants the launcher to end.
    Interrupted(Signal),
    /// Something is told of one of the streams of some rank.
    Told(Told),
}

/// Starts the ranks, waits for all of them, and gives the exit code of the first that failed.
pub(crate) fn run(args: &LaunchArgs) -> Result<ExitCode> {
    let (sender, events) = channel();
    interrupt::watch(sender.clone(), Event::Interrupted)?;
    let mut command = args.command.iter();
    let path = command.next().cloned().unwrap_or_default();
    let program = Program { path, arguments: command.cloned().collect() };
    let mut ranks = Ranks::start(&program, args.ranks, sender.clone(), Event::Ended, |command| {
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    })?;
    let streams = print_all(&mut ranks, &sender)?;
    let mut run =
        Run { ranks, grace: Duration::from_secs(args.grace.into()), silent: 0, ending: None };
    let done = run.until_all_have_ended(&events);
    last_words(&events, streams.saturating_sub(run.silent));
    done
}

/// Has what ranks print come out, and says how many streams there are.
fn print_all(ranks: &mut Ranks, sender: &Sender<Event>) -> Result<usize> {
    let mut streams = 0;
    for rank in 0..ranks.count() {
        let (stdout, stderr) = ranks.outputs(rank);
        let tell = || {
            let sender = sender.clone();
            // Nobody listens any more once the launcher has made up its mind.
            move |told| {
                let _ = sender.send(Event::Told(told));
            }
        };
        if let Some(stdout) = stdout {
            forward(stdout, rank, Stream::Out, tell())?;
            streams += 1;
        }
        if let Some(stderr) = stderr {
            forward(stderr, rank, Stream::Err, tell())?;
            streams += 1;
        }
    }
    Ok(streams)
}

/// Lets the last lines come out.
fn last_words(events: &Receiver<Event>, streams: usize) {
    let until = Instant::now() + LAST_WORDS;
    let mut silent = 0;
    while silent < streams {
        match events.recv_timeout(until.saturating_duration_since(Instant::now())) {
            Ok(Event::Told(Told::End)) => silent += 1,
            Ok(_) => {}
            Err(_) => return,
        }
    }
}

/// Ranks that run.
struct Run {
    ranks: Ranks,
    grace: Duration,
    /// How many of the ranks' streams have ended.
    silent: usize,
    /// Once they are being ended.
    ending: Option<Ending>,
}

/// Why the ranks are ended, and since when.
struct Ending {
    why: Why,
    since: Instant,
    /// Until when they may end by themselves; none once they were killed.
    until: Option<Instant>,
}

enum Why {
    /// A rank failed, so.
    Failed(ExitStatus),
    Interrupted(Signal),
    Unprintable(std::io::Error),
}

impl Run {
    fn until_all_have_ended(&mut self, events: &Receiver<Event>) -> Result<ExitCode> {
        while self.ranks.left() > 0 {
            let until = self.ending.as_ref().and_then(|it| it.until);
            let event = match until {
                None => events.recv().map_err(|_| RecvTimeoutError::Disconnected),
                Some(until) => events.recv_timeout(until.saturating_duration_since(Instant::now())),
            };
            match event {
                Ok(Event::Ended(rank)) => self.ended(rank)?,
                Ok(Event::Interrupted(signal)) => self.interrupted(signal),
                Ok(Event::Told(Told::Unprintable(error))) => self.end(Why::Unprintable(error)),
                Ok(Event::Told(Told::End)) => self.silent += 1,
                Err(RecvTimeoutError::Timeout) => self.kill(),
                // Every waiting thread has a sender, so this is no news that can come.
                Err(RecvTimeoutError::Disconnected) => {
                    return Err(Failure::new("launch: nobody waits for the ranks any more"));
                }
            }
        }
        let Some(ending) = self.ending.take() else { return Ok(ExitCode::SUCCESS) };
        match ending.why {
            Why::Failed(status) => {
                let after = ending.since.elapsed();
                stderr::line(format_args!(
                    "aether: launch: all ranks had ended {:.3} s later",
                    after.as_secs_f64()
                ));
                Ok(code_of(status))
            }
            Why::Interrupted(signal) => Ok(killed_by(signal.as_raw())),
            Why::Unprintable(error) => Err(error.into()),
        }
    }

    fn ended(&mut self, rank: usize) -> Result<()> {
        let end = self.ranks.reap(rank)?;
        if end.status.success() || self.ending.is_some() {
            return Ok(());
        }
        let others = match self.ranks.left() {
            0 => String::new(),
            1 => "; the other rank is ended".to_owned(),
            left => format!("; the other {left} ranks are ended"),
        };
        stderr::line(format_args!(
            "aether: launch: rank {rank} {} after {:.3} s{others}",
            how(end.status),
            end.after.as_secs_f64()
        ));
        self.end(Why::Failed(end.status));
        Ok(())
    }

    fn interrupted(&mut self, signal: Signal) {
        if self.ending.is_some() {
            // Who asks twice doesn't want to wait.
            return self.kill();
        }
        self.ranks.signal(signal);
        self.end(Why::Interrupted(signal));
    }

    /// Asks all ranks to end, and gives them the grace time for it.
    fn end(&mut self, why: Why) {
        if self.ending.is_some() {
            return;
        }
        if !matches!(why, Why::Interrupted(_)) {
            self.ranks.signal(Signal::TERM);
        }
        // One that is stopped hears of it when it goes on.
        self.ranks.signal(Signal::CONT);
        let since = Instant::now();
        self.ending = Some(Ending { why, since, until: Some(since + self.grace) });
    }

    fn kill(&mut self) {
        let left: Vec<String> = self.ranks.running().map(|it| it.to_string()).collect();
        if let Some(ending) = &mut self.ending
            && ending.until.take().is_some()
            && !left.is_empty()
        {
            stderr::line(format_args!(
                "aether: launch: rank {} did not end within {:.1} s, and is killed",
                left.join(", "),
                ending.since.elapsed().as_secs_f64()
            ));
        }
        self.ranks.signal(Signal::KILL);
    }
}

/// The exit code that stands for what came of a process, as shells have it.
fn code_of(status: ExitStatus) -> ExitCode {
    use std::os::unix::process::ExitStatusExt;
    match (status.code(), status.signal()) {
        (Some(code), _) => ExitCode::from(u8::try_from(code).unwrap_or(1)),
        (None, Some(signal)) => killed_by(signal),
        (None, None) => ExitCode::FAILURE,
    }
}

fn killed_by(signal: i32) -> ExitCode {
    ExitCode::from(u8::try_from(128 + signal).unwrap_or(1))
}

//! Processes of this program that play a part, and the controlling process's hold on them.

use std::fmt;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, Command, ExitCode, Stdio};
use std::str::FromStr;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use crate::{idle, joining, rank, small};

/// The variable that tells a process its part.
const PART: &str = "AETHER_SOAK_PART";

/// What a process does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// Joins, or doesn't.
    Join,
    /// Makes the calls of a round until one fails.
    Round,
    /// Makes many small calls, between the threads of this process or as a rank of several.
    SmallInThreads,
    SmallInProcesses,
    /// Waits for a rank that comes late.
    IdleInThreads,
    IdleInProcesses,
}

/// A process's part: everything that it has to know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Part {
    pub(crate) role: Role,
    pub(crate) rank: usize,
    pub(crate) ranks: usize,
    /// The seed of a round, or a number of calls.
    pub(crate) number: u64,
    /// Where the ranks meet.
    pub(crate) place: String,
}

const ROLES: [(Role, &str); 6] = [
    (Role::Join, "join"),
    (Role::Round, "round"),
    (Role::SmallInThreads, "small-threads"),
    (Role::SmallInProcesses, "small-processes"),
    (Role::IdleInThreads, "idle-threads"),
    (Role::IdleInProcesses, "idle-processes"),
];

impl fmt::Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = ROLES.iter().find(|it| it.0 == self.role).map_or("", |it| it.1);
        write!(f, "{name} {} {} {} {}", self.rank, self.ranks, self.number, self.place)
    }
}

impl FromStr for Part {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("`{text}` is no part");
        let mut words = text.splitn(5, ' ');
        let mut word = || words.next().ok_or_else(wrong);
        let name = word()?;
        let role = ROLES.iter().find(|it| it.1 == name).ok_or_else(wrong)?.0;
        let number = |it: &str| it.parse::<u64>().map_err(|_| wrong());
        let (rank, ranks) = (number(word()?)? as usize, number(word()?)? as usize);
        Ok(Self { role, rank, ranks, number: number(word()?)?, place: word()?.to_owned() })
    }
}

/// Plays a part, if this process was started for one.
pub(crate) fn serve() -> Option<ExitCode> {
    let part = std::env::var(PART).ok()?;
    let played = part.parse().and_then(|part: Part| match part.role {
        Role::Join => joining::play(&part),
        Role::Round => rank::play(&part),
        Role::SmallInThreads => small::play_in_threads(&part),
        Role::SmallInProcesses => small::play_in_processes(&part),
        Role::IdleInThreads => idle::play_in_threads(&part),
        Role::IdleInProcesses => idle::play_in_processes(&part),
    });
    Some(match played {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            say(&format!("failed {why}"));
            ExitCode::FAILURE
        }
    })
}

/// Tells the controlling process a line.
pub(crate) fn say(line: &str) {
    let mut out = std::io::stdout().lock();
    // If nobody listens any more, the process ends by its standard input.
    drop(writeln!(out, "{}", line.replace('\n', " ")).and_then(|()| out.flush()));
}

/// Waits for a line from the controlling process; its end ends this process too.
pub(crate) fn hear() -> String {
    let mut line = String::new();
    match std::io::stdin().lock().read_line(&mut line) {
        Ok(bytes) if bytes > 0 => line.trim_end().to_owned(),
        _ => std::process::exit(3),
    }
}

/// A process that plays a part. It is killed when this is dropped.
pub(crate) struct Worker {
    pub(crate) rank: usize,
    child: Child,
    input: Option<ChildStdin>,
    lines: Receiver<(Instant, String)>,
}

impl Worker {
    pub(crate) fn start(part: &Part) -> Result<Self, String> {
        let program = std::env::current_exe().map_err(|error| error.to_string())?;
        let mut command = Command::new(program);
        command.env(PART, part.to_string()).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().map_err(|error| format!("{part}: {error}"))?;
        let (input, output) = (child.stdin.take(), child.stdout.take());
        let (heard, lines) = channel();
        let output = output.ok_or("a worker has no output")?;
        std::thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                // Nobody listens to a worker that is dropped.
                drop(heard.send((Instant::now(), line)));
            }
        });
        Ok(Self { rank: part.rank, child, input, lines })
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// The next line, and when it came.
    pub(crate) fn line(&mut self, patience: Duration) -> Result<(Instant, String), String> {
        let who = format!("rank {} (process {})", self.rank, self.id());
        match self.lines.recv_timeout(patience) {
            Ok((_, line)) if line.starts_with("failed ") => Err(format!("{who}: {line}")),
            Ok(line) => Ok(line),
            Err(RecvTimeoutError::Timeout) => Err(format!("{who} said nothing for {patience:?}")),
            Err(RecvTimeoutError::Disconnected) => Err(format!("{who} ended without a word")),
        }
    }

    /// The rest of the next line, which has to begin so.
    pub(crate) fn expect(
        &mut self,
        word: &str,
        patience: Duration,
    ) -> Result<(Instant, String), String> {
        let (when, line) = self.line(patience)?;
        match line.strip_prefix(word) {
            Some(rest) => Ok((when, rest.trim_start().to_owned())),
            None => Err(format!("rank {} said `{line}`, wanted `{word}`", self.rank)),
        }
    }

    pub(crate) fn tell(&mut self, line: &str) -> Result<(), String> {
        let input = self.input.as_mut().ok_or("a worker has no input")?;
        writeln!(input, "{line}").map_err(|error| format!("rank {}: {error}", self.rank))
    }

    /// Sends a signal to this worker, which has not been waited for.
    pub(crate) fn signal(&self, signal: libc::c_int) {
        // SAFETY: `kill` takes two numbers. The process is a child that was not waited for, so its number
        // is not another's.
        unsafe { libc::kill(self.id() as libc::pid_t, signal) };
    }

    /// Waits for the end, which has to be a good one.
    pub(crate) fn end(mut self, patience: Duration) -> Result<(), String> {
        let until = Instant::now() + patience;
        while Instant::now() < until {
            match self.child.try_wait().map_err(|error| error.to_string())? {
                Some(status) if status.success() => return Ok(()),
                Some(status) => return Err(format!("rank {} ended by {status}", self.rank)),
                None => std::thread::sleep(Duration::from_millis(1)),
            }
        }
        Err(format!("rank {} has not ended after {patience:?}", self.rank))
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        // Both fail for a process that has ended, and been waited for.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

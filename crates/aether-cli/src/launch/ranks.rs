//! The processes of ranks: how they are started, signalled, waited for, and never left behind.

use std::ffi::OsString;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command, ExitStatus};
use std::sync::mpsc::Sender;
use std::time::{Duration, Instant};

use aether::TcpServer;
use rustix::process::{
    Pid, WaitId, WaitIdOptions, getpid, getppid, kill_process_group,
    set_parent_process_death_signal, waitid,
};
use rustix::rand::{GetRandomFlags, getrandom};

use super::keeper::Keeper;
use crate::failure::{Failure, Result};

pub(crate) use rustix::process::Signal;

/// What every rank runs.
pub(crate) struct Program {
    pub(crate) path: OsString,
    pub(crate) arguments: Vec<OsString>,
}

/// Ranks that were started, each in a process group of its own, and where they meet.
///
/// None outlives it: those that still run when it is dropped are killed, with whatever they started in
/// their group. If this process is killed itself, the kernel kills the ranks, and the keeper their
/// groups.
pub(crate) struct Ranks {
    /// None once it was reaped.
    processes: Vec<Option<Process>>,
    keeper: Keeper,
    _server: TcpServer,
}

struct Process {
    child: Child,
    group: Pid,
    started: Instant,
}

/// What came of a rank.
#[derive(Clone, Copy, Debug)]
pub(crate) struct End {
    pub(crate) status: ExitStatus,
    /// How long it ran.
    pub(crate) after: Duration,
}

impl Ranks {
    /// Starts the program so many times. `streams` says where each process's streams go; the events of
    /// ranks that ended go to `events`, and each is to be reaped then.
    ///
    /// The kernel kills the ranks when the thread ends that calls this, so that has to be one that lives
    /// as long as they may.
    pub(crate) fn start<E: Send + 'static>(
        program: &Program,
        ranks: usize,
        events: Sender<E>,
        ended: fn(usize) -> E,
        streams: impl Fn(&mut Command),
    ) -> Result<Self> {
        let token = token()?;
        let server = TcpServer::bind("127.0.0.1:0", token.as_bytes(), ranks)?;
        let address = server.address();
        let processes = Vec::with_capacity(ranks);
        let mut started = Self { processes, keeper: Keeper::start()?, _server: server };
        for rank in 0..ranks {
            let mut command = Command::new(&program.path);
            command
                .args(&program.arguments)
                .env("AETHER_RANK", rank.to_string())
                .env("AETHER_RANKS", ranks.to_string())
                .env("AETHER_LOCAL_RANK", rank.to_string())
                .env("AETHER_LOCAL_RANKS", ranks.to_string())
                .env("AETHER_RENDEZVOUS", format!("tcp://{address}"))
                .env("AETHER_TOKEN", &token)
                .process_group(0);
            streams(&mut command);
            die_with_this_thread(&mut command);
            let failed = |what: &str, error: std::io::Error| {
                let path = program.path.display();
                Failure::new(format!("launch rank {rank}: {what} `{path}`: {error}"))
            };
            let child = command.spawn().map_err(|error| failed("start", error))?;
            // Its group has the number of the process.
            let group = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
            let Some(group) = group else {
                return Err(Failure::new(format!("launch rank {rank}: it has no number")));
            };
            started.keeper.add(group);
            started.processes.push(Some(Process { child, group, started: Instant::now() }));
            let events = events.clone();
            let wait = move || {
                wait_for_the_end_of(group);
                // Whoever dropped the other end knows by other means.
                let _ = events.send(ended(rank));
            };
            std::thread::Builder::new()
                .name(format!("end of {rank}"))
                .spawn(wait)
                .map_err(|error| failed("wait for", error))?;
        }
        Ok(started)
    }

    /// How many were started.
    pub(crate) fn count(&self) -> usize {
        self.processes.len()
    }

    /// How many were not reaped yet.
    pub(crate) fn left(&self) -> usize {
        self.running().count()
    }

    /// Those that were not reaped yet.
    pub(crate) fn running(&self) -> impl Iterator<Item = usize> {
        self.processes.iter().enumerate().filter(|(_, it)| it.is_some()).map(|(rank, _)| rank)
    }

    /// What the rank prints, the first time that somebody asks.
    pub(crate) fn outputs(&mut self, rank: usize) -> (Option<ChildStdout>, Option<ChildStderr>) {
        let process = self.processes.get_mut(rank).and_then(Option::as_mut);
        process.map_or((None, None), |it| (it.child.stdout.take(), it.child.stderr.take()))
    }

    /// What the rank reads, the first time that somebody asks.
    pub(crate) fn input(&mut self, rank: usize) -> Option<ChildStdin> {
        self.processes.get_mut(rank)?.as_mut()?.child.stdin.take()
    }

    /// Sends the signal to all that were not reaped yet, and to what they started.
    pub(crate) fn signal(&self, signal: Signal) {
        for process in self.processes.iter().flatten() {
            // It may be gone; nobody else has the number until it was reaped.
            let _ = kill_process_group(process.group, signal);
        }
    }

    /// What came of a rank, which has ended or is about to. What is left of its group is killed.
    pub(crate) fn reap(&mut self, rank: usize) -> Result<End> {
        let process = self.processes.get_mut(rank).and_then(Option::take);
        let Some(mut process) = process else {
            return Err(Failure::new(format!("launch: rank {rank} ended twice")));
        };
        // Before the process is reaped, which frees the number of its group for others.
        let _ = kill_process_group(process.group, Signal::KILL);
        let status = process.child.wait();
        self.keeper.remove(process.group);
        let status =
            status.map_err(|it| Failure::new(format!("launch rank {rank}: wait for it: {it}")))?;
        Ok(End { status, after: process.started.elapsed() })
    }
}

impl Drop for Ranks {
    fn drop(&mut self) {
        self.signal(Signal::KILL);
        for rank in 0..self.processes.len() {
            if self.processes[rank].is_some() {
                drop(self.reap(rank));
            }
        }
    }
}

/// What came of a process, in words.
pub(crate) fn how(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("ended with exit code {code}"),
        (None, Some(signal)) => match name_of(signal) {
            Some(name) => format!("was killed by {name}"),
            None => format!("was killed by signal {signal}"),
        },
        (None, None) => "ended for a reason that nobody knows".to_owned(),
    }
}

fn name_of(signal: i32) -> Option<&'static str> {
    let names = [
        (Signal::ABORT, "SIGABRT"),
        (Signal::ALARM, "SIGALRM"),
        (Signal::BUS, "SIGBUS"),
        (Signal::FPE, "SIGFPE"),
        (Signal::HUP, "SIGHUP"),
        (Signal::ILL, "SIGILL"),
        (Signal::INT, "SIGINT"),
        (Signal::KILL, "SIGKILL"),
        (Signal::PIPE, "SIGPIPE"),
        (Signal::QUIT, "SIGQUIT"),
        (Signal::SEGV, "SIGSEGV"),
        (Signal::TERM, "SIGTERM"),
        (Signal::XCPU, "SIGXCPU"),
        (Signal::XFSZ, "SIGXFSZ"),
    ];
    names.iter().find(|(it, _)| it.as_raw() == signal).map(|(_, name)| *name)
}

/// Has the kernel kill the process when the thread that starts it ends, as it does with this process.
fn die_with_this_thread(command: &mut Command) {
    let launcher = getpid();
    let before_exec = move || -> std::io::Result<()> {
        set_parent_process_death_signal(Some(Signal::KILL))?;
        // If the launcher ended before that, nobody will tell.
        if getppid() != Some(launcher) {
            return Err(rustix::io::Errno::SRCH.into());
        }
        Ok(())
    };
    // SAFETY: "This closure will be run in the context of the child process after a fork", where, by the
    // documentation of `pre_exec`, it may do only what is async-signal-safe: allocating and taking locks
    // are not. It makes two system calls, prctl and getppid, which rustix makes directly; an error is a
    // number, and `io::Error` holds it without allocating.
    unsafe { command.pre_exec(before_exec) };
}

/// Waits until the process has ended, and leaves it to be reaped, so that its number stays its own.
fn wait_for_the_end_of(process: Pid) {
    let options = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
    // Anything but an interruption means that it is not there any more.
    while let Err(rustix::io::Errno::INTR) = waitid(WaitId::Pid(process), options) {}
}

/// A new token: 256 random bits, as text.
fn token() -> Result<String> {
    let mut bytes = [0_u8; 32];
    let mut done = 0;
    while done < bytes.len() {
        match getrandom(&mut bytes[done..], GetRandomFlags::empty()) {
            Ok(count) => done += count,
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(Failure::new(format!("launch: make a token: {error}"))),
        }
    }
    Ok(bytes.iter().map(|it| format!("{it:02x}")).collect())
}

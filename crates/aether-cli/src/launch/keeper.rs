//! The keeper: a process that ends the ranks where their launcher can't.
//!
//! A launcher that is killed has no time to end what it started. The kernel kills the ranks themselves
//! then, but not what they started in turn (a shell's command, say). So each launcher has a keeper, which
//! reads the launcher's notes from a pipe. The pipe ends with the launcher, however that ends, and the
//! keeper kills the process groups of the ranks that are left.

use std::io::{BufRead, Write};
use std::process::{Child, Command, Stdio};

use rustix::process::{Pid, Signal, kill_process_group};

use crate::failure::{Failure, Result};

/// The word by which this program knows that it is a keeper.
pub(crate) const WORD: &str = "keep-ranks";

/// The launcher's end of the pipe.
pub(super) struct Keeper(Child);

impl Keeper {
    /// Starts one.
    pub(super) fn start() -> Result<Self> {
        use std::os::unix::process::CommandExt;
        let failed =
            |error: std::io::Error| Failure::new(format!("launch: start a keeper: {error}"));
        let mut command = Command::new(std::env::current_exe().map_err(failed)?);
        // A group of its own: what ends the launcher from the terminal doesn't end it.
        command.arg(WORD).process_group(0).stdin(Stdio::piped()).stdout(Stdio::null());
        Ok(Self(command.stderr(Stdio::null()).spawn().map_err(failed)?))
    }

    /// Has it know of a process group.
    pub(super) fn add(&mut self, group: Pid) {
        self.note('+', group);
    }

    /// Has it forget a process group, of which nobody is left.
    pub(super) fn remove(&mut self, group: Pid) {
        self.note('-', group);
    }

    fn note(&mut self, sign: char, group: Pid) {
        if let Some(pipe) = &mut self.0.stdin {
            // Where the keeper was killed, ranks are ended by the launcher all the same.
            drop(pipe.write_all(format!("{sign}{}\n", group.as_raw_nonzero()).as_bytes()));
        }
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        drop(self.0.stdin.take());
        drop(self.0.wait());
    }
}

/// What the keeper does: reads to the end, then kills every group that is left.
pub(crate) fn run(notes: impl BufRead) {
    for group in left(notes) {
        // It may be gone already.
        let _ = kill_process_group(group, Signal::KILL);
    }
}

/// The groups that were added and not removed.
fn left(notes: impl BufRead) -> Vec<Pid> {
    let mut groups = Vec::new();
    for note in notes.lines().map_while(std::io::Result::ok) {
        let Some(group) = note.get(1..).and_then(|it| it.parse().ok()).and_then(Pid::from_raw)
        else {
            continue;
        };
        groups.retain(|it| *it != group);
        if note.starts_with('+') {
            groups.push(group);
        }
    }
    groups
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_removed_or_is_no_note_is_not_killed() {
        let left = |notes: &str| -> Vec<i32> {
            left(notes.as_bytes()).iter().map(|it| it.as_raw_nonzero().get()).collect()
        };
        assert_eq!(left("+11\n+12\n+13\n-12\n"), [11, 13]);
        assert_eq!(left("+11\n-11\n+11\n"), [11]);
        assert_eq!(left("+0\n+x\n+\n\nhello\n-5\n"), [0; 0]);
    }
}

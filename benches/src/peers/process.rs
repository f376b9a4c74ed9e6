//! A child that is asked by the line and answers by the line.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use crate::contender::Took;
use crate::failure::{Failure, Result};

/// How long an answer may take. A peer that hangs ends the measurement with an error.
const PATIENCE: Duration = Duration::from_secs(60);

/// How long a child may take to end once its input has.
const FAREWELL: Duration = Duration::from_secs(5);

/// The child, which ends when this is dropped.
pub(super) struct Process {
    name: &'static str,
    version: String,
    child: Child,
    /// Absent only while it is dropped.
    input: Option<ChildStdin>,
    lines: Receiver<String>,
}

impl Process {
    /// Starts it and waits until it says `ready,VERSION`.
    pub(super) fn start(name: &'static str, mut command: Command) -> Result<Self> {
        let failed = |why: String| Failure::new(format!("start {name}: {why}"));
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|error| failed(error.to_string()))?;
        let (line, lines) = channel();
        if let Some(output) = child.stdout.take() {
            // It ends when the child's output does.
            std::thread::spawn(move || {
                let mut output = BufReader::new(output).lines().map_while(std::io::Result::ok);
                output.try_for_each(|it| line.send(it))
            });
        }
        let input = child.stdin.take();
        let mut process = Self { name, version: String::new(), child, input, lines };
        let first = process.line()?;
        let version =
            first.strip_prefix("ready,").ok_or_else(|| failed(format!("it said `{first}`")))?;
        process.version = version.trim().to_owned();
        Ok(process)
    }

    /// What it said of itself.
    pub(super) fn version(&self) -> &str {
        &self.version
    }

    /// Asks for one turn.
    pub(super) fn ask(&mut self, order: &str) -> Result<Took> {
        let name = self.name;
        let input =
            self.input.as_mut().ok_or_else(|| Failure::new(format!("{name} was closed")))?;
        writeln!(input, "{order}")
            .and_then(|()| input.flush())
            .map_err(|error| Failure::new(format!("ask for `{order}`: {error}")))?;
        read(&self.line()?)
    }

    fn line(&mut self) -> Result<String> {
        self.lines.recv_timeout(PATIENCE).map_err(|error| {
            let why = match error {
                RecvTimeoutError::Timeout => format!("no answer within {} s", PATIENCE.as_secs()),
                RecvTimeoutError::Disconnected => "it ended without an answer".to_owned(),
            };
            Failure::new(format!("{}: {why}", self.name))
        })
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // The end of its input asks it to end.
        self.input = None;
        let asked = Instant::now();
        while asked.elapsed() < FAREWELL {
            match self.child.try_wait() {
                Ok(None) => std::thread::sleep(Duration::from_millis(5)),
                Ok(Some(_)) => return,
                Err(_) => break,
            }
        }
        // Nothing can be done about a child that can't be ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The microseconds of an answer.
fn read(line: &str) -> Result<Took> {
    match line.trim().parse::<f64>() {
        Ok(micros) if micros.is_finite() && micros > 0.0 => Ok(Took::micros(micros)),
        _ => Err(Failure::new(format!("the answer `{line}` is no time"))),
    }
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;

    fn shell(script: &str) -> Result<Process> {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        Process::start("a peer", command)
    }

    #[test]
    fn an_order_is_answered_by_the_microseconds_of_one_operation() {
        let script =
            "echo 'ready,peer 1.5'; while read op bytes warmup iterations; do echo $bytes.5; done";
        let mut process = shell(script).unwrap();
        assert_eq!(process.version(), "peer 1.5");
        assert_eq!(process.ask("all_reduce 16 1 10").unwrap(), Took::micros(16.5));
        assert_eq!(process.ask("broadcast 128 1 10").unwrap(), Took::micros(128.5));
    }

    #[test]
    fn what_is_no_time_is_an_error_that_quotes_it() {
        for answer in ["", "soon", "-1", "0", "NaN", "inf", "1,2"] {
            let why = read(answer).unwrap_err().to_string();
            assert_eq!(why, format!("the answer `{answer}` is no time"));
        }
        assert_eq!(read(" 2.25 \r").unwrap(), Took::micros(2.25));
    }

    #[test]
    fn a_peer_that_does_not_come_up_or_ends_early_is_named() {
        let starts =
            [("echo hello", "start a peer: it said `hello`"), ("exit 3", "a peer: it ended")];
        for (script, expected) in starts {
            let why = shell(script).err().unwrap().to_string();
            assert!(why.starts_with(expected), "{why}");
        }
        let mut process = shell("echo ready,1; read line").unwrap();
        assert!(process.ask("all_reduce 16 1 1").is_err());
    }

    #[test]
    fn a_peer_ends_with_its_contender() {
        let process = shell("echo ready,1; cat > /dev/null").unwrap();
        let id = process.child.id();
        drop(process);
        // Reaped, so that nobody has the number but by chance a newer process, which is no child of ours.
        let status = std::fs::read_to_string(format!("/proc/{id}/stat"));
        assert!(
            status.is_err_and(|it| it.kind() == std::io::ErrorKind::NotFound)
                || !cfg!(target_os = "linux")
        );
    }
}

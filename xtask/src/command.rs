//! Child processes: printed as one could type them, and kept apart from the caller's environment.

use std::{
    env, fmt,
    io::{self, BufRead, BufReader, Write},
    path::{Path, PathBuf},
    process,
};

use crate::tally::Tally;

/// Variables that a child does not inherit, because they would change what is checked: flags of the
/// caller's shell, and what `cargo run` tells this program about itself.
const NOT_INHERITED: &[&str] = &[
    "CARGO_BIN_NAME",
    "CARGO_BUILD_RUSTDOCFLAGS",
    "CARGO_BUILD_RUSTFLAGS",
    "CARGO_BUILD_TARGET",
    "CARGO_CRATE_NAME",
    "CARGO_ENCODED_RUSTDOCFLAGS",
    "CARGO_ENCODED_RUSTFLAGS",
    "CARGO_MANIFEST_DIR",
    "CARGO_MANIFEST_PATH",
    "CARGO_PRIMARY_PACKAGE",
    "MIRIFLAGS",
    "RUSTDOCFLAGS",
    "RUSTFLAGS",
    "RUST_TEST_NOCAPTURE",
];

/// Package variables are too many to list, and grow with cargo.
const NOT_INHERITED_PREFIX: &str = "CARGO_PKG_";

/// A program, its arguments and the variables it is given on top of the inherited ones.
pub(crate) struct Command {
    program: String,
    arguments: Vec<String>,
    variables: Vec<(&'static str, String)>,
    directory: PathBuf,
}

impl Command {
    /// `program` with `arguments` separated by blanks, to be run in `directory`.
    pub(crate) fn new(program: &str, arguments: &str, directory: &Path) -> Self {
        Self {
            program: program.to_owned(),
            arguments: arguments.split_whitespace().map(str::to_owned).collect(),
            variables: Vec::new(),
            directory: directory.to_owned(),
        }
    }

    /// The cargo that started this program, hence the toolchain that the workspace pins.
    pub(crate) fn cargo(arguments: &str, directory: &Path) -> Self {
        Self::new("cargo", arguments, directory)
    }

    /// More arguments, which may hold blanks.
    pub(crate) fn arguments(mut self, arguments: &[String]) -> Self {
        self.arguments.extend_from_slice(arguments);
        self
    }

    /// Sets a variable for the child.
    pub(crate) fn variable(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.variables.push((name, value.into()));
        self
    }

    /// Prints the command, then runs it with this program's own output.
    pub(crate) fn run(&self) -> Result<(), String> {
        println!("$ {self}");
        let status = self.prepared().status().map_err(|error| self.cannot_start(&error))?;
        self.judge(status)
    }

    /// Runs it, and hands back what it wrote to its standard output.
    pub(crate) fn output(&self) -> Result<String, String> {
        let output = self.prepared().output().map_err(|error| self.cannot_start(&error))?;
        self.judge(output.status).map_err(|why| {
            let said = String::from_utf8_lossy(&output.stderr);
            format!("{why}\n{}", said.trim_end())
        })?;
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    /// Prints the command and runs it as one that runs tests: its output streams through, and is
    /// counted on the way. The tally comes back whether or not the tests passed.
    pub(crate) fn run_tests(&self) -> (Tally, Result<(), String>) {
        println!("$ {self}");
        self.count_tests(&mut io::stdout())
    }

    fn count_tests(&self, out: &mut impl Write) -> (Tally, Result<(), String>) {
        let mut tally = Tally::default();
        let ended = self.stream(out, |line| tally.line(line));
        tally.close();
        let ended = ended.and_then(|()| tally.judge().map_err(|why| format!("`{self}`: {why}")));
        (tally, ended)
    }

    fn stream(&self, out: &mut impl Write, mut each: impl FnMut(&str)) -> Result<(), String> {
        let mut child = self
            .prepared()
            .stdout(process::Stdio::piped())
            .spawn()
            .map_err(|error| self.cannot_start(&error))?;
        // Taken always, since it was asked for above.
        if let Some(stdout) = child.stdout.take() {
            pass_through(BufReader::new(stdout), out, &mut each)
                .map_err(|error| format!("lost the output of `{self}`: {error}"))?;
        }
        let status =
            child.wait().map_err(|error| format!("can't tell how `{self}` ended: {error}"))?;
        self.judge(status)
    }

    fn prepared(&self) -> process::Command {
        let program = match (self.program.as_str(), env::var_os("CARGO")) {
            ("cargo", Some(cargo)) => cargo,
            (program, _) => program.into(),
        };
        let mut command = process::Command::new(program);
        for (name, _) in env::vars_os() {
            if is_not_inherited(&name.to_string_lossy()) {
                command.env_remove(name);
            }
        }
        command.args(&self.arguments).current_dir(&self.directory).stdin(process::Stdio::null());
        command.envs(self.variables.iter().map(|(name, value)| (name, value)));
        command
    }

    fn cannot_start(&self, error: &io::Error) -> String {
        format!("can't start `{self}`: {error}")
    }

    fn judge(&self, status: process::ExitStatus) -> Result<(), String> {
        if status.success() { Ok(()) } else { Err(format!("`{self}` ended with {status}")) }
    }
}

impl fmt::Display for Command {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (name, value) in &self.variables {
            write!(f, "{name}={} ", quoted(value))?;
        }
        write!(f, "{}", self.program)?;
        self.arguments.iter().try_for_each(|argument| write!(f, " {}", quoted(argument)))
    }
}

fn is_not_inherited(name: &str) -> bool {
    NOT_INHERITED.contains(&name) || name.starts_with(NOT_INHERITED_PREFIX)
}

/// Single quotes where a shell would otherwise split or expand the word.
fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_=./:,+".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

/// Copies `from` to `to` line by line, unchanged, and shows each line to `each`. Output that is not
/// UTF-8 is copied as it is.
fn pass_through(
    mut from: impl BufRead,
    to: &mut impl Write,
    each: &mut impl FnMut(&str),
) -> io::Result<()> {
    let mut line = Vec::new();
    while from.read_until(b'\n', &mut line)? > 0 {
        to.write_all(&line)?;
        to.flush()?;
        each(&String::from_utf8_lossy(&line));
        line.clear();
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_prints_as_one_could_type_it() {
        let command = Command::cargo("test -p aether-core --test loom", Path::new("."))
            .variable("RUSTFLAGS", "--cfg loom")
            .variable("LOOM_MAX_PREEMPTIONS", "3");
        assert_eq!(
            command.to_string(),
            "RUSTFLAGS='--cfg loom' LOOM_MAX_PREEMPTIONS=3 cargo test -p aether-core --test loom"
        );
        assert_eq!(quoted("it's"), r"'it'\''s'");
        assert_eq!(quoted(""), "''");
    }

    #[test]
    fn flags_of_the_callers_shell_are_not_inherited_and_other_variables_are() {
        for name in ["RUSTFLAGS", "CARGO_ENCODED_RUSTFLAGS", "MIRIFLAGS", "CARGO_PKG_VERSION"] {
            assert!(is_not_inherited(name), "{name}");
        }
        for name in ["PATH", "HOME", "CARGO_HOME", "CARGO_TARGET_DIR", "RUST_BACKTRACE"] {
            assert!(!is_not_inherited(name), "{name}");
        }
    }

    #[test]
    fn streamed_output_arrives_unchanged_and_line_by_line() {
        let bytes = b"one\n\xff two\n\nlast without an end";
        let (mut copied, mut seen) = (Vec::new(), Vec::new());
        pass_through(&bytes[..], &mut copied, &mut |line| seen.push(line.to_owned())).unwrap();
        assert_eq!(copied, bytes);
        assert_eq!(seen, ["one\n", "\u{fffd} two\n", "\n", "last without an end"]);
    }

    #[test]
    fn a_program_that_is_not_there_is_an_error_that_names_it() {
        let command = Command::new("a-program-that-nobody-has", "--now", Path::new("."));
        let why = command.output().unwrap_err();
        assert!(why.contains("can't start `a-program-that-nobody-has --now`"), "{why}");
    }

    #[cfg(unix)]
    #[test]
    fn a_failing_command_that_reports_passed_tests_is_a_failure_with_its_tally() {
        let mut command = Command::new("sh", "-c", Path::new("."));
        let script = "echo 'running 2 tests'; \
            echo 'test result: ok. 2 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out'; exit 3";
        command.arguments.push(script.to_owned());
        let (tally, ended) = command.count_tests(&mut io::sink());
        assert_eq!(tally.to_string(), "2 passed, 0 failed, 0 skipped");
        assert!(ended.unwrap_err().contains("exit status: 3"));
    }

    #[cfg(unix)]
    #[test]
    fn a_command_that_succeeds_without_running_a_test_is_a_failure() {
        let mut command = Command::new("sh", "-c", Path::new("."));
        command.arguments.push("echo 'nothing to do'".to_owned());
        let (_, ended) = command.count_tests(&mut io::sink());
        assert!(ended.unwrap_err().contains("no test was run"));
    }
}

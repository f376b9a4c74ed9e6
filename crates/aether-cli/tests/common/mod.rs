//! Runs the program and reads what it printed.

use std::process::{Command, Output};

/// What came of one run.
pub struct Run {
    pub code: i32,
    pub stdout: String,
    pub stderr: String,
}

/// Runs `aether` with these arguments, in a directory that has nothing to do with the project.
pub fn aether<'a>(arguments: impl IntoIterator<Item = &'a str>) -> Run {
    let output = Command::new(env!("CARGO_BIN_EXE_aether"))
        .args(arguments)
        .current_dir(std::env::temp_dir())
        .output()
        .unwrap();
    let Output { status, stdout, stderr } = output;
    Run {
        code: status.code().unwrap(),
        stdout: String::from_utf8(stdout).unwrap(),
        stderr: String::from_utf8(stderr).unwrap(),
    }
}

impl Run {
    /// Asserts that the run failed with exit code 1 and one line, which it returns without the
    /// name of the program.
    pub fn failure(&self) -> &str {
        assert_eq!(self.code, 1, "{}", self.stderr);
        let mut lines = self.stderr.lines().filter_map(|it| it.strip_prefix("aether: "));
        let line = lines.next().unwrap();
        assert_eq!(lines.next(), None, "one line");
        assert!(self.stderr.trim_end().ends_with(line), "and the last: {}", self.stderr);
        line
    }
}

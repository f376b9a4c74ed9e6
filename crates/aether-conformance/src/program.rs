//! The whole of a test program: its `main`.

use std::process::ExitCode;

use libtest_mimic::{Arguments, Trial};

/// Runs the trials as a test program does, by the arguments of this process: a part of a name runs
/// the trials that contain it, `--list` lists them, `--test-threads=1` runs one after the other.
///
/// It is meant as the last line of the `main` of a test with `harness = false`; the code says whether
/// all trials passed. Arguments that aren't understood, and `--help`, end the process here.
pub fn run(trials: Vec<Trial>) -> ExitCode {
    libtest_mimic::run(&Arguments::from_args(), trials).exit_code()
}

//! Where the output goes nowhere, the exit code is still one of three.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, missing_docs, unreachable_pub, dead_code)]

use std::fs::File;
use std::process::{Command, Stdio};

/// Every write to this file fails: the disk is full.
fn full() -> Stdio {
    File::options().write(true).open("/dev/full").unwrap().into()
}

fn code(arguments: &str, stdout: Stdio, stderr: Stdio) -> Option<i32> {
    let mut run = Command::new(env!("CARGO_BIN_EXE_aether"));
    run.args(arguments.split(' ')).stdout(stdout).stderr(stderr).status().unwrap().code()
}

#[test]
fn a_standard_error_that_cannot_be_written_changes_no_exit_code() {
    for (arguments, expected) in [
        ("train --epochs 2", 0),
        ("bench all_reduce -n 1 -e 1K", 0),
        ("train --data /nowhere/at-all.csv", 1),
        ("train --epochs 0", 2),
        ("bench all -b 0", 2),
    ] {
        assert_eq!(code(arguments, Stdio::null(), full()), Some(expected), "{arguments}");
    }
}

#[test]
fn results_that_cannot_be_written_are_a_failure() {
    for arguments in
        ["--help", "--version", "bench --help", "devices --json", "bench memcpy -n 1 -e 32"]
    {
        assert_eq!(code(arguments, full(), Stdio::null()), Some(1), "{arguments}");
        assert_eq!(code(arguments, Stdio::null(), Stdio::null()), Some(0), "{arguments}");
    }
}

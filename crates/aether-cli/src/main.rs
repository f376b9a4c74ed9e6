//! The program `aether`: the devices of this machine, a training run over them, and benchmarks of
//! the collectives between them.

mod bench;
mod cli;
mod devices;
mod failure;
mod group;
mod model;
mod progress;
mod size;
mod stderr;
mod table;
mod train;

use std::io::Write;
use std::process::ExitCode;

use clap::Parser;

use crate::cli::{Cli, Command};
use crate::failure::Failure;

fn main() -> ExitCode {
    // Bad usage ends inside of `validate` too, with exit code 2.
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(usage) => return said(&usage),
    };
    cli.validate();
    let mut out = std::io::stdout().lock();
    let done = match cli.command.unwrap_or_default() {
        Command::Bench(args) => bench::run(&args, &mut out),
        Command::Devices(args) => devices::run(&args, &mut out),
        Command::Train(args) => train::run(&args, &mut out),
    };
    match done.and_then(|()| Ok(out.flush()?)) {
        Ok(()) => ExitCode::SUCCESS,
        // Whoever read the output has seen enough, as in `aether bench all | head`.
        Err(Failure::OutputClosed) => ExitCode::FAILURE,
        Err(failure) => {
            stderr::line(format_args!("aether: {failure}"));
            ExitCode::FAILURE
        }
    }
}

/// Prints the help, the version, or what is wrong with the arguments. Help is a result, so that
/// nobody could read it is a failure; bad usage stays bad usage.
fn said(usage: &clap::Error) -> ExitCode {
    let printed = usage.print().and_then(|()| std::io::stdout().flush());
    match (usage.exit_code(), printed) {
        (0, Ok(())) => ExitCode::SUCCESS,
        (0, Err(_)) => ExitCode::FAILURE,
        _ => ExitCode::from(2),
    }
}

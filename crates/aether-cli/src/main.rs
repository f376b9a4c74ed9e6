//! The program `aether`: the devices of this machine, a training run over them, benchmarks of the
//! collectives between them, and a launcher of programs that are several ranks.

mod bench;
mod cli;
mod devices;
mod failure;
mod group;
mod launch;
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
    let command = cli.command.unwrap_or_default();
    // The launcher's ranks print from several threads, everything else from this one.
    let done = match &command {
        Command::Launch(args) => launch::run(args),
        Command::Keep => {
            launch::keep(std::io::stdin().lock());
            Ok(ExitCode::SUCCESS)
        }
        _ => print(&command, &mut std::io::stdout().lock()),
    };
    match done {
        Ok(code) => code,
        // Whoever read the output has seen enough, as in `aether bench all | head`.
        Err(Failure::OutputClosed) => ExitCode::FAILURE,
        Err(failure) => {
            stderr::line(format_args!("aether: {failure}"));
            ExitCode::FAILURE
        }
    }
}

/// Runs a command that prints results.
fn print(command: &Command, out: &mut dyn Write) -> failure::Result<ExitCode> {
    match command {
        Command::Bench(args) => bench::run(args, out)?,
        Command::Devices(args) => devices::run(args, out)?,
        Command::Train(args) => train::run(args, out)?,
        Command::Keep | Command::Launch(_) => {}
    }
    out.flush()?;
    Ok(ExitCode::SUCCESS)
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

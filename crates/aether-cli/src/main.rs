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
mod table;
mod train;

use std::process::ExitCode;

use clap::Parser;

use crate::cli::{Cli, Command};
use crate::failure::Failure;

fn main() -> ExitCode {
    // Bad usage ends inside of `parse` and `validate`, with exit code 2.
    let cli = Cli::parse();
    cli.validate();
    let mut out = std::io::stdout().lock();
    let done = match cli.command.unwrap_or_default() {
        Command::Bench(args) => bench::run(&args, &mut out),
        Command::Devices(args) => devices::run(&args, &mut out),
        Command::Train(args) => train::run(&args, &mut out),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        // Whoever read the output has seen enough, as in `aether bench all | head`.
        Err(Failure::OutputClosed) => ExitCode::FAILURE,
        Err(failure) => {
            eprintln!("aether: {failure}");
            ExitCode::FAILURE
        }
    }
}

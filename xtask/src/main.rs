//! The workspace's chores: `cargo xtask ci`, and the steps it is made of.
//!
//! One module a chore. What a person may want to change is data at the top of its module: the steps
//! in [`ci`], the arrows in [`deps`], what runs under miri in [`miri`], what is found in [`hygiene`].

use std::process::ExitCode;

use clap::{Parser, Subcommand, builder::PossibleValuesParser};

use crate::{report::Verdict, workspace::Workspace};

mod bench;
mod ci;
mod command;
mod deps;
mod hygiene;
mod loom;
mod miri;
mod report;
mod soak;
mod tally;
mod workspace;

/// The chores of the aether workspace.
#[derive(Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
struct Cli {
    #[command(subcommand)]
    chore: Chore,
}

#[derive(Subcommand)]
enum Chore {
    /// Measure aether, the limit of this machine's memory and other libraries in turns.
    #[command(disable_help_flag = true)]
    Bench {
        /// What the program `clock` of `benches/` is told; `--help` lists it.
        #[arg(value_name = "ARGUMENT", trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<String>,
    },
    /// Run every check in order, and end with `N passed, N failed, N skipped`.
    Ci {
        /// Run only these steps, in the usual order.
        #[arg(value_name = "STEP", value_parser = PossibleValuesParser::new(ci::names()))]
        only: Vec<String>,
    },
    /// Check which crate sees which, against the arrows that the design allows.
    Deps,
    /// Model-check the waiting and waking of aether-core, and the rounds of aether-host.
    Loom,
    /// Run the tests that look for undefined behaviour under miri.
    Miri,
    /// Kill and stop processes of groups at random, and make millions of small calls.
    Soak(soak::Soak),
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    let workspace = match Workspace::load() {
        Ok(workspace) => workspace,
        Err(why) => {
            eprintln!("xtask: {why}");
            return ExitCode::FAILURE;
        }
    };
    let report = match cli.chore {
        Chore::Ci { only } => {
            let steps = ci::chosen(&only);
            let passed = ci::run(&steps, &workspace, &mut std::io::stdout());
            return if passed { ExitCode::SUCCESS } else { ExitCode::FAILURE };
        }
        Chore::Bench { arguments } => bench::run(&workspace, &arguments),
        Chore::Deps => deps::run(&workspace),
        Chore::Loom => loom::run(&workspace),
        Chore::Miri => miri::run(&workspace),
        Chore::Soak(options) => soak::run(&workspace, &options),
    };
    match report.verdict {
        Verdict::Passed(note) => {
            println!("{note}");
            ExitCode::SUCCESS
        }
        // In `ci` a skipped step is told and passed over. Who asks for it by name wants it run.
        Verdict::Skipped(why) | Verdict::Failed(why) => {
            eprintln!("xtask: {why}");
            ExitCode::FAILURE
        }
    }
}

//! Runs groups of processes for long: rounds in which one is killed or stopped, and millions of small calls.

use clap::Args;

use crate::{report::Report, workspace::Workspace};

/// How long, and from which seed.
#[derive(Args)]
pub(crate) struct Soak {
    /// How many rounds, in each of which one process is killed, or stopped and continued.
    #[arg(long, default_value_t = 200)]
    rounds: u64,
    /// What the rounds' own seeds come from.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// How many small calls follow, in threads and in processes; 0 leaves them out.
    #[arg(long, default_value_t = 10_000_000)]
    calls: u64,
    /// Nothing but the round of this seed, as a round that failed has printed it.
    #[arg(long)]
    round: Option<u64>,
}

/// Builds the test `soak` for release and runs it by these options instead of as a test.
pub(crate) fn run(workspace: &Workspace, soak: &Soak) -> Report {
    let Soak { rounds, seed, calls, round } = soak;
    let mut options = vec![("--rounds", *rounds), ("--seed", *seed), ("--calls", *calls)];
    options.extend(round.map(|it| ("--round", it)));
    let words: Vec<String> =
        options.iter().map(|(name, value)| format!("{name} {value}")).collect();
    let command = "test --release --locked --quiet --package aether-tests --test soak -- soak";
    workspace.cargo(&format!("{command} {}", words.join(" "))).run().map(|()| String::new()).into()
}

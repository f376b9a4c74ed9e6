//! Runs the clock of `benches/`, which has its own help: `cargo xtask bench --help`.

use crate::{report::Report, workspace::Workspace};

/// Builds the program and hands it the arguments.
pub(crate) fn run(workspace: &Workspace, arguments: &[String]) -> Report {
    workspace
        .cargo("run --release --locked --quiet --package aether-benches --bin clock --")
        .arguments(arguments)
        .run()
        .map(|()| String::new())
        .into()
}

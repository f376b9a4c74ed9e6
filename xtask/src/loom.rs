//! Runs the loom models of aether-core: the waiting and waking, on the product's own source.

use crate::{report::Report, workspace::Workspace};

/// How many times a model may preempt a thread. Three finds the races that two threads can have with
/// each other, and ends in minutes; no bound at all does not.
const MAX_PREEMPTIONS: &str = "3";

/// Runs the models in release mode and in a target directory of their own, since `--cfg loom` changes
/// every crate it reaches.
pub(crate) fn run(workspace: &Workspace) -> Report {
    let (tally, ended) = workspace
        .cargo("test --release --locked -p aether-core --test loom")
        .variable("RUSTFLAGS", "--cfg loom")
        .variable("LOOM_MAX_PREEMPTIONS", MAX_PREEMPTIONS)
        .variable("CARGO_TARGET_DIR", workspace.target_for("loom"))
        .run_tests();
    ended.map(|()| format!("models: {tally}")).into()
}

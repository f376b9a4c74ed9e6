//! Runs the loom models: the waiting and waking of aether-core and the rounds of aether-host, on the
//! product's own source.

use crate::{report::Report, tally::Tally, workspace::Workspace};

/// How many times a model may preempt a thread. Three finds the races that two threads can have with
/// each other, and ends in minutes; no bound at all does not.
const MAX_PREEMPTIONS: &str = "3";

/// Whose models there are: in `tests/loom.rs` of each.
const PACKAGES: [&str; 2] = ["aether-core", "aether-host"];

/// Runs the models in release mode and in a target directory of their own, since `--cfg loom` changes
/// every crate it reaches.
pub(crate) fn run(workspace: &Workspace) -> Report {
    let mut all = Tally::default();
    for package in PACKAGES {
        let (tally, ended) = workspace
            .cargo(&format!("test --release --locked -p {package} --test loom"))
            .variable("RUSTFLAGS", "--cfg loom")
            .variable("LOOM_MAX_PREEMPTIONS", MAX_PREEMPTIONS)
            .variable("CARGO_TARGET_DIR", workspace.target_for("loom"))
            .run_tests();
        if let Err(why) = ended {
            return Report::failed(why);
        }
        all.add(&tally);
    }
    Report::passed(format!("models: {all}"))
}

//! The memory suite over every backend of this workspace that needs no device, and over broken ones,
//! each of which a case named here has to catch.
#![allow(clippy::unwrap_used, clippy::panic, clippy::expect_used)]

mod broken;
mod fixtures;
mod mutants;

use std::process::ExitCode;

use aether_conformance::memory;
use libtest_mimic::Trial;

fn main() -> ExitCode {
    let mut trials = Vec::new();
    for fixture in fixtures::all() {
        let kind = fixture.name;
        trials.extend(memory::trials(fixture).into_iter().map(|it| it.with_kind(kind)));
    }
    trials.extend(memory::cases().into_iter().map(|case| {
        Trial::ignorable_test(format!("memory::{}", case.name), move || fixtures::watched(case))
            .with_kind("watched host")
    }));
    trials.extend(mutants::trials());
    aether_conformance::run(trials)
}

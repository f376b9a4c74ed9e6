//! The transport suite over the transports of this workspace, and over broken ones, each of which a
//! case named here has to catch.
#![allow(clippy::unwrap_used, clippy::panic, clippy::expect_used)]

mod broken;
mod fixtures;

use std::process::ExitCode;

use aether_conformance::transport;

fn main() -> ExitCode {
    let mut trials = Vec::new();
    for fixture in fixtures::all() {
        let kind = fixture.name;
        trials.extend(transport::trials(fixture).into_iter().map(|it| it.with_kind(kind)));
    }
    trials.extend(broken::trials());
    aether_conformance::run(trials)
}

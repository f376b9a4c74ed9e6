//! The suite for collective drivers over the host, and over broken wrappers of it.

mod host;

use std::process::ExitCode;

use aether_conformance::collectives;

fn main() -> ExitCode {
    let arguments = libtest_mimic::Arguments::from_args();
    let trials = collectives::trials(host::OnTheHost);
    libtest_mimic::run(&arguments, trials).exit_code()
}

//! The collectives' suite over the host, over the host with no more than what a driver must have, and
//! over broken wrappers of it, each of which a case named here has to catch.
#![allow(clippy::unwrap_used, clippy::panic, clippy::expect_used)]

#[cfg(unix)]
mod apart;
mod board;
mod broken;
mod comm;
mod defect;
mod host;
mod layer;
mod mutants;
mod wrong;

use std::process::ExitCode;

use aether_conformance::collectives;

fn main() -> ExitCode {
    #[cfg(unix)]
    if let Some(code) = apart::worker() {
        return code;
    }
    let mut trials = Vec::new();
    let host = collectives::trials(host::OnTheHost);
    trials.extend(host.into_iter().map(|it| it.with_kind("host")));
    let bare = collectives::trials(mutants::Bare);
    trials.extend(bare.into_iter().map(|it| it.with_kind("bare host")));
    trials.extend(mutants::without_defect().into_iter().map(|it| it.with_kind("wrapped host")));
    #[cfg(unix)]
    trials.extend(apart::trials().into_iter().chain(apart::mutants()));
    trials.extend(mutants::trials());
    let code = aether_conformance::run(trials);
    #[cfg(unix)]
    aether_conformance::processes::dismiss();
    code
}

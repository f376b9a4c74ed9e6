//! Runs the tests that look for undefined behaviour under miri, which needs a nightly toolchain.

use std::path::Path;

use crate::{command::Command, report::Report, tally::Tally, workspace::Workspace};

/// What is run, in this order. Miri is some hundred times slower than the machine, so a test that
/// only costs time there says `#[cfg_attr(miri, ignore = "...")]` itself.
const RUNS: &[Run] = &[
    Run { package: "aether-core", arguments: "--lib --tests", flags: "" },
    Run { package: "aether-residency", arguments: "--lib", flags: "" },
    Run { package: "aether-collective", arguments: "--lib", flags: "" },
    Run { package: "aether-host", arguments: "--test driver", flags: "" },
    Run { package: "aether-host", arguments: "--test failures disagreement", flags: "" },
    Run { package: "aether-host", arguments: "--test properties threads_move", flags: "" },
];

/// How a machine gets what this chore needs.
const INSTALL: &str = "rustup toolchain install nightly --profile minimal -c miri -c rust-src";

/// One call of `cargo miri test`.
struct Run {
    package: &'static str,
    /// What to run of it, as arguments of `cargo test`.
    arguments: &'static str,
    /// The flags of miri itself.
    flags: &'static str,
}

impl Run {
    fn command(&self, workspace: &Workspace) -> Command {
        let Self { package, arguments, flags } = self;
        let arguments = format!("run nightly cargo miri test --locked -p {package} {arguments}");
        let command = Command::new("rustup", &arguments, &workspace.root)
            .variable("CARGO_TARGET_DIR", workspace.target_for("miri"));
        if flags.is_empty() { command } else { command.variable("MIRIFLAGS", *flags) }
    }
}

/// Runs the list, or says that there is no miri and how to get it.
pub(crate) fn run(workspace: &Workspace) -> Report {
    if let Err(why) = available(&workspace.root) {
        return Report::skipped(format!("{why}; get it by `{INSTALL}`"));
    }
    let mut all = Tally::default();
    for run in RUNS {
        let (tally, ended) = run.command(workspace).run_tests();
        if let Err(why) = ended {
            return Report::failed(why);
        }
        all.add(&tally);
    }
    Report::passed(format!("under miri: {all}"))
}

/// Whether miri can run here, by asking it, and whether it has the sources that it builds `std` from.
fn available(root: &Path) -> Result<(), String> {
    Command::new("rustup", "run nightly cargo miri --version", root)
        .output()
        .map_err(|_| "no miri in a nightly toolchain of rustup".to_owned())?;
    let sysroot = Command::new("rustup", "run nightly rustc --print sysroot", root).output()?;
    let std = Path::new(sysroot.trim()).join("lib/rustlib/src/rust/library/std");
    if std.is_dir() { Ok(()) } else { Err("no rust-src in the nightly toolchain".to_owned()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;

    #[test]
    fn a_run_names_its_package_flags_and_a_target_directory_of_its_own() {
        let workspace = Workspace {
            root: "/repo".into(),
            target: "/repo/target".into(),
            metadata: Value::Null,
        };
        let run = Run { package: "aether-core", arguments: "--lib view", flags: "-Za -Zb" };
        assert_eq!(
            run.command(&workspace).to_string(),
            "CARGO_TARGET_DIR=target/miri MIRIFLAGS='-Za -Zb' \
             rustup run nightly cargo miri test --locked -p aether-core --lib view"
        );
    }
}

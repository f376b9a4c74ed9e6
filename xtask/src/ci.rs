//! The whole check of the workspace: its steps in order, and what is said of them at the end.

use std::{
    io::{self, Write},
    time::{Duration, Instant},
};

use crate::{
    deps, hygiene, loom, miri,
    report::{Report, Verdict},
    tally::Tally,
    workspace::Workspace,
};

/// The steps, those that fail soonest first.
const STEPS: &[Step] = &[
    Step { name: "fmt", run: fmt },
    Step { name: "hygiene", run: hygiene::run },
    Step { name: "deps", run: deps::run },
    Step { name: "clippy", run: clippy },
    Step { name: "docs", run: docs },
    Step { name: "test", run: test },
    Step { name: "loom", run: loom::run },
    Step { name: "miri", run: miri::run },
];

/// One check.
#[derive(Clone, Copy)]
pub(crate) struct Step {
    name: &'static str,
    run: fn(&Workspace) -> Report,
}

/// A step that has ended.
struct Ran {
    name: &'static str,
    took: Duration,
    report: Report,
}

/// The names that a step can be asked for by.
pub(crate) fn names() -> Vec<&'static str> {
    STEPS.iter().map(|step| step.name).collect()
}

/// The steps named in `only`, or all where it is empty.
pub(crate) fn chosen(only: &[String]) -> Vec<Step> {
    let wanted = |step: &&Step| only.is_empty() || only.iter().any(|name| name == step.name);
    STEPS.iter().filter(wanted).copied().collect()
}

/// Runs `steps` up to the first that fails, and tells of them on `out`. The sum of the tests is the
/// last line. Returns whether none failed.
pub(crate) fn run(steps: &[Step], workspace: &Workspace, out: &mut impl Write) -> bool {
    let mut ran = Vec::new();
    for step in steps {
        // Where nobody reads what is said, the exit status still tells.
        let _ = writeln!(out, "\n== {} ==", step.name);
        let start = Instant::now();
        let report = (step.run)(workspace);
        let step = Ran { name: step.name, took: start.elapsed(), report };
        let _ = writeln!(out, "== {}: {} ==", step.name, step.in_words());
        let failed = step.failed();
        ran.push(step);
        if failed {
            break;
        }
    }
    let _ = conclude(steps, &ran, out);
    !ran.iter().any(Ran::failed)
}

impl Ran {
    fn failed(&self) -> bool {
        matches!(self.report.verdict, Verdict::Failed(_))
    }

    fn outcome(&self) -> &'static str {
        match self.report.verdict {
            Verdict::Passed(_) => "passed",
            Verdict::Skipped(_) => "skipped",
            Verdict::Failed(_) => "FAILED",
        }
    }

    fn in_words(&self) -> String {
        format!("{} in {:.1} s", self.outcome(), self.took.as_secs_f64())
    }
}

/// The table, what was skipped or failed in words, and the sum of the tests.
fn conclude(steps: &[Step], ran: &[Ran], out: &mut impl Write) -> io::Result<()> {
    writeln!(out, "\n{:<10} {:>8}", "step", "seconds")?;
    for step in ran {
        let (seconds, outcome) = (step.took.as_secs_f64(), step.outcome());
        let note = match &step.report.verdict {
            Verdict::Passed(note) if !note.is_empty() => format!(" ({note})"),
            _ => String::new(),
        };
        writeln!(out, "{:<10} {seconds:>8.1}  {outcome}{note}", step.name)?;
    }
    for step in &steps[ran.len()..] {
        writeln!(out, "{:<10} {:>8}  not reached", step.name, "-")?;
    }
    let total: Duration = ran.iter().map(|step| step.took).sum();
    writeln!(out, "{:<10} {:>8.1}", "all", total.as_secs_f64())?;

    let tests = || ran.iter().filter_map(|step| step.report.tests.as_ref());
    for step in ran {
        if let Verdict::Skipped(why) = &step.report.verdict {
            writeln!(out, "skipped: {}: {why}", step.name)?;
        }
    }
    for skipped in tests().flat_map(Tally::skipped_in_words) {
        writeln!(out, "skipped: {skipped}")?;
    }
    for step in ran {
        if let Verdict::Failed(why) = &step.report.verdict {
            writeln!(out, "{} failed: {why}", step.name)?;
            writeln!(out, "run it again by: cargo xtask ci {}", step.name)?;
        }
    }
    tests().try_for_each(|tally| writeln!(out, "{tally}"))
}

fn fmt(workspace: &Workspace) -> Report {
    workspace.cargo("fmt --all --check").run().map(|()| String::new()).into()
}

fn clippy(workspace: &Workspace) -> Report {
    let command = workspace.cargo("clippy --workspace --all-targets --locked -- -D warnings");
    command.run().map(|()| String::new()).into()
}

fn docs(workspace: &Workspace) -> Report {
    let command = workspace.cargo("doc --workspace --no-deps --locked");
    command.variable("RUSTDOCFLAGS", "-D warnings").run().map(|()| String::new()).into()
}

/// Every test of the workspace; one that fails does not keep the others from being counted.
fn test(workspace: &Workspace) -> Report {
    let (tally, ended) = workspace.cargo("test --workspace --locked --no-fail-fast").run_tests();
    let report = Report::from(ended.map(|()| String::new()));
    Report { tests: Some(tally), ..report }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;

    fn passes(_: &Workspace) -> Report {
        Report::passed("3 files")
    }

    fn fails(_: &Workspace) -> Report {
        Report::failed("`cargo fmt` ended with exit status: 1")
    }

    fn skips(_: &Workspace) -> Report {
        Report::skipped("no miri here; get it by `rustup`")
    }

    fn tests(failed: usize) -> Report {
        let mut tally = Tally::default();
        tally.line("test far ... ignored, no GPU");
        tally.line(&format!("test result: ok. 41 passed; {failed} failed; 1 ignored; 0 measured"));
        Report { tests: Some(tally), ..Report::passed("") }
    }

    fn tests_pass(_: &Workspace) -> Report {
        tests(0)
    }

    fn tests_fail(_: &Workspace) -> Report {
        Report { verdict: Verdict::Failed("2 tests failed".to_owned()), ..tests(2) }
    }

    fn said_by(steps: &[Step]) -> (bool, String) {
        let workspace =
            Workspace { root: ".".into(), target: "target".into(), metadata: Value::Null };
        let mut out = Vec::new();
        let passed = run(steps, &workspace, &mut out);
        (passed, String::from_utf8(out).unwrap())
    }

    #[test]
    fn the_sum_of_the_tests_is_the_last_line_even_where_steps_follow_the_tests() {
        let (passed, said) = said_by(&[
            Step { name: "fmt", run: passes },
            Step { name: "test", run: tests_pass },
            Step { name: "miri", run: skips },
        ]);
        assert!(passed);
        assert!(said.ends_with("\n41 passed, 0 failed, 1 skipped\n"), "{said}");
        assert!(said.contains("fmt             0.0  passed (3 files)\n"), "{said}");
        assert!(said.contains("miri            0.0  skipped\n"), "{said}");
        assert!(said.contains("skipped: miri: no miri here; get it by `rustup`\n"), "{said}");
        assert!(said.contains("skipped: 1 test: no GPU: far\n"), "{said}");
        assert!(said.contains("== fmt ==\n== fmt: passed in 0.0 s ==\n"), "{said}");
    }

    #[test]
    fn the_first_failure_ends_the_run_with_its_reason_and_how_to_repeat_it() {
        let (passed, said) =
            said_by(&[Step { name: "fmt", run: fails }, Step { name: "test", run: tests_pass }]);
        assert!(!passed);
        assert!(!said.contains("== test"), "{said}");
        assert!(said.contains("fmt             0.0  FAILED\n"), "{said}");
        assert!(said.contains("test              -  not reached\n"), "{said}");
        assert!(
            said.ends_with(
                "fmt failed: `cargo fmt` ended with exit status: 1\n\
                 run it again by: cargo xtask ci fmt\n"
            ),
            "{said}"
        );
    }

    #[test]
    fn failed_tests_are_told_and_counted_in_the_last_line() {
        let (passed, said) = said_by(&[Step { name: "test", run: tests_fail }]);
        assert!(!passed);
        assert!(said.contains("test failed: 2 tests failed\n"), "{said}");
        assert!(said.ends_with("\n41 passed, 2 failed, 1 skipped\n"), "{said}");
    }

    #[test]
    fn steps_are_chosen_by_name_and_keep_their_order() {
        let names_of = |only: &[&str]| {
            let only: Vec<_> = only.iter().map(|name| (*name).to_owned()).collect();
            chosen(&only).iter().map(|step| step.name).collect::<Vec<_>>()
        };
        assert_eq!(names_of(&["test", "fmt"]), ["fmt", "test"]);
        assert_eq!(names_of(&[]), names());
    }
}

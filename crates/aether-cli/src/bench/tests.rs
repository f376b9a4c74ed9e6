#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by a panic")]

use clap::Parser;

use super::driver::Outcome;
use super::plain::Plain;
use super::*;
use crate::cli::{Cli, Command};

fn args(words: &str) -> BenchArgs {
    match Cli::parse_from(["aether", "bench"].into_iter().chain(words.split(' '))).command {
        Some(Command::Bench(args)) => args,
        other => panic!("{other:?}"),
    }
}

/// Finds a wrong element at the sizes from `from` on.
struct Spoiled {
    from: usize,
    plans: Vec<(u32, u32, u32)>,
}

impl Driver for Spoiled {
    fn run(&mut self, case: &Case, plan: Plan) -> Result<Outcome> {
        self.plans.push((plan.iterations, plan.warmup, plan.checks));
        let mut outcome = Plain.run(case, plan)?;
        if case.layout.bytes >= self.from {
            outcome.wrong = outcome.wrong.map(|it| it + 3);
        }
        Ok(outcome)
    }
}

#[test]
fn wrong_elements_fail_the_run_after_every_row_is_printed() {
    let mut driver = Spoiled { from: 128, plans: Vec::new() };
    let args = args("memcpy -b 64 -e 256 -f 2 -n 7 -w 2 -c 1 --format csv");
    let mut out = Vec::new();
    let failure = sweep(&mut driver, &args, &mut out).unwrap_err();
    assert_eq!(failure.to_string(), "bench: 6 elements are wrong");
    let text = String::from_utf8(out).unwrap();
    let wrong: Vec<&str> = text.lines().skip(1).filter_map(|it| it.split(',').nth(6)).collect();
    assert_eq!(wrong, ["0", "3", "3"]);
    assert_eq!(driver.plans, [(7, 2, 1); 3]);
}

#[test]
fn a_result_of_another_rank_run_or_root_is_wrong() {
    for words in
        ["all", "all -d u8 -o prod", "all -d f8e5m2", "all -d i64 -o min", "all_gather -d bool"]
    {
        let args = args(words);
        for op in args.op.parts() {
            let case = Case::new(*op, &args, 8192).unwrap();
            let expected = |case: &Case, run, rank| {
                let mut out = vec![0; case.layout.destination];
                case.fill_expected(run, rank, &mut out);
                out
            };
            let same_on_all =
                matches!(op, Op::AllGather | Op::AllReduce | Op::Broadcast | Op::Replicate);
            assert_eq!(expected(&case, 1, 0) == expected(&case, 1, 1), same_on_all, "{op}");
            assert_ne!(expected(&case, 1, 0), expected(&case, 2, 0), "{op}");
            let other_root = Case { root: 1, ..case };
            let rooted = matches!(op, Op::Broadcast | Op::Replicate | Op::Scatter);
            assert_eq!(expected(&case, 1, 0) != expected(&other_root, 1, 0), rooted, "{op}");
        }
    }
}

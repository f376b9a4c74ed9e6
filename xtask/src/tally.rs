//! Counts tests from what libtest and libtest-mimic print while they run.
//!
//! A program announces itself (`running 3 tests`) and closes (`test result: ok. 3 passed; ...`). One that
//! announces and never closes has crashed: its tests count as failed. A test may start another test
//! program that writes to the same output; what that one counts is part of the test and not added.

use std::{collections::BTreeMap, fmt};

use crate::report::count;

/// How many names a line of skipped tests gives before it only counts.
const NAMES_SHOWN: usize = 3;

/// The sum over all test programs and documentation tests of a run.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Tally {
    counts: Counts,
    /// The programs that announced themselves and have not closed, the outermost first.
    open: Vec<Open>,
    /// How many programs ended without a closing line.
    crashed: usize,
    /// The skipped tests by reason.
    reasons: BTreeMap<String, Vec<String>>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Counts {
    passed: usize,
    failed: usize,
    skipped: usize,
}

/// A test program at work.
#[derive(Debug, PartialEq)]
struct Open {
    announced: usize,
    /// What closed since: a part of this program if it closes too, and the programs that came after it
    /// if it crashed.
    since: Counts,
}

impl Tally {
    /// Reads one line of output, with or without its end.
    pub(crate) fn line(&mut self, line: &str) {
        let line = without_escapes(line);
        let line = line.trim_end();
        if let Some(closing) = line.strip_prefix("test result: ") {
            if let Some((counts, all)) = closing_counts(closing) {
                self.program_closed(counts, all);
            }
        } else if let Some(announced) = announcement(line) {
            self.open.push(Open { announced, since: Counts::default() });
        } else if let Some((name, reason)) = skipped(line) {
            self.reasons.entry(reason.to_owned()).or_default().push(name.to_owned());
        }
    }

    /// Says that no more output comes.
    pub(crate) fn close(&mut self) {
        for open in self.open.drain(..) {
            self.counts.add(open.since);
            self.counts.failed += open.announced;
            self.crashed += 1;
        }
    }

    /// The line closes the innermost program that announced as many tests. What that one started is
    /// closed with it.
    fn program_closed(&mut self, counts: Counts, all: usize) {
        let at = self.open.iter().rposition(|open| open.announced == all);
        self.open.truncate(at.unwrap_or_else(|| self.open.len().saturating_sub(1)));
        self.open.last_mut().map_or(&mut self.counts, |open| &mut open.since).add(counts);
    }

    /// Adds the counts of another run.
    pub(crate) fn add(&mut self, other: &Self) {
        self.counts.add(other.counts);
    }

    /// An error where a test failed, a binary crashed, or nothing was run at all.
    pub(crate) fn judge(&self) -> Result<(), String> {
        let Counts { passed, failed, .. } = self.counts;
        match (passed, failed, self.crashed) {
            (_, _, 1..) => Err(format!(
                "{} ended before the closing line; the tests count as failed",
                count(self.crashed, "test program")
            )),
            (_, 1.., _) => Err(format!("{} failed", count(failed, "test"))),
            (0, 0, 0) => Err("no test was run".to_owned()),
            _ => Ok(()),
        }
    }

    /// What was skipped, one line a reason.
    pub(crate) fn skipped_in_words(&self) -> Vec<String> {
        let told = self.reasons.iter().map(|(reason, names)| {
            let reason = if reason.is_empty() { "no reason given" } else { reason };
            let shown = names.iter().take(NAMES_SHOWN).map(String::as_str).collect::<Vec<_>>();
            let more = match names.len() - shown.len() {
                0 => String::new(),
                more => format!(" and {more} more"),
            };
            format!("{}: {reason}: {}{more}", count(names.len(), "test"), shown.join(", "))
        });
        told.collect()
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Counts { passed, failed, skipped } = self.counts;
        write!(f, "{passed} passed, {failed} failed, {skipped} skipped")
    }
}

impl Counts {
    fn add(&mut self, other: Self) {
        self.passed += other.passed;
        self.failed += other.failed;
        self.skipped += other.skipped;
    }
}

/// The counts of `ok. 5 passed; 0 failed; 1 ignored; 0 measured; ...`, and how many tests that makes.
fn closing_counts(closing: &str) -> Option<(Counts, usize)> {
    let (_, counted) = closing.split_once(". ")?;
    let mut parts = counted.split("; ");
    let mut next = |unit| {
        let (count, of) = parts.next()?.split_once(' ')?;
        if of == unit { count.parse::<usize>().ok() } else { None }
    };
    let counts =
        Counts { passed: next("passed")?, failed: next("failed")?, skipped: next("ignored")? };
    let all = counts.passed + counts.failed + counts.skipped + next("measured")?;
    Some((counts, all))
}

/// The count of `running 5 tests`.
fn announcement(line: &str) -> Option<usize> {
    let counted = line.strip_prefix("running ")?;
    counted.strip_suffix(" tests").or_else(|| counted.strip_suffix(" test"))?.parse().ok()
}

/// Name and reason of `test NAME ... ignored, REASON` (libtest) or `test NAME ... ignored (REASON)`
/// (libtest-mimic).
fn skipped(line: &str) -> Option<(&str, &str)> {
    let (name, outcome) = line.strip_prefix("test ")?.rsplit_once(" ... ignored")?;
    let reason = match outcome {
        "" => "",
        _ => outcome
            .strip_prefix(", ")
            .or_else(|| outcome.strip_prefix(" (").and_then(|rest| rest.strip_suffix(')')))?,
    };
    Some((name.trim_end(), reason))
}

/// `line` without the sequences that colour a terminal.
fn without_escapes(line: &str) -> String {
    let mut plain = String::with_capacity(line.len());
    let mut rest = line;
    while let Some((before, after)) = rest.split_once("\x1b[") {
        plain.push_str(before);
        let end = after.find(|c: char| c.is_ascii_alphabetic());
        rest = end.map_or("", |end| &after[end + 1..]);
    }
    plain.push_str(rest);
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tally_of(output: &str) -> Tally {
        let mut tally = Tally::default();
        output.lines().for_each(|line| tally.line(line));
        tally.close();
        tally
    }

    #[test]
    fn the_sum_goes_over_binaries_mimic_suites_and_documentation_tests() {
        let tally = tally_of(
            "
running 3 tests
test a ... ok
test b ... ignored
test c ... ok

test result: ok. 2 passed; 0 failed; 1 ignored; 0 measured; 4 filtered out; finished in 0.01s

running 30 tests
test [transport] routes    ... ok
test [transport] peer copy ... ignored (no GPU)

test result: ok. 10 passed; 0 failed; 20 ignored; 0 measured; 0 filtered out; finished in 0.00s

   Doc-tests aether

running 600 tests
test src/lib.rs - Chunk (line 3) ... FAILED

test result: FAILED. 100 passed; 300 failed; 200 ignored; 0 measured; 0 filtered out; finished in 1s
",
        );
        assert_eq!(tally.to_string(), "112 passed, 300 failed, 221 skipped");
    }

    #[test]
    fn colours_and_line_ends_hide_no_line() {
        let mut tally = Tally::default();
        tally.line("running 7 tests\r\n");
        tally.line(
            "test result: \x1b[1;32mok\x1b[0m. 7 passed; 0 failed; 0 ignored; 0 measured\r\n",
        );
        tally.close();
        assert_eq!(tally.to_string(), "7 passed, 0 failed, 0 skipped");
        assert_eq!(tally.judge(), Ok(()));
        tally.line("test far ... \x1b[33mignored (no GPU)\x1b[0m\n");
        assert_eq!(tally.skipped_in_words(), ["1 test: no GPU: far"]);
        assert_eq!(without_escapes("a \x1b["), "a ");
    }

    #[test]
    fn the_tests_of_a_binary_that_never_closes_count_as_failed() {
        let crashed_first = "running 4 tests\nrunning 2 tests\n\
            test result: ok. 2 passed; 0 failed; 0 ignored; 0 measured";
        let crashed_last = "running 2 tests\n\
            test result: ok. 2 passed; 0 failed; 0 ignored; 0 measured\nrunning 4 tests";
        let as_many = crashed_first.replace("running 4 tests", "running 2 tests");
        for (output, failed) in [(crashed_first, 4), (crashed_last, 4), (&as_many, 2)] {
            let tally = tally_of(output);
            assert_eq!(tally.to_string(), format!("2 passed, {failed} failed, 0 skipped"));
            assert!(tally.judge().unwrap_err().contains("1 test program ended before"));
        }
    }

    #[test]
    fn a_crashed_binary_that_announced_no_test_is_a_failure_too() {
        let output = "running 0 tests\nrunning 1 test\n\
            test result: ok. 1 passed; 0 failed; 0 ignored; 0 measured";
        assert!(tally_of(output).judge().is_err());
    }

    #[test]
    fn a_test_program_started_by_a_test_is_not_counted_whether_it_closes_or_not() {
        let closes = "running 3 tests\nrunning 1 test\n\
            test result: ok. 1 passed; 0 failed; 0 ignored; 0 measured\n\
            test result: ok. 3 passed; 0 failed; 0 ignored; 0 measured";
        let crashes = "running 3 tests\nrunning 1 test\n\
            test result: ok. 3 passed; 0 failed; 0 ignored; 0 measured";
        for output in [closes, crashes] {
            let tally = tally_of(output);
            assert_eq!(tally.to_string(), "3 passed, 0 failed, 0 skipped", "{output}");
            assert_eq!(tally.judge(), Ok(()));
        }
    }

    #[test]
    fn measured_benches_are_no_tests_and_still_close_their_program() {
        let tally = tally_of(
            "running 5 tests\nrunning 2 tests\n\
             test result: ok. 2 passed; 0 failed; 0 ignored; 3 measured; 0 filtered out",
        );
        assert_eq!(tally.to_string(), "2 passed, 0 failed, 0 skipped");
        assert_eq!(tally.judge(), Ok(()));
    }

    #[test]
    fn sums_of_runs_add_up() {
        let mut all = Tally::default();
        all.add(&tally_of("test result: ok. 2 passed; 30 failed; 400 ignored; 0 measured"));
        all.add(&tally_of("test result: ok. 1 passed; 10 failed; 100 ignored; 0 measured"));
        assert_eq!(all.to_string(), "3 passed, 40 failed, 500 skipped");
    }

    #[test]
    fn nothing_run_is_a_failure_even_where_tests_were_skipped_or_filtered_out() {
        assert_eq!(tally_of("").judge(), Err("no test was run".to_owned()));
        let skipped = "running 2 tests\n\
            test result: ok. 0 passed; 0 failed; 2 ignored; 0 measured; 9 filtered out";
        assert_eq!(tally_of(skipped).judge(), Err("no test was run".to_owned()));
    }

    #[test]
    fn a_failed_test_is_a_failure() {
        let output = "running 2 tests\n\
            test result: FAILED. 1 passed; 1 failed; 0 ignored; 0 measured; 0 filtered out";
        assert_eq!(tally_of(output).judge(), Err("1 test failed".to_owned()));
    }

    #[test]
    fn lines_that_only_look_like_a_closing_line_change_nothing() {
        for line in [
            "    test result: ok. 5 passed; 0 failed; 0 ignored; 0 measured",
            "test result: none of your business",
            "test result: ok. five passed; 0 failed; 0 ignored; 0 measured",
            "test result: ok. 5 failed; 0 passed; 0 ignored; 0 measured",
            "running away with 3 tests",
        ] {
            assert_eq!(tally_of(line), Tally::default(), "{line}");
        }
    }

    #[test]
    fn skipped_tests_are_told_by_reason_with_the_first_names() {
        let tally = tally_of(
            "test gpu::a ... ignored, no GPU here\n\
             test gpu::b ... ignored, no GPU here\n\
             test [suite] gpu::c      ... ignored (no GPU here)\n\
             test gpu::d ... ignored, no GPU here\n\
             test gpu::e ... ignored, no GPU here\n\
             test plain ... ignored\n\
             test fine ... ok",
        );
        assert_eq!(
            tally.skipped_in_words(),
            [
                "1 test: no reason given: plain",
                "5 tests: no GPU here: gpu::a, gpu::b, [suite] gpu::c and 2 more"
            ]
        );
    }
}

//! The clock around the operations of one rank.

use std::time::{Duration, Instant};

use aether::Result;

use super::driver::{Outcome, Plan};

/// What one rank measured.
#[derive(Debug, Default)]
pub(super) struct Times {
    /// For every round, what all its iterations took together.
    rounds: Vec<Duration>,
    /// What each iteration of one more round took.
    each: Vec<Duration>,
}

/// Times `operation`: untimed first, then the rounds, each of which begins when `meet` returns.
///
/// As in nccl-tests, the clock is read before and after a whole round, so that operations shorter than
/// a look at the clock are timed right. Single operations are timed in a round of their own.
pub(super) fn measure(
    plan: Plan,
    mut meet: impl FnMut() -> Result<()>,
    mut operation: impl FnMut() -> Result<()>,
) -> Result<Times> {
    for _ in 0..plan.warmup {
        operation()?;
    }
    let mut times = Times::default();
    for _ in 0..plan.rounds {
        meet()?;
        let start = Instant::now();
        for _ in 0..plan.iterations {
            operation()?;
        }
        times.rounds.push(start.elapsed());
    }
    meet()?;
    for _ in 0..plan.iterations {
        let start = Instant::now();
        operation()?;
        times.each.push(start.elapsed());
    }
    Ok(times)
}

/// What all ranks measured, as one.
pub(super) fn outcome(plan: Plan, ranks: &[Times], wrong: Option<u64>) -> Outcome {
    let round = |at: usize| ranks.iter().filter_map(|it| it.rounds.get(at).copied()).collect();
    let slowest = |at: usize| ranks.iter().filter_map(|it| it.each.get(at)).max().copied();
    Outcome {
        rounds: (0..plan.rounds).map(round).collect(),
        iterations: plan.iterations,
        each: (0..plan.iterations as usize).filter_map(slowest).collect(),
        wrong,
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by a panic")]
mod tests {
    use std::cell::RefCell;

    use aether::{Error, ErrorKind};

    use super::*;

    const PLAN: Plan = Plan { rounds: 2, iterations: 3, warmup: 1, checks: 0 };

    #[test]
    fn ranks_meet_before_every_round_and_never_within_one() {
        let log = RefCell::new(String::new());
        let note = |it| {
            log.borrow_mut().push(it);
            Ok(())
        };
        let times = measure(PLAN, || note('|'), || note('.')).unwrap();
        assert_eq!(log.into_inner(), ".|...|...|...");
        assert_eq!((times.rounds.len(), times.each.len()), (2, 3));
    }

    #[test]
    fn a_failure_ends_the_measurement() {
        let mut left = 5;
        let failing = || {
            left -= 1;
            if left > 0 { Ok(()) } else { Err(Error::new(ErrorKind::Backend, "copy", "no")) }
        };
        assert_eq!(measure(PLAN, || Ok(()), failing).unwrap_err().kind(), ErrorKind::Backend);
        assert_eq!(left, 0);
    }

    #[test]
    fn a_single_operation_counts_on_the_rank_where_it_took_longest() {
        let micros = |values: &[u64]| values.iter().map(|it| Duration::from_micros(*it)).collect();
        let rank = |rounds, each| Times { rounds: micros(rounds), each: micros(each) };
        let ranks = [rank(&[30, 60], &[1, 9, 3]), rank(&[90, 15], &[2, 4, 8])];
        let outcome = outcome(PLAN, &ranks, Some(0));
        assert_eq!(outcome.each, micros(&[2, 9, 8]));
        assert_eq!(outcome.time(), Duration::from_micros(20));
    }
}

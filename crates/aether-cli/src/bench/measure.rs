//! The clock around the operations of one rank.

use std::time::{Duration, Instant};

use aether::Result;
use serde::{Deserialize, Serialize};

use super::driver::{Outcome, Plan};

/// What one rank measured.
#[derive(Debug, Default, Deserialize, Serialize)]
pub(super) struct Times {
    /// For every round, what all its iterations took together.
    rounds: Vec<Duration>,
    /// What each iteration of one more round took.
    each: Vec<Duration>,
}

/// Times `operation` on `state`: untimed first, then the rounds, each of which begins when `meet`
/// returns.
///
/// As in nccl-tests, the clock is read before and after a whole round, so that operations shorter than
/// a look at the clock are timed right. Single operations are timed in a round of their own.
pub(super) fn measure<S>(
    plan: Plan,
    state: &mut S,
    mut meet: impl FnMut(&mut S) -> Result<()>,
    mut operation: impl FnMut(&mut S) -> Result<()>,
) -> Result<Times> {
    for _ in 0..plan.warmup {
        operation(state)?;
    }
    let mut times = Times::default();
    for _ in 0..plan.rounds {
        meet(state)?;
        let start = Instant::now();
        for _ in 0..plan.iterations {
            operation(state)?;
        }
        times.rounds.push(start.elapsed());
    }
    meet(state)?;
    for _ in 0..plan.iterations {
        let start = Instant::now();
        operation(state)?;
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
    use aether::{Error, ErrorKind};

    use super::*;

    const PLAN: Plan = Plan { rounds: 2, iterations: 3, warmup: 1, checks: 0 };

    #[test]
    fn ranks_meet_before_every_round_and_never_within_one() {
        let mut log = String::new();
        let note = |log: &mut String, it| {
            log.push(it);
            Ok(())
        };
        let times = measure(PLAN, &mut log, |log| note(log, '|'), |log| note(log, '.')).unwrap();
        assert_eq!(log, ".|...|...|...");
        assert_eq!((times.rounds.len(), times.each.len()), (2, 3));
    }

    #[test]
    fn a_failure_ends_the_measurement() {
        let mut left = 5;
        let failing = |left: &mut i32| {
            *left -= 1;
            if *left > 0 { Ok(()) } else { Err(Error::new(ErrorKind::Backend, "copy", "no")) }
        };
        let failed = measure(PLAN, &mut left, |_| Ok(()), failing).unwrap_err();
        assert_eq!(failed.kind(), ErrorKind::Backend);
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

//! Who carries an operation out, and what came of it.

use std::time::Duration;

use aether::Device;

use super::case::Case;
use super::processes::Processes;
use super::threads::Threads;
use crate::cli::{BenchArgs, DriverName, Mode};
use crate::failure::{Failure, Result};

/// How often the timed operations are repeated; the best round counts.
const ROUNDS: usize = 5;

/// The ranks of one benchmark.
pub(super) trait Driver {
    /// Carries the case out: untimed first, then the rounds, then the checks, each of which has new
    /// data everywhere and compares every destination with [`Case::fill_expected`].
    fn run(&mut self, case: &Case, plan: Plan) -> Result<Outcome>;
}

/// How often.
#[derive(Clone, Copy, Debug)]
pub(super) struct Plan {
    pub(super) rounds: usize,
    pub(super) iterations: u32,
    pub(super) warmup: u32,
    pub(super) checks: u32,
}

impl Plan {
    /// What the arguments ask for.
    pub(super) fn of(args: &BenchArgs) -> Self {
        let BenchArgs { iterations, warmup, checks, .. } = *args;
        Self { rounds: ROUNDS, iterations, warmup, checks }
    }
}

/// What was measured.
#[derive(Clone, Debug, Default)]
pub(super) struct Outcome {
    /// For every round, what all its iterations took on every rank.
    pub(super) rounds: Vec<Vec<Duration>>,
    pub(super) iterations: u32,
    /// What single operations took, on the rank where each took longest.
    pub(super) each: Vec<Duration>,
    /// Elements that were not what they should be, of all ranks and checks; absent if none was
    /// checked.
    pub(super) wrong: Option<u64>,
}

impl Outcome {
    /// The slowest rank's time per operation, in the best of the rounds.
    pub(super) fn time(&self) -> Duration {
        let slowest = self.rounds.iter().map(|it| it.iter().max().copied().unwrap_or_default());
        slowest.min().unwrap_or_default() / self.iterations.max(1)
    }

    /// The time that so many percent of the single operations stay within (nearest rank).
    pub(super) fn percentile(&self, percent: usize) -> Duration {
        let mut sorted = self.each.clone();
        sorted.sort_unstable();
        let place = (sorted.len() * percent).div_ceil(100).saturating_sub(1);
        sorted.get(place).copied().unwrap_or_default()
    }
}

/// The ranks that the arguments ask for.
pub(super) fn open(args: &BenchArgs) -> Result<Box<dyn Driver>> {
    match (args.driver, args.mode) {
        (DriverName::Host, Mode::Threads) => {
            let ranks = u32::try_from(args.ranks)
                .map_err(|_| Failure::new(format!("bench: {} ranks are too many", args.ranks)))?;
            Ok(Box::new(Threads::new(Device::cpus(ranks), args.memory)))
        }
        (DriverName::Host, Mode::Processes) => Ok(Box::new(Processes::start(args)?)),
        (DriverName::Mpi, _) => Err(Failure::new("bench: this build has no MPI backend")),
        (DriverName::Nccl, _) => Err(Failure::new("bench: this build has no NCCL backend")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn micros(values: &[u64]) -> Vec<Duration> {
        values.iter().map(|it| Duration::from_micros(*it)).collect()
    }

    #[test]
    fn the_time_is_that_of_the_slowest_rank_in_the_best_round() {
        let rounds = vec![micros(&[90, 10]), micros(&[20, 40]), micros(&[50, 50])];
        let outcome = Outcome { rounds, iterations: 4, ..Outcome::default() };
        assert_eq!(outcome.time(), Duration::from_micros(10));
        assert_eq!(Outcome::default().time(), Duration::ZERO);
    }

    #[test]
    fn percentiles_are_those_of_the_nearest_rank() {
        let each = micros(&(1..=200).rev().collect::<Vec<_>>());
        let outcome = Outcome { each, ..Outcome::default() };
        assert_eq!(outcome.percentile(50), Duration::from_micros(100));
        assert_eq!(outcome.percentile(99), Duration::from_micros(198));
        let one = Outcome { each: micros(&[7]), ..Outcome::default() };
        assert_eq!(one.percentile(50), one.percentile(99));
        assert_eq!(Outcome::default().percentile(99), Duration::ZERO);
    }
}

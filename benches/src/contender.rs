//! Whoever takes a turn at a cell.

use std::time::{Duration, Instant};

use crate::cell::Cell;
use crate::failure::{Failure, Result};

/// One way to carry operations out.
pub trait Contender {
    /// The name in tables.
    fn name(&self) -> &str;

    /// Whether it can carry out the cell at all.
    fn takes(&self, cell: &Cell) -> bool;

    /// Carries the operation out: untimed first, then timed.
    ///
    /// # Errors
    /// Whatever kept it from ending.
    fn sample(&mut self, cell: &Cell, warmup: u32, iterations: u32) -> Result<Took>;
}

/// What one operation took.
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd)]
pub struct Took(f64);

impl Took {
    /// So many microseconds.
    pub fn micros(micros: f64) -> Self {
        Self(micros)
    }

    /// In microseconds, to a tenth of a nanosecond, which is finer than any clock.
    pub fn rounded(self) -> f64 {
        (self.0 * 1e4).round() / 1e4
    }

    /// The share of one operation in the time from when the first began until the last ended.
    ///
    /// # Errors
    /// If nobody did anything.
    pub fn between(spans: &[(Instant, Instant)], iterations: u32) -> Result<Self> {
        let begun = spans.iter().map(|(begun, _)| *begun).min();
        let ended = spans.iter().map(|(_, ended)| *ended).max();
        match (begun, ended) {
            (Some(begun), Some(ended)) if iterations > 0 => {
                let all: Duration = ended.saturating_duration_since(begun);
                Ok(Self(all.as_secs_f64() * 1e6 / f64::from(iterations)))
            }
            _ => Err(Failure::new("nothing was carried out, so nothing was timed")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_runs_from_the_first_to_begin_to_the_last_to_end() {
        let start = Instant::now();
        let at = |micros| start + Duration::from_micros(micros);
        let took = Took::between(&[(at(5), at(50)), (at(10), at(85))], 4).unwrap();
        assert_eq!(took.rounded(), 20.0);
        assert!(Took::between(&[], 4).is_err());
        assert!(Took::between(&[(at(0), at(1))], 0).is_err());
    }
}

//! The end of a collective that goes on after its call returned.

use std::fmt;
use std::time::{Duration, Instant};

use aether_core::{Completion, Result};
use smallvec::SmallVec;

/// Work of one or several members that goes on after the call returned.
///
/// Dropping it neither blocks nor cancels: the memory stays until the work has ended, and whoever
/// reads it waits and is told how it ended.
#[must_use = "the outcome is told here; otherwise only by the memory"]
#[derive(Clone)]
pub struct Work {
    parts: SmallVec<[Completion; 4]>,
}

impl Work {
    pub(crate) fn new(parts: SmallVec<[Completion; 4]>) -> Self {
        Self { parts }
    }

    /// Waits for the end, and runs what is ready meanwhile.
    ///
    /// # Errors
    /// The failure of the first member, by rank, that failed.
    pub fn wait(&self) -> Result<()> {
        // All of them end before the first failure is told: nobody is inside the memory afterwards.
        self.parts.iter().map(Completion::wait).fold(Ok(()), Result::and)
    }

    /// Waits for the end, at most so long. False if it hasn't ended by then; the work goes on.
    ///
    /// # Errors
    /// The failure of the first member, by rank, that failed.
    pub fn wait_timeout(&self, at_most: Duration) -> Result<bool> {
        let until = Instant::now().checked_add(at_most);
        let left = |until: Option<Instant>| {
            until.map_or(Duration::MAX, |it| it.saturating_duration_since(Instant::now()))
        };
        let mut outcome = Ok(true);
        for part in &self.parts {
            match part.wait_timeout(left(until)) {
                Ok(true) => {}
                Ok(false) => return Ok(false),
                Err(error) => outcome = outcome.and(Err(error)),
            }
        }
        outcome
    }

    /// Whether all of it has ended, well or not.
    pub fn is_done(&self) -> bool {
        self.parts.iter().all(Completion::is_done)
    }

    /// The completions, one a member, by rank.
    pub fn completions(&self) -> &[Completion] {
        &self.parts
    }
}

impl fmt::Debug for Work {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(&self.parts).finish()
    }
}

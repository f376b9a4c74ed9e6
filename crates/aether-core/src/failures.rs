//! What went wrong on a queue, by ticket.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::Error;
use crate::sync::lock;

/// How an operation failed.
#[derive(Clone, Debug)]
pub(crate) struct Failure {
    pub(crate) error: Error,
    /// Nobody can tell any more whether the operation has let go of its memory. What it touches is
    /// never freed, and conflicting accesses to it get the error.
    pub(crate) unproved: bool,
}

/// The failures of one queue. Looking costs one load while there is none.
#[derive(Debug, Default)]
pub(crate) struct Failures {
    any: AtomicBool,
    by_ticket: Mutex<BTreeMap<u64, Failure>>,
}

impl Failures {
    /// How the operation failed, if it did.
    pub(crate) fn of(&self, ticket: u64) -> Option<Failure> {
        if !self.any.load(Ordering::Acquire) {
            return None;
        }
        lock(&self.by_ticket).get(&ticket).cloned()
    }

    /// Whether nobody can tell any more that the operation has let go of its memory.
    pub(crate) fn is_unproved(&self, ticket: u64) -> bool {
        self.any.load(Ordering::Acquire)
            && lock(&self.by_ticket).get(&ticket).is_some_and(|it| it.unproved)
    }

    /// Notes a failure. Of two for one operation the first error stays, and so does every doubt.
    pub(crate) fn note(&self, ticket: u64, failure: Failure) {
        let mut failures = lock(&self.by_ticket);
        let unproved = failure.unproved;
        failures.entry(ticket).or_insert(failure).unproved |= unproved;
        self.any.store(true, Ordering::Release);
    }
}

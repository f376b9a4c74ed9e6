//! Where threads sleep until something happened: an event count.
//!
//! A waiter enters, looks once more whether what it waits for has happened, and only then sleeps.
//! An announcer changes the state first and rings afterwards. Either the waiter's second look sees
//! the change, or the announcer sees the waiter; so no wake-up is lost, and ringing costs a fence
//! and a load while nobody sleeps. Checked by loom in `tests/loom.rs`.

use std::time::Duration;

use crate::sync::{AtomicU64, AtomicUsize, Condvar, Mutex, Ordering, fence, lock};

/// An event count: `enter`, look again, `sleep`; or change something and `ring`.
#[derive(Debug)]
pub(crate) struct Gate {
    /// Moves with every ring that may have a sleeper to wake.
    epoch: AtomicU64,
    /// How many waiters are between `enter` and the end of their sleep.
    inside: AtomicUsize,
    lock: Mutex<()>,
    bell: Condvar,
}

/// A waiter that has announced itself and may sleep.
pub(crate) struct Entered<'a> {
    gate: &'a Gate,
    seen: u64,
}

impl Gate {
    pub(crate) fn new() -> Self {
        Self {
            epoch: AtomicU64::new(0),
            inside: AtomicUsize::new(0),
            lock: Mutex::new(()),
            bell: Condvar::new(),
        }
    }

    /// Announces a waiter. Look whether there is still something to wait for, then sleep or drop.
    pub(crate) fn enter(&self) -> Entered<'_> {
        self.inside.fetch_add(1, Ordering::SeqCst);
        let seen = self.epoch.load(Ordering::SeqCst);
        // Orders the announcement before the caller's second look; pairs with the fence in `ring`.
        fence(Ordering::SeqCst);
        Entered { gate: self, seen }
    }

    /// Wakes every sleeper. Call it after the change that they wait for.
    pub(crate) fn ring(&self) {
        // Orders the change before the look for waiters; pairs with the fence in `enter`.
        fence(Ordering::SeqCst);
        if self.inside.load(Ordering::SeqCst) == 0 {
            return;
        }
        // The lock is held so that no waiter is between its look at the epoch and its sleep.
        let held = lock(&self.lock);
        self.epoch.fetch_add(1, Ordering::SeqCst);
        drop(held);
        self.bell.notify_all();
    }
}

impl Entered<'_> {
    /// Sleeps until the next ring after `enter`, or until the time is over.
    pub(crate) fn sleep(self, at_most: Duration) {
        let held = lock(&self.gate.lock);
        if self.gate.epoch.load(Ordering::SeqCst) == self.seen {
            // A spurious wake-up only makes the caller look again.
            drop(self.gate.bell.wait_timeout(held, at_most));
        }
    }
}

impl Drop for Entered<'_> {
    fn drop(&mut self) {
        self.gate.inside.fetch_sub(1, Ordering::SeqCst);
    }
}

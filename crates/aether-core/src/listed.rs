//! Whether a queue stands in the list of those that have work: the hand-shake between whoever gives
//! it work and whoever takes idle queues out. Checked by loom in `tests/loom.rs`.
//!
//! Who pushes, pushes first and claims afterwards. Who takes out, releases first and looks for work
//! once more afterwards. So one of the two sees the other, and a queue with work is always listed.

use crate::sync::{AtomicBool, Ordering};

/// Whether the queue is in the list, or about to be put there.
#[derive(Debug)]
pub(crate) struct Listed(AtomicBool);

impl Listed {
    pub(crate) fn new() -> Self {
        Self(AtomicBool::new(false))
    }

    /// Call it after the push. If true, the caller puts the queue into the list.
    pub(crate) fn claim(&self) -> bool {
        !self.0.swap(true, Ordering::SeqCst)
    }

    /// Gives up the place of a queue in the list, which the caller has locked. If true, the caller
    /// takes the queue out; else it leaves it, because there is work again.
    pub(crate) fn release(&self, is_idle: impl FnOnce() -> bool) -> bool {
        // A swap, so that claims and releases stand in one order: each reads what the one before wrote.
        self.0.swap(false, Ordering::SeqCst);
        // Who pushed before this look may have found the queue listed, and left it to us. Who has
        // claimed since then adds it once more, when the list is unlocked: so this entry goes.
        is_idle() || !self.claim()
    }
}

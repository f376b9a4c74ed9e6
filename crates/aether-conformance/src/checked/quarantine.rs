//! Freed memory that is kept back for a while, so that its addresses don't come again at once and a
//! late use of it is known as one.

use std::alloc::Layout;
use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use aether_core::{Address, DeviceId};

use super::detector::Space;

/// How many bytes are kept back at most, and in how many blocks.
const MOST_BYTES: usize = 4 << 20;
const MOST_BLOCKS: usize = 256;

/// One freed allocation, with the layout by which the backend knows it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Parked {
    pub(super) space: Space,
    pub(super) device: DeviceId,
    pub(super) address: Address,
    pub(super) layout: Layout,
}

/// What is kept back, oldest first.
#[derive(Debug, Default)]
pub(super) struct Quarantine(Mutex<VecDeque<Parked>>);

impl Quarantine {
    /// Keeps one more, and gives what is too much now.
    pub(super) fn park(&self, it: Parked) -> Vec<Parked> {
        let mut kept = self.lock();
        kept.push_back(it);
        let mut bytes: usize = kept.iter().map(|it| it.layout.size()).sum();
        let mut over = Vec::new();
        while bytes > MOST_BYTES || kept.len() > MOST_BLOCKS {
            let Some(oldest) = kept.pop_front() else { break };
            bytes -= oldest.layout.size();
            over.push(oldest);
        }
        over
    }

    /// Gives all of it.
    pub(super) fn take_all(&self) -> Vec<Parked> {
        self.lock().drain(..).collect()
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<Parked>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

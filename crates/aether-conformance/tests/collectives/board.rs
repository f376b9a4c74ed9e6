//! What every rank of a broken group brought to each call, so that a defect can compute with it.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use aether_core::Address;
use aether_host::{HostId, HostRange};

/// What one rank brought.
#[derive(Clone, Default)]
pub(crate) struct Brought {
    /// What its source held.
    pub(crate) source: Vec<u8>,
    /// What its destination held before.
    pub(crate) before: Vec<u8>,
    /// Where its destination is.
    pub(crate) target: Option<HostRange>,
}

/// The calls of one group, by number and rank.
#[derive(Default)]
pub(crate) struct Board {
    calls: Mutex<HashMap<u64, HashMap<usize, Brought>>>,
}

impl Board {
    /// The board of the group.
    pub(crate) fn of(id: HostId) -> Arc<Self> {
        static BOARDS: Mutex<Option<HashMap<HostId, Weak<Board>>>> = Mutex::new(None);
        let mut boards = lock(&BOARDS);
        let boards = boards.get_or_insert_default();
        if let Some(board) = boards.get(&id).and_then(Weak::upgrade) {
            return board;
        }
        let board = Arc::<Self>::default();
        boards.insert(id, Arc::downgrade(&board));
        board
    }

    pub(crate) fn put(&self, call: u64, rank: usize, brought: Brought) {
        lock(&self.calls).entry(call).or_default().insert(rank, brought);
    }

    /// What the ranks brought to a call, by rank; empty for one that has not come.
    pub(crate) fn call(&self, call: u64, ranks: usize) -> Vec<Brought> {
        let calls = lock(&self.calls);
        let by_rank = calls.get(&call);
        let rank = |rank| by_rank.and_then(|it| it.get(&rank)).cloned().unwrap_or_default();
        (0..ranks).map(rank).collect()
    }
}

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What memory of the host holds.
pub(crate) fn read(range: HostRange) -> Vec<u8> {
    if range.bytes == 0 {
        return Vec::new();
    }
    let from = range.address.as_ptr().cast_const();
    // SAFETY: the range is a resource of a call that has not ended, which is valid memory of the host
    // that nobody else writes ("nobody else writes what is read or touches what is written").
    unsafe { std::slice::from_raw_parts(from, range.bytes) }.to_vec()
}

/// Writes into memory of the host.
pub(crate) fn write(address: Address, bytes: &[u8]) {
    // SAFETY: the defects write into buffers of calls that have not ended, or, where writing beyond is
    // the defect, into the guards around them, which belong to the same chunk and live as long.
    unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), address.as_ptr(), bytes.len()) }
}

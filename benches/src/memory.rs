//! The memory that all contenders of this process work in, by turns.

use std::sync::{Mutex, MutexGuard, PoisonError};

use aether::{Chunk, Device};

use crate::failure::Result;

/// Pages, so that nobody's vectors or pages lie better than another's.
const ALIGNMENT: usize = 4096;

/// What each rank gives and gets. The limit and aether use the same bytes, so neither can have the
/// better pages; who has the turn holds the locks.
pub struct Memory {
    ranks: Vec<Mutex<Buffers>>,
}

/// One rank's chunks, on its device.
pub struct Buffers {
    /// What it gives.
    pub source: Chunk,
    /// What it gets.
    pub destination: Chunk,
}

impl Memory {
    /// Chunks of `most` bytes for each device, written once so that every page is there.
    ///
    /// # Errors
    /// Memory that can't be had.
    pub fn new(devices: &[Device], most: usize) -> Result<Self> {
        let allocate = |(rank, device)| {
            let mut source = Chunk::allocate_aligned(device, most, ALIGNMENT)?;
            let mut destination = Chunk::allocate_aligned(device, most, ALIGNMENT)?;
            for (at, element) in source.slice_mut::<f32>()?.iter_mut().enumerate() {
                *element = value(rank, at);
            }
            destination.slice_mut::<f32>()?.fill(-1.0);
            Ok(Mutex::new(Buffers { source, destination }))
        };
        Ok(Self { ranks: devices.iter().enumerate().map(allocate).collect::<Result<_>>()? })
    }

    /// How many ranks there are.
    pub fn ranks(&self) -> usize {
        self.ranks.len()
    }

    /// The chunks of `rank`, which is below [`Memory::ranks`], once whoever has them is done.
    pub fn of(&self, rank: usize) -> MutexGuard<'_, Buffers> {
        self.ranks[rank].lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The chunks of all ranks.
    pub fn all(&self) -> Vec<MutexGuard<'_, Buffers>> {
        (0..self.ranks()).map(|rank| self.of(rank)).collect()
    }
}

/// What rank `rank` gives at `at`: small whole numbers that depend on both, whose sums are exact.
pub fn value(rank: usize, at: usize) -> f32 {
    ((at % 509) * 8 + rank) as f32
}

//! The allocations of one address space: live ones, and freed ones that are kept back for a while.

use std::alloc::Layout;
use std::collections::BTreeMap;
use std::ops::Range;

use aether_core::DeviceId;

use super::report::Access;

/// One allocation.
#[derive(Clone, Copy, Debug)]
pub(super) struct Block {
    pub(super) device: DeviceId,
    /// As it was asked for.
    pub(super) layout: Layout,
    /// With the guard behind it.
    pub(super) extent: usize,
    /// The allocation, or the free once it is freed.
    pub(super) access: Access,
    pub(super) freed: bool,
}

/// Where an access lies.
#[derive(Clone, Copy, Debug)]
pub(super) enum Place {
    /// Wholly inside of one live allocation.
    Inside,
    /// Partly outside of a live allocation, or in the guard behind it.
    Outside(Block),
    /// In one that was freed.
    Freed(Block),
    /// In memory that the backend did not allocate: the detector knows no bounds for it.
    Anonymous,
}

/// The allocations of one address space.
#[derive(Debug, Default)]
pub(super) struct Blocks(BTreeMap<usize, Block>);

impl Blocks {
    /// Enters an allocation.
    pub(super) fn insert(&mut self, start: usize, block: Block) {
        self.0.insert(start, block);
    }

    /// The allocation that begins there.
    pub(super) fn get_mut(&mut self, start: usize) -> Option<&mut Block> {
        self.0.get_mut(&start)
    }

    /// Forgets an allocation whose memory goes back to the backend.
    pub(super) fn remove(&mut self, start: usize) {
        self.0.remove(&start);
    }

    /// The last allocation that has a byte of the range, guards included.
    pub(super) fn overlapping(&self, range: &Range<usize>) -> Option<(usize, &Block)> {
        let (&start, block) = self.0.range(..range.end).next_back()?;
        (start + block.extent > range.start).then_some((start, block))
    }

    /// Where an access of the range lies.
    pub(super) fn place(&self, range: &Range<usize>) -> Place {
        let Some((start, block)) = self.overlapping(range) else { return Place::Anonymous };
        if block.freed {
            return Place::Freed(*block);
        }
        if start <= range.start && range.end <= start + block.layout.size() {
            return Place::Inside;
        }
        Place::Outside(*block)
    }
}

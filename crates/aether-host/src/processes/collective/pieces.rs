//! The memory of a call: what a rank copies for others to read, and what it reads, a piece at a time.

use aether_core::Stores;
use smallvec::SmallVec;

use super::super::pod::Place;
use super::super::shape::{INLINE, WINDOW};
use super::super::table::Table;
use super::super::work::Region;
use super::Collective;
use crate::resource::HostRange;

/// A source that is not larger is part of the call's own line.
const TINY: usize = 8;

impl Collective {
    pub(super) fn copy_inline(&self, table: &Table, slot: usize, src: HostRange) -> Place {
        let from = src.address.as_ptr().cast_const();
        if src.bytes <= TINY {
            let mut bytes = [0u8; TINY];
            // SAFETY: the driver's contract: a source is valid for reads of its bytes, which are no
            // more than `TINY`; without bytes nothing is read.
            unsafe { std::ptr::copy_nonoverlapping(from, bytes.as_mut_ptr(), src.bytes) };
            table.own().calls[slot].tiny.set(u64::from_ne_bytes(bytes));
            return Place::Tiny;
        }
        let to = table.base().wrapping_add(table.shape.inline + slot * INLINE);
        // SAFETY: the source is valid for its bytes, which are no more than the place has; the place is
        // this rank's, and nobody reads it: all others are at the call before or behind it, and they
        // read the source of a call only until they end it.
        unsafe { std::ptr::copy_nonoverlapping(from, to, src.bytes) };
        Place::Inline
    }

    /// Puts a step of the own source where others can read it: of a shared reduction all but the own
    /// part, which nobody else reduces.
    pub(super) fn stage_step(&self, table: &Table, step: u64) {
        let Some(src) = self.src else { return };
        let at = table.shape.staging + self.slot(step) * table.shape.slot;
        for region in &self.work.stages {
            let bytes = self.length(region, step);
            let from = region.from + step as usize * self.work.piece;
            let from = src.address.as_ptr().cast_const().wrapping_add(from);
            let to = table.base().wrapping_add(at + region.lane * self.work.piece);
            let (own, length) = match self.work.shares {
                true => share(bytes, table.rank, table.ranks),
                false => (bytes, 0),
            };
            for part in [0..own, own + length..bytes] {
                let (from, to) = (from.wrapping_add(part.start), to.wrapping_add(part.start));
                // SAFETY: the region is a part of the source, which is valid for reads as long as the
                // call; the lane is a part of the step's place in this rank's staging area, which nobody
                // reads: all have consumed the step that was there before. A share lies within the
                // piece, and so do the parts before and behind it.
                unsafe { std::ptr::copy_nonoverlapping(from, to, part.len()) };
            }
        }
    }

    /// Reads a step of all sources: reduces it, or copies it.
    pub(super) fn read_step(&self, table: &Table, step: u64) {
        let (Some(dst), Some(first)) = (self.dst, self.work.reads.first()) else { return };
        let dst = dst.address.as_ptr().wrapping_add(step as usize * self.work.piece);
        let Some(kernel) = self.kernel else {
            for region in &self.work.reads {
                let (from, to) = (self.piece_of(table, region, step), dst.wrapping_add(region.to));
                let bytes = self.length(region, step);
                if bytes > 0 && !std::ptr::eq(from, to) {
                    // SAFETY: the region's piece is readable (see `piece_of`) and was published; the
                    // destination is valid for writes, lies in this rank's memory and overlaps no
                    // source but in place, which is left out.
                    unsafe { self.stores.copy(from, to, bytes) };
                }
            }
            self.stores.settle();
            return;
        };
        let bytes = self.length(first, step);
        let (start, bytes) = match self.work.shares {
            true => share(bytes, table.rank, table.ranks),
            false => (0, bytes),
        };
        if bytes == 0 {
            return;
        }
        let sources: SmallVec<[*const u8; 16]> = self
            .work
            .reads
            .iter()
            .map(|it| self.piece_of(table, it, step).wrapping_add(start))
            .collect();
        let mut targets: SmallVec<[*mut u8; 2]> = SmallVec::new();
        targets.push(dst.wrapping_add(first.to + start));
        if self.work.shares && !matches!(self.targets.get(table.rank), Some(Place::Heap(_))) {
            targets.push(table.base().wrapping_add(self.result_at(table, step)));
        }
        let count = bytes / self.signature.dtype.size();
        // SAFETY: the sources are readable and were published; the destination is this rank's part of
        // its own memory, and is a source only in place, exactly; the place of results is read by
        // nobody before `reduced` says so. All are aligned: buffers by the driver's contract, the
        // segment's parts to cache lines, and parts of pieces begin at whole lines.
        unsafe { kernel.reduce(&sources, &targets, count, table.ranks, Stores::Ordinary) };
    }

    /// Copies what the others have reduced of a step.
    pub(super) fn copy_results(&self, table: &Table, step: u64) {
        let (Some(dst), Some(first)) = (self.dst, self.work.reads.first()) else { return };
        let offset = step as usize * self.work.piece;
        for (rank, peer) in table.others() {
            let (start, bytes) = share(self.length(first, step), rank, table.ranks);
            if bytes == 0 {
                continue;
            }
            let from = match self.targets.get(rank) {
                Some(Place::Heap(at)) => {
                    let heap = peer.heap.as_ref().map_or(std::ptr::null_mut(), |it| it.base());
                    heap.wrapping_add(*at as usize + offset + start)
                }
                _ => peer.map.base().wrapping_add(self.result_at(table, step)),
            };
            let to = dst.address.as_ptr().wrapping_add(offset + start);
            // SAFETY: the rank has said by `reduced` that its part is there, in its result area or in
            // its heap, within which it lies (`check_bounds`); the destination is this rank's own.
            unsafe { self.stores.copy(from.cast_const(), to, bytes) };
        }
        self.stores.settle();
    }

    /// Where the step's piece of a region can be read.
    fn piece_of(&self, table: &Table, region: &Region, step: u64) -> *const u8 {
        let offset = step as usize * self.work.piece;
        let Some(peer) = table.peers.get(region.rank) else { return std::ptr::null() };
        if region.rank == table.rank {
            let src = self.src.map_or(std::ptr::null_mut(), |it| it.address.as_ptr());
            return src.cast_const().wrapping_add(region.from + offset);
        }
        let base = peer.map.base().cast_const();
        match self.sources.get(region.rank) {
            Some(Place::Heap(at)) => {
                let heap = peer.heap.as_ref().map_or(std::ptr::null_mut(), |it| it.base());
                heap.cast_const().wrapping_add(*at as usize + region.from + offset)
            }
            Some(Place::Staged) => base.wrapping_add(
                table.shape.staging
                    + self.slot(step) * table.shape.slot
                    + region.lane * self.work.piece,
            ),
            Some(Place::Tiny) => {
                let call = self.call_of(peer.header());
                (&raw const call.tiny).cast::<u8>().wrapping_add(region.from + offset)
            }
            _ => {
                let slot = ((self.calls + 1) % 2) as usize;
                base.wrapping_add(table.shape.inline + slot * INLINE + region.from + offset)
            }
        }
    }

    /// How much of the region is in the step.
    fn length(&self, region: &Region, step: u64) -> usize {
        let start = step as usize * self.work.piece;
        region.bytes.saturating_sub(start).min(self.work.piece)
    }

    fn result_at(&self, table: &Table, step: u64) -> usize {
        table.shape.results + self.slot(step) * table.shape.result
    }

    fn slot(&self, step: u64) -> usize {
        ((self.base + step) % WINDOW) as usize
    }
}

/// Which part of a piece a rank reduces: where it begins, and how long it is. Whole cache lines.
fn share(bytes: usize, rank: usize, ranks: usize) -> (usize, usize) {
    let part = bytes.div_ceil(ranks).next_multiple_of(64);
    let start = (rank * part).min(bytes);
    (start, part.min(bytes - start))
}

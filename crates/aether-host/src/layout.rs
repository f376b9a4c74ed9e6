//! What a collective does to memory: segments, each from some sources to some destinations, cut into
//! slices of like size.

use std::ops::Range;

use aether_core::Stores;
use smallvec::SmallVec;

use crate::kernels::{Kernel, copy};
use crate::round::MOST_SLICES;
use crate::strips::Strips;

/// The work of one call. It is laid out by the rank that arrives last, and then read by all threads.
pub(crate) struct Layout {
    segments: Vec<Segment>,
    sources: Vec<*const u8>,
    destinations: Vec<*mut u8>,
    reduction: Option<Reduction>,
    bytes: usize,
    /// What is read and written in all.
    traffic: usize,
    slice: usize,
    stores: Stores,
    strips: Strips,
}

/// How sources become one.
#[derive(Clone, Copy)]
pub(crate) struct Reduction {
    pub(crate) kernel: Kernel,
    /// The size of an element, in bytes.
    pub(crate) size: usize,
    /// What Mean divides by.
    pub(crate) ranks: usize,
}

/// Equal ranges of the sources that go to equal ranges of the destinations: reduced if there is a
/// reduction, and copied from the one source otherwise.
struct Segment {
    sources: Range<usize>,
    destinations: Range<usize>,
    /// Where it begins and ends when all segments are laid end to end, in bytes of one source.
    range: Range<usize>,
}

/// How much memory one slice should read and write: small enough to share the work evenly and to stay
/// in a core's cache, large enough that taking a slice costs nothing beside it.
const TRAFFIC: usize = 256 << 10;
/// Calls that read and write no more than this are one slice.
const SMALL: usize = 64 << 10;

impl Layout {
    /// For calls that so many threads work on at once.
    pub(crate) fn new(threads: usize) -> Self {
        Self {
            segments: Vec::new(),
            sources: Vec::new(),
            destinations: Vec::new(),
            reduction: None,
            bytes: 0,
            traffic: 0,
            slice: 1,
            stores: Stores::Ordinary,
            strips: Strips::new(threads),
        }
    }

    /// Forgets the call before.
    pub(crate) fn clear(&mut self, reduction: Option<Reduction>) {
        self.segments.clear();
        self.sources.clear();
        self.destinations.clear();
        self.reduction = reduction;
        self.bytes = 0;
        self.traffic = 0;
    }

    /// Adds a segment. A destination that is the source of a copy is left out: it is there already.
    pub(crate) fn push(
        &mut self,
        sources: impl Iterator<Item = *const u8>,
        destinations: impl Iterator<Item = *mut u8>,
        bytes: usize,
    ) {
        let (first_source, first_destination) = (self.sources.len(), self.destinations.len());
        self.sources.extend(sources);
        let own = match self.reduction {
            None => self.sources.get(first_source).copied(),
            Some(_) => None,
        };
        self.destinations.extend(destinations.filter(|it| Some(it.cast_const()) != own));
        if bytes == 0 || self.destinations.len() == first_destination {
            return;
        }
        self.segments.push(Segment {
            sources: first_source..self.sources.len(),
            destinations: first_destination..self.destinations.len(),
            range: self.bytes..self.bytes + bytes,
        });
        self.bytes += bytes;
        let pointers =
            self.sources.len() - first_source + self.destinations.len() - first_destination;
        self.traffic = self.traffic.saturating_add(bytes.saturating_mul(pointers));
    }

    /// Cuts the work, and says into how many slices.
    pub(crate) fn cut(&mut self) -> u64 {
        self.stores = Stores::for_traffic(self.traffic);
        let slices = match self.traffic <= SMALL {
            true => 1,
            // As many for each strip, so that no thread has one more to do than another.
            false => self.traffic.div_ceil(TRAFFIC).next_multiple_of(self.strips.len()),
        };
        // Whole cache lines, so that slices share none where the buffers are aligned.
        let least = self.bytes.div_ceil(MOST_SLICES as usize);
        self.slice = self.bytes.div_ceil(slices).max(least).max(1).next_multiple_of(64);
        let slices = self.bytes.div_ceil(self.slice) as u64;
        self.strips.deal(slices);
        slices
    }

    /// Does one slice that nobody else does, of the thread's own strip while that has any. It must have
    /// been taken from the call's round: no more are done than there are.
    ///
    /// # Safety
    /// The pointers of every segment are valid for its bytes, sources for reads and destinations for
    /// writes, aligned to the element size; nobody but other slices of this layout touches the
    /// destinations or writes the sources meanwhile; a destination overlaps sources only as the
    /// in-place forms of the collectives allow.
    pub(crate) unsafe fn run(&self, strip: usize) {
        let Some(slice) = self.strips.next(strip) else { return };
        let start = slice as usize * self.slice;
        let end = self.bytes.min(start + self.slice);
        let first = self.segments.partition_point(|it| it.range.end <= start);
        for segment in self.segments.get(first..).unwrap_or_default() {
            let from = start.max(segment.range.start);
            let to = end.min(segment.range.end);
            if from >= to {
                break;
            }
            let offset = from - segment.range.start;
            // SAFETY: the caller promises the segment's pointers for its bytes, and the part lies
            // within: `offset + (to - from)` is at most its length.
            unsafe { self.part(segment, offset, to - from) };
        }
        // The round tells others of the slice next.
        self.stores.settle();
    }

    /// # Safety
    /// As [`Layout::run`], for this part of the segment.
    unsafe fn part(&self, segment: &Segment, offset: usize, bytes: usize) {
        let sources = self.sources.get(segment.sources.clone()).unwrap_or_default();
        let destinations = self.destinations.get(segment.destinations.clone()).unwrap_or_default();
        let from: SmallVec<[*const u8; 64]> =
            sources.iter().map(|it| it.wrapping_add(offset)).collect();
        let to: SmallVec<[*mut u8; 64]> =
            destinations.iter().map(|it| it.wrapping_add(offset)).collect();
        match self.reduction {
            Some(it) => {
                let count = bytes / it.size;
                // SAFETY: the caller promises pointers that are valid for these bytes, aligned, and
                // that alias only exactly ("a destination is either exactly one of the sources"):
                // within one segment the in-place forms have no other overlap.
                unsafe { it.kernel.reduce(&from, &to, count, it.ranks, self.stores) };
            }
            None => {
                let Some(&from) = from.first() else { return };
                // SAFETY: all pointers are valid for these bytes, as the caller promises; a destination
                // that is the source was left out by `push`, and others don't overlap it.
                unsafe { copy(from, &to, bytes, self.stores) };
            }
        }
    }
}

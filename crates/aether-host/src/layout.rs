//! What a collective does to memory: segments, each from some sources to some destinations, cut into
//! slices of like size.

use std::ops::Range;

use smallvec::SmallVec;

use crate::kernels::Kernel;
use crate::round::MOST_SLICES;

/// The work of one call. It is laid out by the rank that arrives last, and then read by all threads.
pub(crate) struct Layout {
    segments: Vec<Segment>,
    sources: Vec<*const u8>,
    destinations: Vec<*mut u8>,
    reduction: Option<Reduction>,
    bytes: usize,
    slice: usize,
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
/// How much of a source is copied to all destinations before the next, so that it is read once.
const BLOCK: usize = 8 << 10;

impl Layout {
    pub(crate) const fn new() -> Self {
        Self {
            segments: Vec::new(),
            sources: Vec::new(),
            destinations: Vec::new(),
            reduction: None,
            bytes: 0,
            slice: 1,
        }
    }

    /// Forgets the call before.
    pub(crate) fn clear(&mut self, reduction: Option<Reduction>) {
        self.segments.clear();
        self.sources.clear();
        self.destinations.clear();
        self.reduction = reduction;
        self.bytes = 0;
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
    }

    /// Cuts the work, and says into how many slices.
    pub(crate) fn cut(&mut self) -> u64 {
        let pointers = |it: &Segment| it.sources.len() + it.destinations.len();
        let most = self.segments.iter().map(pointers).max().unwrap_or(1);
        self.slice = match self.bytes.saturating_mul(most) <= SMALL {
            true => self.bytes.max(1),
            // Whole cache lines, so that slices share none where the buffers are aligned.
            false => (TRAFFIC / most).max(4 << 10).next_multiple_of(64),
        };
        let least = self.bytes.div_ceil(MOST_SLICES as usize).next_multiple_of(64);
        self.slice = self.slice.max(least);
        self.bytes.div_ceil(self.slice) as u64
    }

    /// Does one slice.
    ///
    /// # Safety
    /// The pointers of every segment are valid for its bytes, sources for reads and destinations for
    /// writes, aligned to the element size; nobody but other slices of this layout touches the
    /// destinations or writes the sources meanwhile; a destination overlaps sources only as the
    /// in-place forms of the collectives allow.
    pub(crate) unsafe fn run(&self, slice: u64) {
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
                unsafe { it.kernel.reduce(&from, &to, count, it.ranks) };
            }
            None => {
                let Some(&from) = from.first() else { return };
                for at in (0..bytes).step_by(BLOCK) {
                    let length = BLOCK.min(bytes - at);
                    for to in &to {
                        let (from, to) = (from.wrapping_add(at), to.wrapping_add(at));
                        // SAFETY: both are valid for `length` bytes; a destination that is the source
                        // was left out by `push`, and others don't overlap it.
                        unsafe { std::ptr::copy_nonoverlapping(from, to, length) };
                    }
                }
            }
        }
    }
}

//! The loop of every reduction, over blocks that fit in the first-level cache.

use std::mem::MaybeUninit;
use std::ops::Range;

use aether_core::Stores;

use super::instructions::Vectors;

/// How elements become one: the accumulator's type, the step, and the way back.
///
/// All methods are inlined into the loops that the compiler vectorises, so each must be free of
/// branches and calls.
pub(super) trait Reduction {
    /// The element as it lies in memory.
    type Element: Copy;
    /// What is accumulated over the ranks.
    type Accumulator: Copy;
    /// What the accumulator is divided by: the number of ranks for a mean, nothing else else.
    type Divisor: Copy;

    /// Whether the arithmetic is a few instructions a vector, so that memory is what takes the time.
    const CHEAP: bool = size_of::<Self::Element>() >= 4;

    /// The divisor for this number of ranks, at least 1.
    fn divisor(ranks: usize) -> Self::Divisor;
    /// The accumulator that has seen one element.
    fn load(element: Self::Element) -> Self::Accumulator;
    /// The accumulator that has seen what `left` and then `right` have.
    fn combine(left: Self::Accumulator, right: Self::Accumulator) -> Self::Accumulator;
    /// The element that the accumulator stands for.
    fn finish(accumulator: Self::Accumulator, divisor: Self::Divisor) -> Self::Element;
}

/// Elements per block. A block of accumulators, a block of results, and the lines of the sources
/// that are being read stay well within 32 KiB, and a block is long enough to hide its set-up.
const BLOCK: usize = 256;

/// Elements per tile: few enough that the results of one stay in registers until they are stored.
const TILE: usize = 32;

/// What is written past the cache has to be whole lines of it.
const LINE: usize = 64;

/// A block, or the start of one where few elements are left.
type Slots<T> = [MaybeUninit<T>];

/// Reduces `count` elements of all sources into all destinations.
///
/// # Safety
/// The contract of [`super::Kernel::reduce`], for elements of `R::Element`; the processor has the
/// vectors.
#[inline(always)]
pub(super) unsafe fn fold<R: Reduction, V: Vectors>(
    sources: &[*const u8],
    destinations: &[*mut u8],
    count: usize,
    ranks: usize,
    stores: Stores,
) {
    if sources.is_empty() {
        return;
    }
    let work = Work::<R> { sources, destinations, divisor: R::divisor(ranks) };
    let head = match stores {
        Stores::Ordinary => None,
        Stores::Streaming => work.head(),
    };
    // Without a head all stores are ordinary.
    let (head, stores) = head.map_or((0, Stores::Ordinary), |it| (it.min(count), stores));
    // SAFETY: the caller's contract covers the parts of `[0, count)` too. They follow each other.
    unsafe { work.blocks(0..head, Stores::Ordinary) };
    // SAFETY: as above; if stores are streaming, every destination is on a line from `head` on.
    let end = unsafe { work.tiles::<V>(head..count, stores) };
    // SAFETY: as above.
    unsafe { work.blocks(end..count, stores) };
}

/// One reduction: the pointers of its call, and what it divides by.
struct Work<'a, R: Reduction> {
    sources: &'a [*const u8],
    destinations: &'a [*mut u8],
    divisor: R::Divisor,
}

impl<R: Reduction> Work<'_, R> {
    /// How many elements there are before all destinations are on a line of the cache. None if they never
    /// are at once, and if one is a source: its lines are in the cache, because they have just been read.
    #[inline(always)]
    fn head(&self) -> Option<usize> {
        let (first, others) = self.destinations.split_first()?;
        let place = first.addr() % LINE;
        let together = others.iter().all(|it| it.addr() % LINE == place);
        let is_source = |it: &*mut u8| self.sources.contains(&it.cast_const());
        // An element never lies across two lines, because it is aligned and its size divides theirs.
        let head = (LINE - place) % LINE / size_of::<R::Element>();
        (together && !self.destinations.iter().any(is_source)).then_some(head)
    }

    /// Reduces whole tiles, and says where the last ends. Results go to memory straight from registers,
    /// because where the arithmetic is cheap, memory is what counts; where it isn't, there are no tiles.
    ///
    /// # Safety
    /// The contract of [`fold`], for these elements; if stores are streaming, the first one of every
    /// destination lies on a line.
    #[inline(always)]
    unsafe fn tiles<V: Vectors>(&self, elements: Range<usize>, stores: Stores) -> usize {
        let Range { start, end } = elements;
        let whole = start + (end - start) / TILE * TILE;
        if !R::CHEAP {
            return start;
        }
        for at in (start..whole).step_by(TILE) {
            // SAFETY: `at + TILE` is at most `end`, for which the caller vouches.
            let results = unsafe { self.tile(at) };
            for destination in self.destinations {
                let to = destination.cast::<R::Element>().wrapping_add(at);
                let to = to.cast::<Tile<R::Element>>();
                match stores {
                    // SAFETY: all sources of this tile have been read, so that a destination that is a
                    // source may be overwritten; the caller vouches for the elements.
                    Stores::Ordinary => unsafe { to.write_unaligned(results) },
                    // SAFETY: as above; the caller vouches for the first line, and a tile is whole
                    // lines, so that each begins where another has ended.
                    Stores::Streaming => unsafe { stream::<V, _>(to, &results) },
                }
            }
        }
        whole
    }

    /// The results of the tile that begins there.
    ///
    /// # Safety
    /// Every source is valid for reads of `at + TILE` elements, and aligned to one.
    #[inline(always)]
    unsafe fn tile(&self, at: usize) -> Tile<R::Element> {
        let mut results = [const { MaybeUninit::<R::Element>::uninit() }; TILE];
        match *self.sources {
            [a, b] => {
                // SAFETY: the caller's promise is what is asked for.
                unsafe { together::<R, 2>([a, b], at, &mut results, self.divisor) };
            }
            [first, ref others @ ..] => {
                let mut accumulators = [const { MaybeUninit::<R::Accumulator>::uninit() }; TILE];
                // SAFETY: as above.
                unsafe { begin::<R, 1>([first], at, &mut accumulators) };
                for &other in others {
                    // SAFETY: as above, and `begin` initialised all accumulators.
                    unsafe { advance::<R, 1>([other], at, &mut accumulators) };
                }
                // SAFETY: `begin` initialised all accumulators, and there are as many results.
                unsafe { conclude::<R>(&accumulators, &mut results, self.divisor) };
            }
            [] => {}
        }
        results
    }

    /// Reduces block by block.
    ///
    /// # Safety
    /// The contract of [`fold`], for these elements.
    #[inline(always)]
    unsafe fn blocks(&self, elements: Range<usize>, stores: Stores) {
        let Range { mut start, end } = elements;
        let mut results = [const { MaybeUninit::<R::Element>::uninit() }; BLOCK];
        let mut accumulators = [const { MaybeUninit::<R::Accumulator>::uninit() }; BLOCK];
        while start < end {
            let length = BLOCK.min(end - start);
            let results = &mut results[..length];
            // Few sources are reduced in registers; more pass through a block of accumulators.
            match *self.sources {
                [] => return,
                [a] => {
                    // SAFETY: `start + length` is at most `end`, for which the caller vouches.
                    unsafe { together::<R, 1>([a], start, results, self.divisor) };
                }
                [a, b] => {
                    // SAFETY: as above.
                    unsafe { together::<R, 2>([a, b], start, results, self.divisor) };
                }
                [a, b, c] => {
                    // SAFETY: as above.
                    unsafe { together::<R, 3>([a, b, c], start, results, self.divisor) };
                }
                [a, b, c, d] => {
                    // SAFETY: as above.
                    unsafe { together::<R, 4>([a, b, c, d], start, results, self.divisor) };
                }
                [a, b, c, d, ref others @ ..] => {
                    let accumulators = &mut accumulators[..length];
                    // SAFETY: as above.
                    unsafe { begin::<R, 4>([a, b, c, d], start, accumulators) };
                    let (fours, rest) = others.as_chunks::<4>();
                    for &four in fours {
                        // SAFETY: as above, and `begin` initialised all accumulators.
                        unsafe { advance::<R, 4>(four, start, accumulators) };
                    }
                    for &one in rest {
                        // SAFETY: as above.
                        unsafe { advance::<R, 1>([one], start, accumulators) };
                    }
                    // SAFETY: `begin` initialised all accumulators, and there are as many results.
                    unsafe { conclude::<R>(accumulators, results, self.divisor) };
                }
            }
            for &destination in self.destinations {
                // SAFETY: each arm above that comes here initialised all results and has read this
                // block of every source, so that a destination that is a source may be overwritten;
                // `start + length` is at most `end`, for which the caller vouches.
                unsafe { publish(results, destination.cast(), start, stores) };
            }
            start += length;
        }
    }
}

/// The results of a tile.
type Tile<E> = [MaybeUninit<E>; TILE];

/// Writes the results of a tile past the cache.
///
/// # Safety
/// The destination is valid for writes of a tile and begins on a line; nothing else accesses it meanwhile;
/// the processor has the vectors.
#[inline(always)]
unsafe fn stream<V: Vectors, E: Copy>(to: *mut Tile<E>, results: &Tile<E>) {
    let from = std::ptr::from_ref(results).cast::<V::Vector>();
    for at in 0..size_of::<Tile<E>>() / size_of::<V::Vector>() {
        // SAFETY: this is one of the vectors that the tile is made of, and is initialised as a vector of
        // plain integers needs no more than the elements are.
        let vector = unsafe { from.wrapping_add(at).read_unaligned() };
        // SAFETY: as above, in the destination, for which the caller vouches: it begins on a line, and
        // so every vector on a multiple of its size.
        unsafe { V::stream(to.cast::<V::Vector>().wrapping_add(at), vector) };
    }
}

/// Reduces a block of all `K` sources, with the accumulators in registers.
///
/// # Safety
/// Every source is valid for reads of `start + results.len()` elements, and aligned to one.
#[inline(always)]
unsafe fn together<R: Reduction, const K: usize>(
    sources: [*const u8; K],
    start: usize,
    results: &mut Slots<R::Element>,
    divisor: R::Divisor,
) {
    for (index, result) in results.iter_mut().enumerate() {
        // SAFETY: `index` is less than the length for which the caller vouches.
        let accumulator = unsafe { first::<R, K>(sources, start + index) };
        result.write(R::finish(accumulator, divisor));
    }
}

/// Initialises the accumulators from a block of the first `K` sources.
///
/// # Safety
/// Every source is valid for reads of `start + accumulators.len()` elements, and aligned to one.
#[inline(always)]
unsafe fn begin<R: Reduction, const K: usize>(
    sources: [*const u8; K],
    start: usize,
    accumulators: &mut Slots<R::Accumulator>,
) {
    for (index, accumulator) in accumulators.iter_mut().enumerate() {
        // SAFETY: `index` is less than the length for which the caller vouches.
        accumulator.write(unsafe { first::<R, K>(sources, start + index) });
    }
}

/// Takes a block of the next `K` sources into the accumulators.
///
/// # Safety
/// The contract of [`begin`], and all accumulators are initialised.
#[inline(always)]
unsafe fn advance<R: Reduction, const K: usize>(
    sources: [*const u8; K],
    start: usize,
    accumulators: &mut Slots<R::Accumulator>,
) {
    for (index, accumulator) in accumulators.iter_mut().enumerate() {
        // SAFETY: the caller has initialised all accumulators.
        let so_far = unsafe { accumulator.assume_init() };
        // SAFETY: `index` is less than the length for which the caller vouches.
        let taken = unsafe { next::<R>(so_far, &sources, start + index) };
        accumulator.write(taken);
    }
}

/// The accumulator that has seen element `index` of the sources, of which there is at least one.
///
/// # Safety
/// Every source is valid for reads of more than `index` elements, and aligned to one.
#[inline(always)]
unsafe fn first<R: Reduction, const K: usize>(
    sources: [*const u8; K],
    index: usize,
) -> R::Accumulator {
    // SAFETY: the caller vouches for the element.
    let element = unsafe { element(sources[0], index) };
    // SAFETY: as above.
    unsafe { next::<R>(R::load(element), &sources[1..], index) }
}

/// The accumulator that has seen element `index` of these sources too.
///
/// # Safety
/// Every source is valid for reads of more than `index` elements, and aligned to one.
#[inline(always)]
unsafe fn next<R: Reduction>(
    mut accumulator: R::Accumulator,
    sources: &[*const u8],
    index: usize,
) -> R::Accumulator {
    for &source in sources {
        // SAFETY: the caller vouches for the element.
        let element = unsafe { element(source, index) };
        accumulator = R::combine(accumulator, R::load(element));
    }
    accumulator
}

/// Turns the accumulators of a block into its results.
///
/// # Safety
/// All accumulators are initialised, and there are as many as results.
#[inline(always)]
unsafe fn conclude<R: Reduction>(
    accumulators: &Slots<R::Accumulator>,
    results: &mut Slots<R::Element>,
    divisor: R::Divisor,
) {
    for (result, accumulator) in results.iter_mut().zip(accumulators) {
        // SAFETY: the caller has initialised all accumulators.
        let accumulator = unsafe { accumulator.assume_init() };
        result.write(R::finish(accumulator, divisor));
    }
}

/// Writes the results of a block to one destination.
///
/// # Safety
/// All results are initialised; the destination is valid for writes of `start + results.len()`
/// elements and aligned to one; nothing else accesses it meanwhile.
#[inline(always)]
unsafe fn publish<E: Copy>(results: &Slots<E>, destination: *mut E, start: usize, stores: Stores) {
    // SAFETY: the caller vouches for at least `start` elements at the destination.
    let destination = unsafe { destination.add(start) };
    // SAFETY: the results are initialised, and on this function's caller's stack, where no
    // destination lies; the caller vouches for the destination.
    unsafe { stores.copy(results.as_ptr().cast(), destination.cast(), size_of_val(results)) };
}

/// Reads element `index` of a source.
///
/// # Safety
/// The source is valid for reads of more than `index` elements, and aligned to one.
#[inline(always)]
unsafe fn element<E: Copy>(source: *const u8, index: usize) -> E {
    // SAFETY: the caller vouches that the element lies within the source.
    let element = unsafe { source.cast::<E>().add(index) };
    // SAFETY: as above; the alignment is the caller's promise too, and every bit pattern is an
    // element: they are all integers or floats.
    unsafe { element.read() }
}

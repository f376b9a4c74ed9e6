//! The loop of every reduction, over blocks that fit in the first-level cache.

use std::mem::MaybeUninit;

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

/// A block, or the start of one where few elements are left.
type Slots<T> = [MaybeUninit<T>];

/// Reduces `count` elements of all sources into all destinations.
///
/// # Safety
/// The contract of [`super::Kernel::reduce`], for elements of `R::Element`.
#[inline(always)]
pub(super) unsafe fn fold<R: Reduction>(
    sources: &[*const u8],
    destinations: &[*mut u8],
    count: usize,
    ranks: usize,
) {
    let divisor = R::divisor(ranks);
    // Where the arithmetic is cheap, memory is what counts: results go to it straight from registers.
    let mut start = match *sources {
        _ if !R::CHEAP => 0,
        [a, b] => {
            // SAFETY: the caller's contract is that of `tiles`.
            unsafe { tiles::<R, 2>([a, b], destinations, count, divisor) }
        }
        [a, b, c] => {
            // SAFETY: as above.
            unsafe { tiles::<R, 3>([a, b, c], destinations, count, divisor) }
        }
        [a, b, c, d] => {
            // SAFETY: as above.
            unsafe { tiles::<R, 4>([a, b, c, d], destinations, count, divisor) }
        }
        _ => 0,
    };
    let mut results = [const { MaybeUninit::<R::Element>::uninit() }; BLOCK];
    let mut accumulators = [const { MaybeUninit::<R::Accumulator>::uninit() }; BLOCK];
    while start < count {
        let length = BLOCK.min(count - start);
        let results = &mut results[..length];
        // Few sources are reduced in registers; more pass through a block of accumulators.
        match *sources {
            [] => return,
            [a] => {
                // SAFETY: `start + length` is at most `count`, for which the caller vouches.
                unsafe { together::<R, 1>([a], start, results, divisor) };
            }
            [a, b] => {
                // SAFETY: as above.
                unsafe { together::<R, 2>([a, b], start, results, divisor) };
            }
            [a, b, c] => {
                // SAFETY: as above.
                unsafe { together::<R, 3>([a, b, c], start, results, divisor) };
            }
            [a, b, c, d] => {
                // SAFETY: as above.
                unsafe { together::<R, 4>([a, b, c, d], start, results, divisor) };
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
                unsafe { conclude::<R>(accumulators, results, divisor) };
            }
        }
        for &destination in destinations {
            // SAFETY: each arm above that comes here initialised all results and has read this
            // block of every source, so that a destination that is a source may be overwritten;
            // `start + length` is at most `count`, for which the caller vouches.
            unsafe { publish(results, destination.cast(), start) };
        }
        start += length;
    }
}

/// Reduces whole tiles of all `K` sources into all destinations, and says how many elements these are.
///
/// # Safety
/// The contract of [`fold`].
#[inline(always)]
unsafe fn tiles<R: Reduction, const K: usize>(
    sources: [*const u8; K],
    destinations: &[*mut u8],
    count: usize,
    divisor: R::Divisor,
) -> usize {
    let mut start = 0;
    while count - start >= TILE {
        let mut results = [const { MaybeUninit::<R::Element>::uninit() }; TILE];
        // SAFETY: `start + TILE` is at most `count`, for which the caller vouches.
        unsafe { together::<R, K>(sources, start, &mut results, divisor) };
        for destination in destinations {
            let at =
                destination.cast::<R::Element>().wrapping_add(start).cast::<Tile<R::Element>>();
            // SAFETY: all sources of this tile have been read, so that a destination that is a source
            // may be overwritten; the caller vouches for `count` elements.
            unsafe { at.write_unaligned(results) };
        }
        start += TILE;
    }
    start
}

/// The results of a tile.
type Tile<E> = [MaybeUninit<E>; TILE];

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

/// Writes the results of a block to one destination: the one place that stores to the caller's
/// memory, and so the place to decide how (around the cache, say, where the whole exceeds it).
///
/// # Safety
/// All results are initialised; the destination is valid for writes of `start + results.len()`
/// elements and aligned to one; nothing else accesses it meanwhile.
#[inline(always)]
unsafe fn publish<E: Copy>(results: &Slots<E>, destination: *mut E, start: usize) {
    // SAFETY: the caller vouches for at least `start` elements at the destination.
    let destination = unsafe { destination.add(start) };
    // SAFETY: the results are initialised, and on this function's caller's stack, where no
    // destination lies; the caller vouches for the destination.
    unsafe { destination.copy_from_nonoverlapping(results.as_ptr().cast(), results.len()) };
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

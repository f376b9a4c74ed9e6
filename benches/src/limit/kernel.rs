//! The loops over memory: 32 bytes at a time, by the vectors that the processor has.

use super::share::Piece;

/// How results go to memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stores {
    /// Through the cache.
    Ordinary,
    /// Past the cache, so that no line is read before it is written.
    NonTemporal,
}

impl Stores {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Ordinary, Self::NonTemporal];

    /// The contender's name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Ordinary => "limit, ordinary stores",
            Self::NonTemporal => "limit, non-temporal stores",
        }
    }
}

/// Writes the sum of the piece's sources to all its destinations.
pub(super) fn run(piece: &mut Piece<'_>, stores: Stores) {
    let Piece { sources, destinations } = piece;
    if let ([source], [destination], Stores::Ordinary) =
        (sources.as_slice(), destinations.as_mut_slice(), stores)
    {
        destination.copy_from_slice(source);
        return;
    }
    #[cfg(target_arch = "x86_64")]
    if std::arch::is_x86_feature_detected!("avx") {
        // SAFETY: the processor has AVX, as was just asked.
        unsafe { avx::run(sources, destinations, stores == Stores::NonTemporal) };
        return;
    }
    portable(sources, destinations);
}

/// Makes non-temporal stores visible, which is part of the work.
pub(super) fn fence(stores: Stores) {
    #[cfg(target_arch = "x86_64")]
    if stores == Stores::NonTemporal {
        // SAFETY: it needs SSE, which every processor of this architecture has.
        unsafe { std::arch::x86_64::_mm_sfence() };
    }
    let _ = stores;
}

/// The same by ordinary stores, for what has no vectors of that length.
fn portable(sources: &[&[f32]], destinations: &mut [&mut [f32]]) {
    for at in 0..sources.first().map_or(0, |it| it.len()) {
        let sum = sources.iter().fold(0.0, |sum, source| sum + source[at]);
        destinations.iter_mut().for_each(|it| it[at] = sum);
    }
}

#[cfg(target_arch = "x86_64")]
mod avx {
    use std::arch::x86_64::{
        __m256, _mm256_add_ps, _mm256_loadu_ps, _mm256_storeu_ps, _mm256_stream_ps,
    };

    /// Elements of a vector, and how it has to lie for a non-temporal store.
    const LANES: usize = 8;
    const BYTES: usize = 32;

    /// As [`super::run`]. Where a destination does not lie on whole vectors, stores are ordinary.
    #[target_feature(enable = "avx")]
    pub(super) fn run(sources: &[&[f32]], destinations: &mut [&mut [f32]], streaming: bool) {
        let aligned = destinations.iter().all(|it| it.as_ptr().addr().is_multiple_of(BYTES));
        match (sources, streaming && aligned) {
            ([a], false) => all::<1, false>([a], destinations),
            ([a], true) => all::<1, true>([a], destinations),
            ([a, b], false) => all::<2, false>([a, b], destinations),
            ([a, b], true) => all::<2, true>([a, b], destinations),
            ([a, b, c, d], false) => all::<4, false>([a, b, c, d], destinations),
            ([a, b, c, d], true) => all::<4, true>([a, b, c, d], destinations),
            ([a, b, c, d, e, f, g, h], false) => {
                all::<8, false>([a, b, c, d, e, f, g, h], destinations)
            }
            ([a, b, c, d, e, f, g, h], true) => {
                all::<8, true>([a, b, c, d, e, f, g, h], destinations)
            }
            _ => super::portable(sources, destinations),
        }
    }

    /// `S` sources; the loop over them is unrolled.
    #[target_feature(enable = "avx")]
    fn all<const S: usize, const STREAMING: bool>(
        sources: [&[f32]; S],
        destinations: &mut [&mut [f32]],
    ) {
        let mut whole = sources[0].len();
        whole = sources.iter().fold(whole, |least, it| least.min(it.len()));
        whole = destinations.iter().fold(whole, |least, it| least.min(it.len()));
        whole -= whole % LANES;
        let from = sources.map(<[f32]>::as_ptr);
        let mut at = 0;
        while at < whole {
            // SAFETY: `at + LANES <= whole`, which is no more than any source has.
            let mut sum = unsafe { load(from[0], at) };
            for source in &from[1..] {
                // SAFETY: as above.
                sum = _mm256_add_ps(sum, unsafe { load(*source, at) });
            }
            for destination in &mut *destinations {
                // SAFETY: `at + LANES <= whole`, which is no more than any destination has; where stores
                // are non-temporal, `run` saw all of them begin on a whole vector.
                unsafe { store::<STREAMING>(destination.as_mut_ptr(), at, sum) };
            }
            at += LANES;
        }
    }

    /// # Safety
    /// `from` has elements up to `at + LANES`.
    #[target_feature(enable = "avx")]
    unsafe fn load(from: *const f32, at: usize) -> __m256 {
        // SAFETY: in bounds, as the caller promises.
        let from = unsafe { from.add(at) };
        // SAFETY: LANES elements can be read from there, as the caller promises.
        unsafe { _mm256_loadu_ps(from) }
    }

    /// # Safety
    /// `to` has elements up to `at + LANES`, which may be written; if `STREAMING`, `to` is aligned to
    /// BYTES and `at` is a multiple of LANES.
    #[target_feature(enable = "avx")]
    unsafe fn store<const STREAMING: bool>(to: *mut f32, at: usize, value: __m256) {
        // SAFETY: in bounds, as the caller promises.
        let to = unsafe { to.add(at) };
        if STREAMING {
            // SAFETY: LANES elements can be written there, on a whole vector, as the caller promises.
            unsafe { _mm256_stream_ps(to, value) };
        } else {
            // SAFETY: LANES elements can be written there, as the caller promises.
            unsafe { _mm256_storeu_ps(to, value) };
        }
    }
}

//! The same loops, compiled for several sets of instructions, and the choice among them.
//!
//! The bits are the same whatever is chosen: the elements are independent, no operation is
//! reassociated, and the compiler fuses no multiplication with an addition unless told to.

use aether_core::Stores;

use super::fold::{Reduction, fold};

/// A compiled reduction. Its contract is that of [`super::Kernel::reduce`], and that the processor
/// has the instructions it was compiled for, and that the floating-point environment is the
/// default one.
pub(super) type Run = unsafe fn(&[*const u8], &[*mut u8], usize, usize, Stores);

/// What the loops are compiled for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum InstructionSet {
    /// What every processor of the target has: 16-byte vectors on x86-64 and aarch64.
    Baseline,
    /// AVX2 and F16C: 32-byte vectors, and a conversion of f16.
    #[cfg(target_arch = "x86_64")]
    Avx2,
}

impl InstructionSet {
    /// The best set that this processor has.
    pub(super) fn best() -> Self {
        #[cfg(target_arch = "x86_64")]
        if std::is_x86_feature_detected!("avx2") && std::is_x86_feature_detected!("f16c") {
            return Self::Avx2;
        }
        Self::Baseline
    }

    /// Every set that this processor has.
    #[cfg(test)]
    pub(super) fn available() -> Vec<Self> {
        let mut sets = vec![Self::Baseline, Self::best()];
        sets.dedup();
        sets
    }

    /// The reduction, compiled for this set.
    pub(super) fn compiled<R: Reduction>(self) -> Run {
        match self {
            Self::Baseline => baseline::<R>,
            #[cfg(target_arch = "x86_64")]
            Self::Avx2 => avx2::<R>,
        }
    }
}

// Neither is inlined: the call through a pointer also keeps the arithmetic between the two changes
// of the floating-point environment.

#[inline(never)]
unsafe fn baseline<R: Reduction>(
    sources: &[*const u8],
    destinations: &[*mut u8],
    count: usize,
    ranks: usize,
    stores: Stores,
) {
    // SAFETY: the contract of `Run` includes that of `fold`; every processor of the target has these
    // vectors.
    unsafe { fold::<R, Sixteen>(sources, destinations, count, ranks, stores) }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,f16c")]
#[inline(never)]
unsafe fn avx2<R: Reduction>(
    sources: &[*const u8],
    destinations: &[*mut u8],
    count: usize,
    ranks: usize,
    stores: Stores,
) {
    // SAFETY: the contract of `Run` includes that of `fold`; AVX2 has these vectors.
    unsafe { fold::<R, ThirtyTwo>(sources, destinations, count, ranks, stores) }
}

/// Vectors that are stored past the cache.
pub(super) trait Vectors {
    /// One of them; a line of the cache is so many whole ones.
    type Vector: Copy;

    /// Stores one.
    ///
    /// # Safety
    /// `to` is valid for writes of a vector and a multiple of its size; the processor has such vectors.
    unsafe fn stream(to: *mut Self::Vector, vector: Self::Vector);
}

/// What every processor of the target has.
enum Sixteen {}

#[cfg(target_arch = "x86_64")]
impl Vectors for Sixteen {
    type Vector = std::arch::x86_64::__m128i;

    #[inline(always)]
    unsafe fn stream(to: *mut Self::Vector, vector: Self::Vector) {
        // SAFETY: the caller's promise is what is asked for.
        unsafe { std::arch::x86_64::_mm_stream_si128(to, vector) }
    }
}

/// Where there is no such store, it is an ordinary one.
#[cfg(not(target_arch = "x86_64"))]
impl Vectors for Sixteen {
    type Vector = u128;

    #[inline(always)]
    unsafe fn stream(to: *mut Self::Vector, vector: Self::Vector) {
        // SAFETY: the caller's promise is what is asked for.
        unsafe { to.write_unaligned(vector) }
    }
}

/// What AVX adds.
#[cfg(target_arch = "x86_64")]
enum ThirtyTwo {}

#[cfg(target_arch = "x86_64")]
impl Vectors for ThirtyTwo {
    type Vector = std::arch::x86_64::__m256i;

    #[inline(always)]
    unsafe fn stream(to: *mut Self::Vector, vector: Self::Vector) {
        // SAFETY: the caller's promise is what is asked for.
        unsafe { std::arch::x86_64::_mm256_stream_si256(to, vector) }
    }
}

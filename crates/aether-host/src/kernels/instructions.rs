//! The same loops, compiled for several sets of instructions, and the choice among them.
//!
//! The bits are the same whatever is chosen: the elements are independent, no operation is
//! reassociated, and the compiler fuses no multiplication with an addition unless told to.

use super::fold::{Reduction, fold};

/// A compiled reduction. Its contract is that of [`super::Kernel::reduce`], and that the processor
/// has the instructions it was compiled for, and that the floating-point environment is the
/// default one.
pub(super) type Run = unsafe fn(&[*const u8], &[*mut u8], usize, usize);

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
) {
    // SAFETY: the contract of `Run` includes that of `fold`.
    unsafe { fold::<R>(sources, destinations, count, ranks) }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,f16c")]
#[inline(never)]
unsafe fn avx2<R: Reduction>(
    sources: &[*const u8],
    destinations: &[*mut u8],
    count: usize,
    ranks: usize,
) {
    // SAFETY: the contract of `Run` includes that of `fold`.
    unsafe { fold::<R>(sources, destinations, count, ranks) }
}

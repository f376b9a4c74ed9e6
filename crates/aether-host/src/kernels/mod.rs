//! The arithmetic of the reductions: many sources in, the same result to every destination.
//!
//! A [`Kernel`] reads memory through raw pointers alone and never makes a reference to it, because
//! a destination may be one of the sources. It goes block by block: a block of every source is
//! read, in rank order, before that block of any destination is written. Every element is computed
//! by itself, so neither the length, nor the alignment, nor the number of vector lanes can change
//! its bits.

mod copy;
mod environment;
#[cfg(target_arch = "x86_64")]
mod f16c;
mod floats;
mod fold;
mod formats;
mod instructions;
mod integers;
mod minifloat;
mod order;
#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "the reference is for tests, and of known sizes")]
mod reference;
#[cfg(test)]
#[allow(
    clippy::unwrap_used,
    reason = "a test that unwraps says what is wrong by failing where it is"
)]
mod tests;

pub(crate) use copy::copy;

use aether_collective::ReduceOp;
use aether_core::{DType, Stores};

use environment::DefaultEnvironment;
#[cfg(target_arch = "x86_64")]
use f16c::F16c;
use floats::{FloatMean, FloatProd, FloatSum};
use formats::{Brain, Double, F8E4M3, F8E5M2, Format, Half, Single};
use instructions::{InstructionSet, Run};
use integers::{Integer, IntegerMean, IntegerProd, IntegerSum, WideMean};
use order::{Max, Min, Order};

/// One reduction with its type resolved: chosen once per call, cheap to copy.
#[derive(Clone, Copy)]
pub(crate) struct Kernel {
    run: Run,
    /// What runs instead where there are more ranks than `run` is exact for.
    crowd: Option<Run>,
    /// The size of an element, in bytes.
    size: usize,
}

impl Kernel {
    /// The kernel that reduces `dtype` by `op`, compiled for the best instructions of this
    /// processor. None where the type can't be reduced (bool).
    pub(crate) fn select(dtype: DType, op: ReduceOp) -> Option<Self> {
        Self::select_for(InstructionSet::best(), dtype, op)
    }

    /// Reduces elements `[0, count)` of each source in rank order (`sources[0]` first), and writes
    /// the result to every destination. `ranks` is what Mean divides by.
    ///
    /// One source of one rank is copied, bit for bit. No sources, or no elements, write nothing. The
    /// stores have to be settled before anybody else is told.
    ///
    /// # Safety
    /// - Every source is valid for reads of `count` elements, every destination for writes.
    /// - All are aligned to the size of an element; no more is needed.
    /// - A destination is either exactly one of the sources (in place) or overlaps none of them.
    /// - Destinations don't overlap each other.
    /// - Meanwhile no one else writes the sources or touches the destinations.
    pub(crate) unsafe fn reduce(
        &self,
        sources: &[*const u8],
        destinations: &[*mut u8],
        count: usize,
        ranks: usize,
        stores: Stores,
    ) {
        // Zero can't be divided by; no caller has zero ranks.
        let ranks = ranks.max(1);
        if let ([source], 1) = (sources, ranks) {
            // The product can't overflow: the caller's memory has that many bytes.
            let bytes = count * self.size;
            // SAFETY: the contract of this method is what `copy` asks for, with elements of `size`
            // bytes counted in bytes.
            return unsafe { copy::copy(*source, destinations, bytes, stores) };
        }
        let run = match self.crowd {
            Some(crowd) if ranks.max(sources.len()) > integers::EXACT_RANKS => crowd,
            _ => self.run,
        };
        let _environment = DefaultEnvironment::enter();
        // SAFETY: the contract of this method is the contract of a `Run`; the processor has the
        // instructions, because `select_for` was given a set that it has.
        unsafe { run(sources, destinations, count, ranks, stores) }
    }

    /// As [`Kernel::select`], with instructions that the processor must have.
    fn select_for(set: InstructionSet, dtype: DType, op: ReduceOp) -> Option<Self> {
        match dtype {
            DType::BF16 => Self::float::<Brain, Brain>(set, op),
            DType::F16 => match set {
                InstructionSet::Baseline => Self::float::<Half, Half>(set, op),
                #[cfg(target_arch = "x86_64")]
                InstructionSet::Avx2 => Self::float::<F16c<Half>, Half>(set, op),
            },
            DType::F32 => Self::float::<Single, Single>(set, op),
            DType::F64 => Self::float::<Double, Double>(set, op),
            DType::F8E4M3 => Self::float::<F8E4M3, F8E4M3>(set, op),
            DType::F8E5M2 => match set {
                InstructionSet::Baseline => Self::float::<F8E5M2, F8E5M2>(set, op),
                #[cfg(target_arch = "x86_64")]
                InstructionSet::Avx2 => Self::float::<F16c<F8E5M2>, F8E5M2>(set, op),
            },
            DType::I16 => Self::integer::<i16>(set, op),
            DType::I32 => Self::integer::<i32>(set, op),
            DType::I64 => Self::wide::<i64>(set, op),
            DType::I8 => Self::integer::<i8>(set, op),
            DType::U16 => Self::integer::<u16>(set, op),
            DType::U32 => Self::integer::<u32>(set, op),
            DType::U64 => Self::wide::<u64>(set, op),
            DType::U8 => Self::integer::<u8>(set, op),
            // Bool is moved, never reduced; a type that is not known here can't be.
            _ => None,
        }
    }

    /// Floats whose arithmetic is that of `F` and whose order is that of `O`.
    fn float<F: Format, O: Order<Element = F::Bits>>(
        set: InstructionSet,
        op: ReduceOp,
    ) -> Option<Self> {
        let run = match op {
            ReduceOp::Max => set.compiled::<Max<O>>(),
            ReduceOp::Mean => set.compiled::<FloatMean<F>>(),
            ReduceOp::Min => set.compiled::<Min<O>>(),
            ReduceOp::Prod => set.compiled::<FloatProd<F>>(),
            ReduceOp::Sum => set.compiled::<FloatSum<F>>(),
            _ => return None,
        };
        Some(Self { run, crowd: None, size: size_of::<F::Bits>() })
    }

    /// Integers of at most 32 bits, whose mean is exact in f64 but for very many ranks.
    fn integer<T: Integer + Into<f64>>(set: InstructionSet, op: ReduceOp) -> Option<Self> {
        let wide = Self::wide::<T>(set, op)?;
        Some(match op {
            ReduceOp::Mean => {
                Self { run: set.compiled::<IntegerMean<T>>(), crowd: Some(wide.run), ..wide }
            }
            _ => wide,
        })
    }

    /// Integers of any size.
    fn wide<T: Integer>(set: InstructionSet, op: ReduceOp) -> Option<Self> {
        let run = match op {
            ReduceOp::Max => set.compiled::<Max<T>>(),
            ReduceOp::Mean => set.compiled::<WideMean<T>>(),
            ReduceOp::Min => set.compiled::<Min<T>>(),
            ReduceOp::Prod => set.compiled::<IntegerProd<T::Wrapping>>(),
            ReduceOp::Sum => set.compiled::<IntegerSum<T::Wrapping>>(),
            _ => return None,
        };
        Some(Self { run, crowd: None, size: size_of::<T>() })
    }
}

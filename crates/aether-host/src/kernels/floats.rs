//! Sum, Prod and Mean of floats, in the accumulator of their format.

use std::marker::PhantomData;

use super::fold::Reduction;
use super::formats::{Format, Wide};

/// The sum, in rank order.
pub(super) struct FloatSum<F>(PhantomData<F>);

impl<F: Format> Reduction for FloatSum<F> {
    type Element = F::Bits;
    type Accumulator = F::Wide;
    type Divisor = ();

    #[inline(always)]
    fn divisor(_: usize) {}

    #[inline(always)]
    fn load(element: F::Bits) -> F::Wide {
        F::decode(element)
    }

    #[inline(always)]
    fn combine(left: F::Wide, right: F::Wide) -> F::Wide {
        left + right
    }

    #[inline(always)]
    fn finish(accumulator: F::Wide, (): ()) -> F::Bits {
        F::encode(accumulator)
    }
}

/// The product, in rank order.
pub(super) struct FloatProd<F>(PhantomData<F>);

impl<F: Format> Reduction for FloatProd<F> {
    type Element = F::Bits;
    type Accumulator = F::Wide;
    type Divisor = ();

    #[inline(always)]
    fn divisor(_: usize) {}

    #[inline(always)]
    fn load(element: F::Bits) -> F::Wide {
        F::decode(element)
    }

    #[inline(always)]
    fn combine(left: F::Wide, right: F::Wide) -> F::Wide {
        left * right
    }

    #[inline(always)]
    fn finish(accumulator: F::Wide, (): ()) -> F::Bits {
        F::encode(accumulator)
    }
}

/// The sum, in rank order, divided once.
pub(super) struct FloatMean<F>(PhantomData<F>);

impl<F: Format> Reduction for FloatMean<F> {
    type Element = F::Bits;
    type Accumulator = F::Wide;
    type Divisor = F::Wide;

    #[inline(always)]
    fn divisor(ranks: usize) -> F::Wide {
        F::Wide::from_ranks(ranks)
    }

    #[inline(always)]
    fn load(element: F::Bits) -> F::Wide {
        F::decode(element)
    }

    #[inline(always)]
    fn combine(left: F::Wide, right: F::Wide) -> F::Wide {
        left + right
    }

    #[inline(always)]
    fn finish(accumulator: F::Wide, divisor: F::Wide) -> F::Bits {
        // The division is in the accumulator's type, so that it is rounded there and then once
        // more to the element's, and a sum that exceeds the element's range still has its mean.
        F::encode(accumulator / divisor)
    }
}

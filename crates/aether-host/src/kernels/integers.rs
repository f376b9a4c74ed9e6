//! Sum, Prod and Mean of integers.

use std::marker::PhantomData;

use super::fold::Reduction;
use super::order::Order;

/// The most ranks for which [`IntegerMean`] is exact. With elements of at most 32 bits a sum is
/// then at most 2^52 in magnitude, so that f64 holds it. The quotient by n is rounded, but never
/// up to the next integer: that is at least 1/n away, and half a unit in the last place of the
/// quotient is less as long as sum + n is less than 2^53.
pub(super) const EXACT_RANKS: usize = 1 << 20;

/// An integer type.
pub(super) trait Integer: Copy + Order<Element = Self> {
    /// The type of the same size whose arithmetic is the same where it wraps, so that the loops
    /// are compiled for one of the two only.
    type Wrapping: Modular;
    /// A type that holds the sum of as many as there can be.
    type Exact: Copy;

    /// From the mean in f64, whose magnitude is no more than the largest element's.
    fn truncated(mean: f64) -> Self;
    /// In the type of the sum.
    fn exact(self) -> Self::Exact;
    /// The sum of two sums.
    fn exact_sum(left: Self::Exact, right: Self::Exact) -> Self::Exact;
    /// The mean of `ranks` elements with that sum, truncated toward zero.
    fn exact_mean(sum: Self::Exact, ranks: usize) -> Self;
}

/// Arithmetic modulo the type's range.
pub(super) trait Modular: Copy {
    /// The wrapping sum.
    fn sum(self, other: Self) -> Self;
    /// The wrapping product.
    fn product(self, other: Self) -> Self;
}

macro_rules! integers {
    ($($integer:ty: $wrapping:ty, $exact:ty;)*) => {$(
        impl Integer for $integer {
            type Wrapping = $wrapping;
            type Exact = $exact;

            #[inline(always)]
            fn truncated(mean: f64) -> Self {
                mean as Self
            }

            #[inline(always)]
            fn exact(self) -> $exact {
                self.into()
            }

            #[inline(always)]
            fn exact_sum(left: $exact, right: $exact) -> $exact {
                // Each element is at most 64 of the 128 bits, so that it takes 2^63 ranks to wrap.
                left.wrapping_add(right)
            }

            #[inline(always)]
            fn exact_mean(sum: $exact, ranks: usize) -> Self {
                (sum / ranks as $exact) as Self
            }
        }
    )*};
}

integers! {
    i16: u16, i128;
    i32: u32, i128;
    i64: u64, i128;
    i8: u8, i128;
    u16: u16, u128;
    u32: u32, u128;
    u64: u64, u128;
    u8: u8, u128;
}

macro_rules! modular {
    ($($integer:ty)*) => {$(
        impl Modular for $integer {
            #[inline(always)]
            fn sum(self, other: Self) -> Self {
                self.wrapping_add(other)
            }

            #[inline(always)]
            fn product(self, other: Self) -> Self {
                self.wrapping_mul(other)
            }
        }
    )*};
}

modular! { u8 u16 u32 u64 }

/// The wrapping sum.
pub(super) struct IntegerSum<T>(PhantomData<T>);

impl<T: Modular> Reduction for IntegerSum<T> {
    type Element = T;
    type Accumulator = T;
    type Divisor = ();

    #[inline(always)]
    fn divisor(_: usize) {}

    #[inline(always)]
    fn load(element: T) -> T {
        element
    }

    #[inline(always)]
    fn combine(left: T, right: T) -> T {
        left.sum(right)
    }

    #[inline(always)]
    fn finish(accumulator: T, (): ()) -> T {
        accumulator
    }
}

/// The wrapping product.
pub(super) struct IntegerProd<T>(PhantomData<T>);

impl<T: Modular> Reduction for IntegerProd<T> {
    type Element = T;
    type Accumulator = T;
    type Divisor = ();

    #[inline(always)]
    fn divisor(_: usize) {}

    #[inline(always)]
    fn load(element: T) -> T {
        element
    }

    #[inline(always)]
    fn combine(left: T, right: T) -> T {
        left.product(right)
    }

    #[inline(always)]
    fn finish(accumulator: T, (): ()) -> T {
        accumulator
    }
}

/// The exact mean, truncated toward zero, of integers of at most 32 bits over at most
/// [`EXACT_RANKS`] ranks: in f64, because that divides several at once.
pub(super) struct IntegerMean<T>(PhantomData<T>);

impl<T: Integer + Into<f64>> Reduction for IntegerMean<T> {
    type Element = T;
    type Accumulator = f64;
    type Divisor = f64;

    #[inline(always)]
    fn divisor(ranks: usize) -> f64 {
        ranks as f64
    }

    #[inline(always)]
    fn load(element: T) -> f64 {
        element.into()
    }

    #[inline(always)]
    fn combine(left: f64, right: f64) -> f64 {
        left + right
    }

    #[inline(always)]
    fn finish(accumulator: f64, divisor: f64) -> T {
        T::truncated(accumulator / divisor)
    }
}

/// The exact mean, truncated toward zero, of any integers over any number of ranks.
pub(super) struct WideMean<T>(PhantomData<T>);

impl<T: Integer> Reduction for WideMean<T> {
    type Element = T;
    type Accumulator = T::Exact;
    type Divisor = usize;

    #[inline(always)]
    fn divisor(ranks: usize) -> usize {
        ranks
    }

    #[inline(always)]
    fn load(element: T) -> T::Exact {
        element.exact()
    }

    #[inline(always)]
    fn combine(left: T::Exact, right: T::Exact) -> T::Exact {
        T::exact_sum(left, right)
    }

    #[inline(always)]
    fn finish(accumulator: T::Exact, divisor: usize) -> T {
        T::exact_mean(accumulator, divisor)
    }
}

//! Min and Max of every type, as the minimum and maximum of integer keys.
//!
//! The key of a float is its bits with the magnitude inverted where the sign is set: that orders
//! all values, with -0 below +0, and takes no part in the floating-point environment. NaN gets the
//! key that no other value can beat. Elements of 8 and 16 bits are compared as they are.

use std::marker::PhantomData;

use super::fold::Reduction;
use super::formats::{Brain, Double, F8E4M3, F8E5M2, Half, Single};

/// A type whose elements have an order.
pub(super) trait Order {
    /// The element as it lies in memory.
    type Element: Copy;
    /// What is compared.
    type Key: Ord + Copy;

    /// The key of an element for a minimum.
    fn min_key(element: Self::Element) -> Self::Key;
    /// The key of an element for a maximum.
    fn max_key(element: Self::Element) -> Self::Key;
    /// The element that has that key in a minimum.
    fn from_min_key(key: Self::Key) -> Self::Element;
    /// The element that has that key in a maximum.
    fn from_max_key(key: Self::Key) -> Self::Element;
}

/// The smallest; NaN where there is one.
pub(super) struct Min<O>(PhantomData<O>);

impl<O: Order> Reduction for Min<O> {
    type Element = O::Element;
    type Accumulator = O::Key;
    type Divisor = ();

    #[inline(always)]
    fn divisor(_: usize) {}

    #[inline(always)]
    fn load(element: O::Element) -> O::Key {
        O::min_key(element)
    }

    #[inline(always)]
    fn combine(left: O::Key, right: O::Key) -> O::Key {
        left.min(right)
    }

    #[inline(always)]
    fn finish(accumulator: O::Key, (): ()) -> O::Element {
        O::from_min_key(accumulator)
    }
}

/// The largest; NaN where there is one.
pub(super) struct Max<O>(PhantomData<O>);

impl<O: Order> Reduction for Max<O> {
    type Element = O::Element;
    type Accumulator = O::Key;
    type Divisor = ();

    #[inline(always)]
    fn divisor(_: usize) {}

    #[inline(always)]
    fn load(element: O::Element) -> O::Key {
        O::max_key(element)
    }

    #[inline(always)]
    fn combine(left: O::Key, right: O::Key) -> O::Key {
        left.max(right)
    }

    #[inline(always)]
    fn finish(accumulator: O::Key, (): ()) -> O::Element {
        O::from_max_key(accumulator)
    }
}

macro_rules! floats {
    ($($format:ident: $bits:ty, $key:ty, top $top:literal, nan $nan:literal;)*) => {$(
        impl $format {
            /// The magnitude is beyond that of infinity, or of the largest value.
            #[inline(always)]
            fn is_nan(bits: $bits) -> bool {
                bits & (<$bits>::MAX >> 1) > $top
            }

            /// Inverts the magnitude of what is negative; it is its own inverse.
            #[inline(always)]
            fn fold_sign(key: $key) -> $key {
                let negative = (key >> (<$key>::BITS - 1)) as $bits;
                key ^ (negative >> 1) as $key
            }
        }

        impl Order for $format {
            type Element = $bits;
            type Key = $key;

            #[inline(always)]
            fn min_key(bits: $bits) -> $key {
                let key = Self::fold_sign(bits as $key);
                if Self::is_nan(bits) { <$key>::MIN } else { key }
            }

            #[inline(always)]
            fn max_key(bits: $bits) -> $key {
                let key = Self::fold_sign(bits as $key);
                if Self::is_nan(bits) { <$key>::MAX } else { key }
            }

            #[inline(always)]
            fn from_min_key(key: $key) -> $bits {
                if key == <$key>::MIN { $nan } else { Self::fold_sign(key) as $bits }
            }

            #[inline(always)]
            fn from_max_key(key: $key) -> $bits {
                if key == <$key>::MAX { $nan } else { Self::fold_sign(key) as $bits }
            }
        }
    )*};
}

floats! {
    Brain: u16, i16, top 0x7f80, nan 0x7fc0;
    Double: u64, i64, top 0x7ff0_0000_0000_0000, nan 0x7ff8_0000_0000_0000;
    F8E4M3: u8, i8, top 0x7e, nan 0x7f;
    F8E5M2: u8, i8, top 0x7c, nan 0x7e;
    Half: u16, i16, top 0x7c00, nan 0x7e00;
    Single: u32, i32, top 0x7f80_0000, nan 0x7fc0_0000;
}

macro_rules! integers {
    ($($integer:ty)*) => {$(
        impl Order for $integer {
            type Element = $integer;
            type Key = $integer;

            #[inline(always)]
            fn min_key(element: $integer) -> $integer {
                element
            }

            #[inline(always)]
            fn max_key(element: $integer) -> $integer {
                element
            }

            #[inline(always)]
            fn from_min_key(key: $integer) -> $integer {
                key
            }

            #[inline(always)]
            fn from_max_key(key: $integer) -> $integer {
                key
            }
        }
    )*};
}

integers! { i8 i16 i32 i64 u8 u16 u32 u64 }

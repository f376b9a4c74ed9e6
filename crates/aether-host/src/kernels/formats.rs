//! The floating-point types: their bits, and the type that their arithmetic is done in.

use std::ops::{Add, Div, Mul};

use super::minifloat::{Minifloat, decode, encode};

/// A floating-point type as it lies in memory.
pub(super) trait Format {
    /// The bits of an element.
    type Bits: Copy;
    /// What it is accumulated in: its own type, or f32 for those of 16 and 8 bits.
    type Wide: Wide;

    /// The value, exactly.
    fn decode(bits: Self::Bits) -> Self::Wide;
    /// The nearest element, of two equally near the even one; of NaN the canonical one.
    fn encode(value: Self::Wide) -> Self::Bits;
}

/// A type that floats are accumulated in.
pub(super) trait Wide:
    Copy + Add<Output = Self> + Div<Output = Self> + Mul<Output = Self>
{
    /// The number of ranks, to divide by.
    fn from_ranks(ranks: usize) -> Self;
}

impl Wide for f32 {
    #[inline(always)]
    fn from_ranks(ranks: usize) -> Self {
        ranks as Self
    }
}

impl Wide for f64 {
    #[inline(always)]
    fn from_ranks(ranks: usize) -> Self {
        ranks as Self
    }
}

/// f32.
pub(super) enum Single {}

impl Format for Single {
    type Bits = u32;
    type Wide = f32;

    #[inline(always)]
    fn decode(bits: u32) -> f32 {
        f32::from_bits(bits)
    }

    #[inline(always)]
    fn encode(value: f32) -> u32 {
        if value.is_nan() { 0x7fc0_0000 } else { value.to_bits() }
    }
}

/// f64.
pub(super) enum Double {}

impl Format for Double {
    type Bits = u64;
    type Wide = f64;

    #[inline(always)]
    fn decode(bits: u64) -> f64 {
        f64::from_bits(bits)
    }

    #[inline(always)]
    fn encode(value: f64) -> u64 {
        if value.is_nan() { 0x7ff8_0000_0000_0000 } else { value.to_bits() }
    }
}

/// bf16: the upper half of an f32.
pub(super) enum Brain {}

impl Format for Brain {
    type Bits = u16;
    type Wide = f32;

    #[inline(always)]
    fn decode(bits: u16) -> f32 {
        f32::from_bits(u32::from(bits) << 16)
    }

    #[inline(always)]
    fn encode(value: f32) -> u16 {
        let bits = value.to_bits();
        // Just under a half of the last place, and the rest of it where that place is odd: what is
        // more than a half carries, and what is exactly a half carries to the even neighbour. The
        // carry goes through the exponent, and past the largest finite value it gives infinity.
        let odd = (bits >> 16) & 1;
        let rounded = (bits.wrapping_add(0x7fff + odd) >> 16) as u16;
        if value.is_nan() { 0x7fc0 } else { rounded }
    }
}

/// The formats that differ in their constants alone.
macro_rules! minifloats {
    ($($(#[$doc:meta])* $name:ident: $bits:ty = $exponent:literal, $fraction:literal,
        infinity $infinity:literal;)*) => {$(
        $(#[$doc])*
        pub(super) enum $name {}

        impl Minifloat for $name {
            const EXPONENT: u32 = $exponent;
            const FRACTION: u32 = $fraction;
            const INFINITY: bool = $infinity;
        }

        impl Format for $name {
            type Bits = $bits;
            type Wide = f32;

            #[inline(always)]
            fn decode(bits: $bits) -> f32 {
                decode::<Self>(u32::from(bits))
            }

            #[inline(always)]
            fn encode(value: f32) -> $bits {
                encode::<Self>(value) as $bits
            }
        }
    )*};
}

minifloats! {
    /// f16.
    Half: u16 = 5, 10, infinity true;
    /// f8e4m3, whose largest exponent holds finite values and one NaN of each sign.
    F8E4M3: u8 = 4, 3, infinity false;
    /// f8e5m2.
    F8E5M2: u8 = 5, 2, infinity true;
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Values around which rounding to a format could go wrong: every one of `values`, its
    /// midpoint with its neighbour, and the f32 just below and above those; with both signs.
    fn probes(values: &[f32]) -> impl Iterator<Item = f32> {
        let pairs = values.windows(2).map(|pair| (pair[0], pair[1]));
        pairs
            .flat_map(|(low, high)| [low, ((f64::from(low) + f64::from(high)) / 2.0) as f32])
            .flat_map(|value| [value, value.next_down(), value.next_up()])
            .flat_map(|value| [value, -value])
    }

    #[test]
    #[cfg_attr(miri, ignore = "exhaustive, and about values rather than memory")]
    fn bf16_and_f16_decode_as_half_does() {
        for bits in 0..=u16::MAX {
            let (half, brain) = (half::f16::from_bits(bits), half::bf16::from_bits(bits));
            if half.is_nan() {
                assert!(Half::decode(bits).is_nan(), "f16 {bits:#x}");
            } else {
                assert_eq!(Half::decode(bits).to_bits(), half.to_f32().to_bits(), "f16 {bits:#x}");
            }
            assert_eq!(Brain::decode(bits).to_bits() >> 16, u32::from(bits));
            assert_eq!(Brain::decode(bits).is_nan(), brain.is_nan(), "bf16 {bits:#x}");
        }
    }

    #[test]
    #[cfg_attr(miri, ignore = "exhaustive, and about values rather than memory")]
    fn f16_and_bf16_encode_to_nearest_even_around_every_value_and_midpoint() {
        // One past the largest finite value stands the value that would follow it.
        let halves: Vec<f32> = (0..0x7c00)
            .map(|bits| half::f16::from_bits(bits).to_f32())
            .chain([65536.0, 131072.0])
            .collect();
        for value in probes(&halves) {
            let expected = half::f16::from_f32(value).to_bits();
            assert_eq!(Half::encode(value), expected, "f16 of {value:e}");
        }
        let brains: Vec<f32> =
            (0..=0x7f80).map(|bits| half::bf16::from_bits(bits).to_f32()).collect();
        for value in probes(&brains) {
            if value.is_nan() {
                assert_eq!(Brain::encode(value), 0x7fc0);
            } else {
                let expected = half::bf16::from_f32(value).to_bits();
                assert_eq!(Brain::encode(value), expected, "bf16 of {value:e}");
            }
        }
    }

    #[test]
    fn every_nan_encodes_to_the_canonical_one() {
        for bits in [0x7f80_0001_u32, 0x7fc0_0000, 0x7fff_ffff, 0xff80_0001, 0xffc0_0000, u32::MAX]
        {
            let nan = f32::from_bits(bits);
            assert_eq!(Single::encode(nan), 0x7fc0_0000);
            assert_eq!(Brain::encode(nan), 0x7fc0);
            assert_eq!(Half::encode(nan), 0x7e00);
            assert_eq!(F8E4M3::encode(nan), 0x7f);
            assert_eq!(F8E5M2::encode(nan), 0x7e);
        }
        for bits in [0x7ff0_0000_0000_0001_u64, 0xfff8_0000_0000_0000, u64::MAX] {
            assert_eq!(Double::encode(f64::from_bits(bits)), 0x7ff8_0000_0000_0000);
        }
    }

    #[test]
    #[cfg_attr(miri, ignore = "exhaustive, and about values rather than memory")]
    fn f8_encodes_to_nearest_even_around_every_value_and_midpoint() {
        use super::super::reference::{Eighth, encode_eighth};
        let wide = [0.0, f32::from_bits(1), 1e-30, 463.9, 464.0, 464.1, 480.0, 496.0, 512.0, 1e30];
        for (eighth, past) in [(Eighth::E4M3, [480.0, 512.0]), (Eighth::E5M2, [65536.0, 131072.0])]
        {
            let values: Vec<f32> = eighth.finite().chain(past).collect();
            let infinities = [f32::INFINITY, f32::NEG_INFINITY];
            for value in probes(&values).chain(probes(&wide)).chain(infinities) {
                let encoded = match eighth {
                    Eighth::E4M3 => F8E4M3::encode(value),
                    Eighth::E5M2 => F8E5M2::encode(value),
                };
                assert_eq!(encoded, encode_eighth(eighth, value), "{eighth:?} of {value:e}");
            }
        }
    }

    /// 2 to that power, exactly: `powi` promises no precision.
    fn power(exponent: i32) -> f32 {
        f32::from_bits(((127 + exponent) as u32) << 23)
    }

    #[test]
    fn f8_decodes_by_the_formula_and_as_float8_does() {
        for bits in 0..=u8::MAX {
            let sign = if bits & 0x80 == 0 { 1.0 } else { -1.0 };
            let (exponent, fraction) = (i32::from(bits >> 3 & 0xf), f32::from(bits & 7));
            let expected = match (exponent, bits & 7) {
                (0xf, 7) => f32::NAN,
                (0, _) => sign * fraction * power(-9),
                _ => sign * (1.0 + fraction / 8.0) * power(exponent - 7),
            };
            let found = F8E4M3::decode(bits);
            let theirs = float8::F8E4M3::from_bits(bits).to_f32();
            assert_eq!(found.is_nan(), expected.is_nan(), "e4m3 {bits:#x}");
            assert_eq!(found.is_nan(), theirs.is_nan(), "e4m3 {bits:#x}");
            if !found.is_nan() {
                assert_eq!(found.to_bits(), expected.to_bits(), "e4m3 {bits:#x}");
                assert_eq!(found.to_bits(), theirs.to_bits(), "e4m3 {bits:#x}");
            }

            let (exponent, fraction) = (i32::from(bits >> 2 & 0x1f), f32::from(bits & 3));
            let expected = match (exponent, bits & 3) {
                (0x1f, 0) => sign * f32::INFINITY,
                (0x1f, _) => f32::NAN,
                (0, _) => sign * fraction * power(-16),
                _ => sign * (1.0 + fraction / 4.0) * power(exponent - 15),
            };
            let found = F8E5M2::decode(bits);
            let theirs = float8::F8E5M2::from_bits(bits).to_f32();
            assert_eq!(found.is_nan(), expected.is_nan(), "e5m2 {bits:#x}");
            assert_eq!(found.is_nan(), theirs.is_nan(), "e5m2 {bits:#x}");
            if !found.is_nan() {
                assert_eq!(found.to_bits(), expected.to_bits(), "e5m2 {bits:#x}");
                assert_eq!(found.to_bits(), theirs.to_bits(), "e5m2 {bits:#x}");
            }
        }
    }
}

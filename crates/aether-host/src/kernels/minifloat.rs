//! Small floating-point formats from and to f32, without branches.
//!
//! They are written on the bits, so that the compiler vectorises them on any processor. The one
//! floating-point addition in each relies on the default environment.

/// The constants of a format narrower than f32 in exponent and fraction.
pub(super) trait Minifloat {
    /// Bits of the exponent.
    const EXPONENT: u32;
    /// Bits of the fraction.
    const FRACTION: u32;
    /// Whether the largest exponent is set aside for infinity and NaN, as IEEE 754 does. Without,
    /// only all ones are NaN, and what overflows is NaN.
    const INFINITY: bool;
}

/// What follows from the constants of a format.
struct Layout<M>(std::marker::PhantomData<M>);

impl<M: Minifloat> Layout<M> {
    /// Where the sign is.
    const SIGN: u32 = M::EXPONENT + M::FRACTION;
    /// The code without its sign.
    const MAGNITUDE: u32 = (1 << Self::SIGN) - 1;
    /// The largest magnitude that is no NaN: infinity, or the largest finite one.
    const TOP: u32 = Self::MAGNITUDE - if M::INFINITY { (1 << M::FRACTION) - 1 } else { 1 };
    /// The canonical NaN.
    const NAN: u32 = if M::INFINITY { Self::TOP | 1 << (M::FRACTION - 1) } else { Self::MAGNITUDE };
    /// The bits that f32's fraction has more.
    const SHIFT: u32 = F32_FRACTION - M::FRACTION;
    /// What f32's exponent is larger by, for the same value.
    const OFFSET: u32 = 127 - ((1 << (M::EXPONENT - 1)) - 1);
    /// That, where f32's exponent is.
    const REBIAS: u32 = Self::OFFSET << F32_FRACTION;
    /// The smallest normal value, as f32.
    const NORMAL: u32 = Self::REBIAS + F32_EXPONENT_ONE;
    /// The f32 whose last place is the smallest subnormal value.
    const SUBNORMAL_UNIT: u32 = (Self::OFFSET + Self::SHIFT + 1) << F32_FRACTION;
}

const F32_FRACTION: u32 = 23;
const F32_EXPONENT_ONE: u32 = 1 << F32_FRACTION;
const F32_INFINITY: u32 = 0x7f80_0000;
const F32_NAN: u32 = 0x7fc0_0000;

/// The value of a code, exactly.
#[inline(always)]
pub(super) fn decode<M: Minifloat>(code: u32) -> f32 {
    let magnitude = code & Layout::<M>::MAGNITUDE;
    let normal = (magnitude << Layout::<M>::SHIFT) + Layout::<M>::REBIAS;
    // With the exponent of the smallest normal value a subnormal code has an implicit one too many.
    let subnormal = f32::from_bits(normal + F32_EXPONENT_ONE) - f32::from_bits(Layout::<M>::NORMAL);
    let finite = if magnitude < 1 << M::FRACTION { subnormal.to_bits() } else { normal };
    // Infinity and NaN keep their fraction under f32's largest exponent, any NaN being as good as
    // another; without infinity there is the one NaN.
    let special = if M::INFINITY { normal + Layout::<M>::REBIAS } else { F32_NAN };
    let top = Layout::<M>::TOP + if M::INFINITY { 0 } else { 1 };
    let wide = if magnitude < top { finite } else { special };
    f32::from_bits(wide | (code >> Layout::<M>::SIGN) << 31)
}

/// The code of the nearest value, of two equally near the even one; of NaN the canonical one.
#[inline(always)]
pub(super) fn encode<M: Minifloat>(value: f32) -> u32 {
    let bits = value.to_bits();
    let magnitude = bits & 0x7fff_ffff;
    // As for bf16: just under a half of the last place, and the rest where that place is odd.
    let odd = (magnitude >> Layout::<M>::SHIFT) & 1;
    let half = (1 << (Layout::<M>::SHIFT - 1)) - 1 + odd;
    // This wraps for values that are subnormal here, for which it isn't used.
    let normal =
        magnitude.wrapping_sub(Layout::<M>::REBIAS).wrapping_add(half) >> Layout::<M>::SHIFT;
    // The addition rounds at the last place of the unit, to the even one of two: that is the code.
    let unit = Layout::<M>::SUBNORMAL_UNIT;
    let subnormal = (f32::from_bits(magnitude) + f32::from_bits(unit)).to_bits().wrapping_sub(unit);
    let code = if magnitude < Layout::<M>::NORMAL { subnormal } else { normal };
    let nan = magnitude > F32_INFINITY || (!M::INFINITY && code > Layout::<M>::TOP);
    let signed = code.min(Layout::<M>::TOP) | (bits >> 31) << Layout::<M>::SIGN;
    if nan { Layout::<M>::NAN } else { signed }
}

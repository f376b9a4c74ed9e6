//! Decoding by the processor's own conversion from f16, where it has F16C.
//!
//! The intrinsic is used on one element at a time; the compiler makes the wide one of it together
//! with the loop around. The values are those of [`super::formats`]; NaN may differ in its bits,
//! which no reduction lets through. Rounding stays with `formats`, and so does e4m3, whose NaN would
//! take more steps than the conversion saves.

use std::arch::x86_64::{_mm_cvtph_ps, _mm_cvtsi32_si128, _mm_cvtss_f32};
use std::marker::PhantomData;

use super::formats::{F8E5M2, Format, Half};

/// A format that is decoded by the processor. Code that decodes it may run only where F16C is:
/// [`super::Kernel`] chooses it for nothing but the loops that are compiled for it.
pub(super) struct F16c<F>(PhantomData<F>);

impl Format for F16c<Half> {
    type Bits = u16;
    type Wide = f32;

    #[inline(always)]
    fn decode(bits: u16) -> f32 {
        convert(bits)
    }

    #[inline(always)]
    fn encode(value: f32) -> u16 {
        Half::encode(value)
    }
}

impl Format for F16c<F8E5M2> {
    type Bits = u8;
    type Wide = f32;

    #[inline(always)]
    fn decode(bits: u8) -> f32 {
        // It is the upper byte of an f16.
        convert(u16::from(bits) << 8)
    }

    #[inline(always)]
    fn encode(value: f32) -> u8 {
        F8E5M2::encode(value)
    }
}

#[inline(always)]
fn convert(bits: u16) -> f32 {
    // SAFETY: the processor has F16C, as the documentation of `F16c` asks of who uses it.
    unsafe { vcvtph2ps(bits) }
}

#[inline]
#[target_feature(enable = "sse2,f16c")]
fn vcvtph2ps(bits: u16) -> f32 {
    _mm_cvtss_f32(_mm_cvtph_ps(_mm_cvtsi32_si128(i32::from(bits))))
}

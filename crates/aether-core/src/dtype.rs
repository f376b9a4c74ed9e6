//! Element types: the closed list that travels at run time, and the Rust types that have one.

use std::fmt;
use std::str::FromStr;

use float8::{F8E4M3, F8E5M2};
use half::{bf16, f16};

use crate::{Error, ErrorKind};

/// The type of an element, as it is known at run time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum DType {
    /// The brain float: 8 bits of exponent, 7 of fraction.
    BF16,
    /// One byte, 0 or 1. It is moved and never reduced, and it is no [`Element`].
    Bool,
    /// IEEE binary16.
    F16,
    /// IEEE binary32.
    F32,
    /// IEEE binary64.
    F64,
    /// OCP FP8 E4M3: finite and NaN, no infinity.
    F8E4M3,
    /// OCP FP8 E5M2.
    F8E5M2,
    /// Signed, 16 bits.
    I16,
    /// Signed, 32 bits.
    I32,
    /// Signed, 64 bits.
    I64,
    /// Signed, 8 bits.
    I8,
    /// Unsigned, 16 bits.
    U16,
    /// Unsigned, 32 bits.
    U32,
    /// Unsigned, 64 bits.
    U64,
    /// Unsigned, 8 bits.
    U8,
}

impl DType {
    /// Every element type.
    pub const ALL: [Self; 15] = [
        Self::BF16,
        Self::Bool,
        Self::F16,
        Self::F32,
        Self::F64,
        Self::F8E4M3,
        Self::F8E5M2,
        Self::I16,
        Self::I32,
        Self::I64,
        Self::I8,
        Self::U16,
        Self::U32,
        Self::U64,
        Self::U8,
    ];

    /// The size of one element, in bytes, which is also its alignment.
    #[inline]
    pub const fn size(self) -> usize {
        match self {
            Self::Bool | Self::F8E4M3 | Self::F8E5M2 | Self::I8 | Self::U8 => 1,
            Self::BF16 | Self::F16 | Self::I16 | Self::U16 => 2,
            Self::F32 | Self::I32 | Self::U32 => 4,
            Self::F64 | Self::I64 | Self::U64 => 8,
        }
    }

    /// The name, as [`DType::from_str`] reads it: `f32`, `bf16`, `f8e4m3`, `bool`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::BF16 => "bf16",
            Self::Bool => "bool",
            Self::F16 => "f16",
            Self::F32 => "f32",
            Self::F64 => "f64",
            Self::F8E4M3 => "f8e4m3",
            Self::F8E5M2 => "f8e5m2",
            Self::I16 => "i16",
            Self::I32 => "i32",
            Self::I64 => "i64",
            Self::I8 => "i8",
            Self::U16 => "u16",
            Self::U32 => "u32",
            Self::U64 => "u64",
            Self::U8 => "u8",
        }
    }
}

impl fmt::Display for DType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for DType {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        Self::ALL.into_iter().find(|it| it.name() == text).ok_or_else(|| {
            let known = Self::ALL.map(Self::name).join(", ");
            Error::new(
                ErrorKind::Parse,
                "parse an element type",
                format!("`{text}` is none of {known}"),
            )
        })
    }
}

/// A Rust type that is an element of device memory.
///
/// # Safety
/// Every bit pattern of `Self` is a value, `Self` has no padding, and its size and alignment are
/// those of [`Element::DTYPE`]: memory that anything was copied into may be read as `Self`.
pub unsafe trait Element:
    Copy + Default + PartialEq + fmt::Debug + Send + Sync + 'static
{
    /// The type as it is known at run time.
    const DTYPE: DType;
}

macro_rules! elements {
    ($($type:ty => $dtype:ident, $proof:literal;)*) => {$(
        const _: () = assert!(
            size_of::<$type>() == DType::$dtype.size() && align_of::<$type>() == DType::$dtype.size()
        );
        #[doc = concat!("Any bit pattern is a value: ", $proof, ".")]
        // SAFETY: the assertion above proves size and alignment on the target that is compiled for;
        // the type is a number without padding, and the proof for its bit patterns stands beside it
        // in the list below.
        unsafe impl Element for $type {
            const DTYPE: DType = DType::$dtype;
        }
    )*};
}

elements! {
    bf16 => BF16, "`half::bf16` is `repr(transparent)` over u16";
    f16 => F16, "`half::f16` is `repr(transparent)` over u16";
    f32 => F32, "the reference's `f32`: any bits are a float";
    f64 => F64, "the reference's `f64`: any bits are a float";
    F8E4M3 => F8E4M3, "`float8::F8E4M3` is one u8, and `from_bits` takes any";
    F8E5M2 => F8E5M2, "`float8::F8E5M2` is one u8, and `from_bits` takes any";
    i16 => I16, "an integer";
    i32 => I32, "an integer";
    i64 => I64, "an integer";
    i8 => I8, "an integer";
    u16 => U16, "an integer";
    u32 => U32, "an integer";
    u64 => U64, "an integer";
    u8 => U8, "an integer";
}

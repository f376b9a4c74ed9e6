//! The reductions once more, for the tests: one element after the other, in the plainest way.
//!
//! Nothing here is shared with the kernels. Halves are decoded and rounded by the crate `half`,
//! eighths decoded by the crate `float8` and rounded by a search through all of their values.

use aether_collective::ReduceOp;
use aether_core::DType;
use half::{bf16, f16};

/// The elements that a reduction of `sources` gives, as bytes.
pub(super) fn reduce(dtype: DType, op: ReduceOp, sources: &[Vec<u8>], ranks: usize) -> Vec<u8> {
    if sources.len() == 1 && ranks == 1 {
        return sources[0].clone();
    }
    let size = dtype.size();
    let count = sources[0].len() / size;
    let element = |index: usize| -> Vec<&[u8]> {
        sources.iter().map(|source| &source[index * size..][..size]).collect()
    };
    (0..count).flat_map(|index| reduce_one(dtype, op, &element(index), ranks)).collect()
}

fn reduce_one(dtype: DType, op: ReduceOp, elements: &[&[u8]], ranks: usize) -> Vec<u8> {
    let byte = |bytes: &&[u8]| bytes[0];
    let half = |bytes: &&[u8]| u16::from_ne_bytes([bytes[0], bytes[1]]);
    let word = |bytes: &&[u8]| u32::from_ne_bytes((*bytes).try_into().unwrap());
    let long = |bytes: &&[u8]| u64::from_ne_bytes((*bytes).try_into().unwrap());
    macro_rules! single {
        ($decode:expr) => {
            fold_f32(op, elements.iter().map($decode).collect(), ranks)
        };
    }
    macro_rules! integer {
        ($integer:ty, $read:expr) => {{
            let values = elements.iter().map(|it| $read(it) as $integer);
            let result = match op {
                ReduceOp::Sum => values.reduce(<$integer>::wrapping_add).unwrap(),
                ReduceOp::Prod => values.reduce(<$integer>::wrapping_mul).unwrap(),
                ReduceOp::Min => values.min().unwrap(),
                ReduceOp::Max => values.max().unwrap(),
                _ => (values.map(|it| it as i128).sum::<i128>() / ranks as i128) as $integer,
            };
            result.to_ne_bytes().to_vec()
        }};
    }
    match dtype {
        DType::BF16 => {
            let result = single!(|it| bf16::from_bits(half(it)).to_f32());
            let bits = if result.is_nan() { 0x7fc0 } else { bf16::from_f32(result).to_bits() };
            bits.to_ne_bytes().to_vec()
        }
        DType::F16 => {
            let result = single!(|it| f16::from_bits(half(it)).to_f32());
            let bits = if result.is_nan() { 0x7e00 } else { f16::from_f32(result).to_bits() };
            bits.to_ne_bytes().to_vec()
        }
        DType::F32 => {
            let result = single!(|it| f32::from_bits(word(it)));
            let bits = if result.is_nan() { 0x7fc0_0000 } else { result.to_bits() };
            bits.to_ne_bytes().to_vec()
        }
        DType::F64 => {
            let values = elements.iter().map(|it| f64::from_bits(long(it))).collect();
            let result = fold_f64(op, values, ranks);
            let bits = if result.is_nan() { 0x7ff8_0000_0000_0000 } else { result.to_bits() };
            bits.to_ne_bytes().to_vec()
        }
        DType::F8E4M3 => {
            vec![encode_eighth(Eighth::E4M3, single!(|it| Eighth::E4M3.decode(byte(it))))]
        }
        DType::F8E5M2 => {
            vec![encode_eighth(Eighth::E5M2, single!(|it| Eighth::E5M2.decode(byte(it))))]
        }
        DType::I16 => integer!(i16, half),
        DType::I32 => integer!(i32, word),
        DType::I64 => integer!(i64, long),
        DType::I8 => integer!(i8, byte),
        DType::U16 => integer!(u16, half),
        DType::U32 => integer!(u32, word),
        DType::U64 => integer!(u64, long),
        DType::U8 => integer!(u8, byte),
        other => unreachable!("{other} is not reduced"),
    }
}

macro_rules! fold_floats {
    ($name:ident, $float:ty) => {
        fn $name(op: ReduceOp, values: Vec<$float>, ranks: usize) -> $float {
            let extreme = matches!(op, ReduceOp::Min | ReduceOp::Max);
            if extreme && values.iter().any(|it| it.is_nan()) {
                return <$float>::NAN;
            }
            let mut result = values[0];
            for &value in &values[1..] {
                match op {
                    ReduceOp::Sum | ReduceOp::Mean => result += value,
                    ReduceOp::Prod => result *= value,
                    ReduceOp::Min => {
                        let smaller_zero = value == result && value.is_sign_negative();
                        if value < result || smaller_zero {
                            result = value;
                        }
                    }
                    _ => {
                        let larger_zero = value == result && value.is_sign_positive();
                        if value > result || larger_zero {
                            result = value;
                        }
                    }
                }
            }
            if op == ReduceOp::Mean { result / ranks as $float } else { result }
        }
    };
}

fold_floats!(fold_f32, f32);
fold_floats!(fold_f64, f64);

/// The formats of 8 bits.
#[derive(Clone, Copy, Debug)]
pub(super) enum Eighth {
    E4M3,
    E5M2,
}

impl Eighth {
    fn decode(self, bits: u8) -> f32 {
        match self {
            Self::E4M3 => float8::F8E4M3::from_bits(bits).to_f32(),
            Self::E5M2 => float8::F8E5M2::from_bits(bits).to_f32(),
        }
    }

    /// All finite values that aren't negative, ascending: the value of code 0, 1, and so on.
    pub(super) fn finite(self) -> impl Iterator<Item = f32> {
        (0..0x80).map(move |bits| self.decode(bits)).take_while(|it| it.is_finite())
    }

    /// The value that would follow the largest finite one.
    fn past(self) -> f32 {
        match self {
            Self::E4M3 => 480.0,
            Self::E5M2 => 65536.0,
        }
    }
}

/// The nearest of all values, and of two equally near that with the even code. What is nearest to
/// the value past the largest has no code: NaN for e4m3, infinity for e5m2.
pub(super) fn encode_eighth(eighth: Eighth, value: f32) -> u8 {
    let (overflow, nan) = match eighth {
        Eighth::E4M3 => (0x7f, 0x7f),
        Eighth::E5M2 => (0x7c, 0x7e),
    };
    if value.is_nan() {
        return nan;
    }
    let magnitude = f64::from(value.abs());
    let values: Vec<f64> = eighth.finite().chain([eighth.past()]).map(f64::from).collect();
    let mut code = values.len() - 1;
    for (low, pair) in values.windows(2).enumerate() {
        // The midpoint is exact, where the two distances would not be.
        let middle = (pair[0] + pair[1]) / 2.0;
        if magnitude < middle || (magnitude == middle && low % 2 == 0) {
            code = low;
            break;
        }
    }
    if code == values.len() - 1 && overflow == nan {
        return nan;
    }
    let code = if code == values.len() - 1 { overflow } else { code as u8 };
    if value.is_sign_negative() { code | 0x80 } else { code }
}

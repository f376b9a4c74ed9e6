//! What a reduction gives: one element after the other, in rank order, in the plainest way.
//!
//! Nothing here is shared with any driver. Elements are handled as their bits. Halves are decoded and
//! rounded by the crate `half`; eighths are decoded by their definition and rounded by a search through
//! all of their values.

use aether_collective::ReduceOp;
use aether_core::DType;
use half::{bf16, f16};

/// The elements that a reduction of the sources gives, as bytes. One source is copied.
///
/// Sources are taken as far as the shortest of them goes; bool and unknown types give nothing.
pub fn reduce(dtype: DType, op: ReduceOp, sources: &[Vec<u8>]) -> Vec<u8> {
    if let [only] = sources {
        return only.clone();
    }
    let columns: Vec<Vec<u64>> = sources.iter().map(|it| elements(dtype, it)).collect();
    let count = columns.iter().map(Vec::len).min().unwrap_or(0);
    let result = (0..count).map(|at| {
        let ranks: Vec<u64> = columns.iter().filter_map(|it| it.get(at).copied()).collect();
        reduce_one(dtype, op, &ranks)
    });
    bytes(dtype, result)
}

/// One element: what the ranks' elements give, all of them as bits.
pub fn reduce_one(dtype: DType, op: ReduceOp, ranks: &[u64]) -> u64 {
    match dtype {
        DType::F64 => {
            let values: Vec<f64> = ranks.iter().map(|&it| f64::from_bits(it)).collect();
            let result = fold_f64(op, &values);
            if result.is_nan() { canonical_nan(dtype) } else { result.to_bits() }
        }
        _ if is_float(dtype) => {
            let values: Vec<f32> = ranks.iter().map(|&it| decode(dtype, it)).collect();
            encode(dtype, fold_f32(op, &values))
        }
        _ => integer(dtype, op, ranks),
    }
}

/// Whether the type is a float.
pub fn is_float(dtype: DType) -> bool {
    matches!(
        dtype,
        DType::BF16 | DType::F16 | DType::F32 | DType::F64 | DType::F8E4M3 | DType::F8E5M2
    )
}

/// The bits of every element.
pub fn elements(dtype: DType, bytes: &[u8]) -> Vec<u64> {
    let element = |bytes: &[u8]| match *bytes {
        [a] => u64::from(a),
        [a, b] => u64::from(u16::from_ne_bytes([a, b])),
        [a, b, c, d] => u64::from(u32::from_ne_bytes([a, b, c, d])),
        [a, b, c, d, e, f, g, h] => u64::from_ne_bytes([a, b, c, d, e, f, g, h]),
        _ => 0,
    };
    bytes.chunks_exact(dtype.size()).map(element).collect()
}

/// The bytes of elements that are given as their bits.
pub fn bytes(dtype: DType, elements: impl IntoIterator<Item = u64>) -> Vec<u8> {
    let mut bytes = Vec::new();
    for bits in elements {
        match dtype.size() {
            1 => bytes.push(bits as u8),
            2 => bytes.extend((bits as u16).to_ne_bytes()),
            4 => bytes.extend((bits as u32).to_ne_bytes()),
            _ => bytes.extend(bits.to_ne_bytes()),
        }
    }
    bytes
}

/// The bits of the one NaN that reductions of this type produce.
pub fn canonical_nan(dtype: DType) -> u64 {
    match dtype {
        DType::BF16 => 0x7fc0,
        DType::F16 => 0x7e00,
        DType::F32 => 0x7fc0_0000,
        DType::F8E4M3 => 0x7f,
        DType::F8E5M2 => 0x7e,
        _ => 0x7ff8_0000_0000_0000,
    }
}

/// The value of a float of at most 32 bits.
pub fn decode(dtype: DType, bits: u64) -> f32 {
    match dtype {
        DType::BF16 => bf16::from_bits(bits as u16).to_f32(),
        DType::F16 => f16::from_bits(bits as u16).to_f32(),
        // The upper byte of a half is an e5m2.
        DType::F8E5M2 => f16::from_bits((bits as u16) << 8).to_f32(),
        DType::F8E4M3 => {
            let (exponent, fraction) = ((bits >> 3 & 15) as i32, (bits & 7) as f32);
            let magnitude = match (exponent, bits & 7) {
                (15, 7) => f32::NAN,
                (0, _) => fraction * 2f32.powi(-9),
                _ => (8.0 + fraction) * 2f32.powi(exponent - 10),
            };
            if bits & 0x80 == 0 { magnitude } else { -magnitude }
        }
        _ => f32::from_bits(bits as u32),
    }
}

/// The nearest float of at most 32 bits, and of two equally near the one whose last bit is 0.
pub fn encode(dtype: DType, value: f32) -> u64 {
    if value.is_nan() {
        return canonical_nan(dtype);
    }
    match dtype {
        DType::BF16 => u64::from(bf16::from_f32(value).to_bits()),
        DType::F16 => u64::from(f16::from_f32(value).to_bits()),
        DType::F8E4M3 | DType::F8E5M2 => encode_eighth(dtype, value),
        _ => u64::from(value.to_bits()),
    }
}

/// Beyond the largest finite eighth comes the value that would follow it, which has no code of its own:
/// what is nearest to that is NaN in e4m3 and infinity in e5m2.
fn encode_eighth(dtype: DType, value: f32) -> u64 {
    let (largest, past, overflow) = match dtype {
        DType::F8E4M3 => (0x7e, 480.0, canonical_nan(dtype)),
        _ => (0x7b, 65536.0, 0x7c),
    };
    let sign = if value.is_sign_negative() { 0x80 } else { 0 };
    let magnitude = f64::from(value.abs());
    for code in 0..=largest {
        let here = f64::from(decode(dtype, code));
        let next = if code == largest { past } else { f64::from(decode(dtype, code + 1)) };
        // The middle is exact, where the two distances would not be.
        let middle = (here + next) / 2.0;
        if magnitude < middle || magnitude == middle && code % 2 == 0 {
            return code | sign;
        }
    }
    if overflow == canonical_nan(dtype) { overflow } else { overflow | sign }
}

macro_rules! fold_floats {
    ($name:ident, $float:ty) => {
        fn $name(op: ReduceOp, values: &[$float]) -> $float {
            let extreme = matches!(op, ReduceOp::Min | ReduceOp::Max);
            if extreme && values.iter().any(|it| it.is_nan()) {
                return <$float>::NAN;
            }
            let smaller = |one: $float, two: $float| {
                one < two || one == two && one.is_sign_negative() && two.is_sign_positive()
            };
            let step = |one: $float, two: $float| match op {
                ReduceOp::Prod => one * two,
                ReduceOp::Min if smaller(two, one) => two,
                ReduceOp::Max if smaller(one, two) => two,
                ReduceOp::Min | ReduceOp::Max => one,
                _ => one + two,
            };
            let result = values.iter().copied().reduce(step).unwrap_or_default();
            if op == ReduceOp::Mean { result / values.len() as $float } else { result }
        }
    };
}

fold_floats!(fold_f32, f32);
fold_floats!(fold_f64, f64);

fn integer(dtype: DType, op: ReduceOp, ranks: &[u64]) -> u64 {
    let signed = matches!(dtype, DType::I8 | DType::I16 | DType::I32 | DType::I64);
    let unused = 64 - 8 * dtype.size() as u32;
    let value = |&bits: &u64| match signed {
        true => i128::from((bits << unused) as i64 >> unused),
        false => i128::from(bits << unused >> unused),
    };
    let values = ranks.iter().map(value);
    let result = match op {
        ReduceOp::Prod => values.fold(1, i128::wrapping_mul),
        ReduceOp::Min => values.min().unwrap_or(0),
        ReduceOp::Max => values.max().unwrap_or(0),
        // Division of integers truncates toward zero.
        ReduceOp::Mean => values.sum::<i128>() / ranks.len().max(1) as i128,
        _ => values.sum(),
    };
    // The low bits are the wrapped result.
    result as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn eighths_are_rounded_to_their_own_values_and_to_even_between_them() {
        for dtype in [DType::F8E4M3, DType::F8E5M2] {
            for code in 0..=255u64 {
                let value = decode(dtype, code);
                let wanted = if value.is_nan() { canonical_nan(dtype) } else { code };
                assert_eq!(encode(dtype, value), wanted, "{dtype} {code:#x}");
            }
        }
        assert_eq!(decode(DType::F8E4M3, 0x7e), 448.0);
        assert_eq!(encode(DType::F8E4M3, 17.0), encode(DType::F8E4M3, 16.0));
        assert_eq!(encode(DType::F8E4M3, 19.0), encode(DType::F8E4M3, 20.0));
        assert_eq!(encode(DType::F8E4M3, 500.0), 0x7f);
        assert_eq!(encode(DType::F8E5M2, -1e9), 0xfc);
    }

    #[test]
    fn integers_wrap_and_their_mean_does_not() {
        let max = bytes(DType::I8, [127]);
        let sources = [max.clone(), max];
        assert_eq!(reduce(DType::I8, ReduceOp::Sum, &sources), [0xfe]);
        assert_eq!(reduce(DType::I8, ReduceOp::Mean, &sources), [127]);
        let odd = [bytes(DType::I16, [0xffff]), bytes(DType::I16, [0])];
        assert_eq!(reduce(DType::I16, ReduceOp::Mean, &odd), [0, 0]);
    }

    #[test]
    fn nan_wins_and_the_negative_zero_is_the_smaller() {
        let (minus, plus) = (0x8000_0000, 0);
        for order in [[minus, plus], [plus, minus]] {
            assert_eq!(reduce_one(DType::F32, ReduceOp::Min, &order), minus);
            assert_eq!(reduce_one(DType::F32, ReduceOp::Max, &order), plus);
        }
        assert_eq!(reduce_one(DType::F32, ReduceOp::Min, &[0, 0xffc1_2345]), 0x7fc0_0000);
    }
}

//! Elements as numbers, written a second time and slowly: what results are checked against must not
//! be what computed them.

use aether::{DType, ReduceOp};

/// How the bits of a type are read.
enum Kind {
    Signed,
    Unsigned,
    /// Bits of exponent, and of fraction.
    Float(u32, u32),
}

fn kind(dtype: DType) -> Kind {
    match dtype {
        DType::I8 | DType::I16 | DType::I32 | DType::I64 => Kind::Signed,
        DType::BF16 => Kind::Float(8, 7),
        DType::F16 => Kind::Float(5, 10),
        DType::F32 => Kind::Float(8, 23),
        DType::F64 => Kind::Float(11, 52),
        DType::F8E4M3 => Kind::Float(4, 3),
        DType::F8E5M2 => Kind::Float(5, 2),
        _ => Kind::Unsigned,
    }
}

/// Up to where every integer is a value of the type, at most 2^53.
pub(super) fn exact_limit(dtype: DType) -> u64 {
    let bits = 8 * dtype.size() as u32;
    match kind(dtype) {
        Kind::Float(_, fraction) => 1 << (fraction + 1),
        Kind::Signed => ((1_u64 << (bits - 1)) - 1).min(1 << 53),
        Kind::Unsigned => (u64::MAX >> (64 - bits)).min(1 << 53),
    }
}

pub(super) fn is_signed(dtype: DType) -> bool {
    !matches!(kind(dtype), Kind::Unsigned)
}

/// The bits of an integer that is within [`exact_limit`].
pub(super) fn from_integer(dtype: DType, value: i64) -> u64 {
    match kind(dtype) {
        Kind::Signed | Kind::Unsigned => value as u64,
        Kind::Float(exponent, fraction) => narrow(value as f64, exponent, fraction, dtype),
    }
}

/// The reduction of one element of every rank, in rank order, as semantics has it: f64 and integers
/// in their own type, other floats in f32 and rounded once. None of the elements may be NaN.
pub(super) fn reduce(dtype: DType, op: ReduceOp, elements: &[u64]) -> u64 {
    let ranks = elements.len();
    match kind(dtype) {
        Kind::Float(11, _) => {
            let values = elements.iter().map(|it| f64::from_bits(*it));
            let folded = values.reduce(|a, b| match op {
                ReduceOp::Max => a.max(b),
                ReduceOp::Min => a.min(b),
                ReduceOp::Prod => a * b,
                _ => a + b,
            });
            let folded = folded.unwrap_or(0.0);
            (if op == ReduceOp::Mean { folded / ranks as f64 } else { folded }).to_bits()
        }
        Kind::Float(exponent, fraction) => {
            // All of these are values of f32.
            let values = elements.iter().map(|it| widen(*it, exponent, fraction) as f32);
            let folded = values.reduce(|a, b| match op {
                ReduceOp::Max => a.max(b),
                ReduceOp::Min => a.min(b),
                ReduceOp::Prod => a * b,
                _ => a + b,
            });
            let folded = folded.unwrap_or(0.0);
            let result = if op == ReduceOp::Mean { folded / ranks as f32 } else { folded };
            narrow(f64::from(result), exponent, fraction, dtype)
        }
        Kind::Signed | Kind::Unsigned => {
            let folded = elements.iter().map(|it| integer(dtype, *it)).reduce(|a, b| match op {
                ReduceOp::Max => a.max(b),
                ReduceOp::Min => a.min(b),
                ReduceOp::Prod => a.wrapping_mul(b),
                _ => a.wrapping_add(b),
            });
            let folded = folded.unwrap_or(0);
            // Division truncates toward zero, and what is too large wraps where it is cut off.
            (if op == ReduceOp::Mean { folded / ranks as i128 } else { folded }) as u64
        }
    }
}

fn integer(dtype: DType, bits: u64) -> i128 {
    let unused = 64 - 8 * dtype.size() as u32;
    match kind(dtype) {
        Kind::Signed => (((bits << unused) as i64) >> unused).into(),
        _ => ((bits << unused) >> unused).into(),
    }
}

/// The value of a finite float.
fn widen(bits: u64, exponent: u32, fraction: u32) -> f64 {
    let bias = (1 << (exponent - 1)) - 1;
    let power = ((bits >> fraction) & ((1 << exponent) - 1)) as i32;
    let fractions = (bits & ((1 << fraction) - 1)) as f64;
    let unit = 2_f64.powi(-(fraction as i32));
    let magnitude = match power {
        0 => fractions * unit * 2_f64.powi(1 - bias),
        _ => (1.0 + fractions * unit) * 2_f64.powi(power - bias),
    };
    if bits >> (exponent + fraction) & 1 == 1 { -magnitude } else { magnitude }
}

/// The bits of the nearest float, to even where two are; past the largest, infinity or else NaN.
fn narrow(value: f64, exponent: u32, fraction: u32, dtype: DType) -> u64 {
    let sign = u64::from(value.is_sign_negative()) << (exponent + fraction);
    let bias = (1 << (exponent - 1)) - 1;
    let magnitude = value.abs();
    if magnitude == 0.0 {
        return sign;
    }
    let all_ones = ((1_u64 << exponent) - 1) << fraction;
    if !magnitude.is_finite() {
        return sign | all_ones;
    }
    let power = ((magnitude.to_bits() >> 52) as i32 - 1023).max(1 - bias);
    // In units of the last place; from 2^fraction on the value is normal, and a carry to the next
    // power of two adds 1 to the exponent by itself.
    let units = (magnitude * 2_f64.powi(fraction as i32 - power)).round_ties_even() as u64;
    let bits = (((power + bias - 1) as u64) << fraction) + units;
    let overflow = if dtype == DType::F8E4M3 { all_ones | 7 } else { all_ones };
    sign | bits.min(overflow)
}

#[cfg(test)]
#[path = "number_tests.rs"]
mod tests;

//! What the collectives mean, once more and in the plainest way: whole buffers, one element after the
//! other, in rank order. Nothing here is shared with the product, nor with the tests of its kernels.

use aether_collective::ReduceOp;
use aether_core::DType;

/// The element-wise reduction of the sources, in their order.
pub(crate) fn reduce(dtype: DType, op: ReduceOp, sources: &[&[u8]]) -> Vec<u8> {
    if let [only] = sources {
        return only.to_vec();
    }
    let size = dtype.size();
    (0..sources[0].len() / size)
        .flat_map(|at| {
            let one: Vec<&[u8]> = sources.iter().map(|it| &it[at * size..][..size]).collect();
            let mut bytes = element(dtype, op, &one);
            bytes.truncate(size);
            bytes
        })
        .collect()
}

/// One element, little-endian, perhaps with more bytes than it has.
fn element(dtype: DType, op: ReduceOp, elements: &[&[u8]]) -> Vec<u8> {
    let wide = |bytes: &&[u8]| {
        let mut all = [0; 8];
        all[..bytes.len()].copy_from_slice(bytes);
        u64::from_le_bytes(all)
    };
    let bits: Vec<u64> = elements.iter().map(wide).collect();
    let result = match Format::of(dtype) {
        Some(format) => {
            let values: Vec<f32> = bits.iter().map(|&it| format.decode(it)).collect();
            format.encode(single(op, &values))
        }
        None => match dtype {
            DType::F32 => {
                let values: Vec<f32> = bits.iter().map(|&it| f32::from_bits(it as u32)).collect();
                let result = single(op, &values);
                u64::from(if result.is_nan() { 0x7fc0_0000 } else { result.to_bits() })
            }
            DType::F64 => {
                let values: Vec<f64> = bits.iter().map(|&it| f64::from_bits(it)).collect();
                let result = double(op, &values);
                if result.is_nan() { 0x7ff8 << 48 } else { result.to_bits() }
            }
            _ => {
                let unused = 64 - 8 * dtype.size() as u32;
                let signed = matches!(dtype, DType::I8 | DType::I16 | DType::I32 | DType::I64);
                let value = |&it: &u64| match signed {
                    true => i128::from(((it << unused) as i64) >> unused),
                    false => i128::from(it),
                };
                integer(op, &bits.iter().map(value).collect::<Vec<_>>()) as u64
            }
        },
    };
    result.to_le_bytes().to_vec()
}

/// Integers, exactly: what doesn't fit is cut off by whoever stores the result.
fn integer(op: ReduceOp, values: &[i128]) -> i128 {
    let fold = |f: fn(i128, i128) -> i128| values.iter().copied().reduce(f).unwrap();
    match op {
        ReduceOp::Sum => fold(|a, b| a + b),
        // Only the low 64 bits are kept, and those of a product depend on no others.
        ReduceOp::Prod => fold(|a, b| i128::from((a as u64).wrapping_mul(b as u64))),
        ReduceOp::Min => fold(i128::min),
        ReduceOp::Max => fold(i128::max),
        ReduceOp::Mean => fold(|a, b| a + b) / values.len() as i128,
        other => panic!("{other} is not known here"),
    }
}

macro_rules! floats {
    ($name:ident, $float:ident) => {
        fn $name(op: ReduceOp, values: &[$float]) -> $float {
            let fold = |f: fn($float, $float) -> $float| values.iter().copied().reduce(f).unwrap();
            let any_nan = values.iter().any(|it| it.is_nan());
            match op {
                ReduceOp::Sum => fold(|a, b| a + b),
                ReduceOp::Prod => fold(|a, b| a * b),
                ReduceOp::Mean => fold(|a, b| a + b) / values.len() as $float,
                _ if any_nan => $float::NAN,
                // The total order is the usual one here, with -0 below +0.
                ReduceOp::Min => fold(|a, b| if b.total_cmp(&a).is_lt() { b } else { a }),
                ReduceOp::Max => fold(|a, b| if b.total_cmp(&a).is_gt() { b } else { a }),
                other => panic!("{other} is not known here"),
            }
        }
    };
}

floats!(single, f32);
floats!(double, f64);

/// A float of less than 32 bits: a sign, an exponent, a fraction.
struct Format {
    exponent: u32,
    fraction: u32,
    /// Whether the largest exponent holds infinity and NaN alone. If not, only all ones are NaN.
    has_infinity: bool,
}

impl Format {
    fn of(dtype: DType) -> Option<Self> {
        let (exponent, fraction, has_infinity) = match dtype {
            DType::BF16 => (8, 7, true),
            DType::F16 => (5, 10, true),
            DType::F8E4M3 => (4, 3, false),
            DType::F8E5M2 => (5, 2, true),
            _ => return None,
        };
        Some(Self { exponent, fraction, has_infinity })
    }

    fn bias(&self) -> i32 {
        (1 << (self.exponent - 1)) - 1
    }

    /// The code of infinity, or of NaN where there is none.
    fn top(&self) -> u64 {
        let all = (1 << (self.exponent + self.fraction)) - 1;
        if self.has_infinity { all & !((1 << self.fraction) - 1) } else { all }
    }

    fn decode(&self, bits: u64) -> f32 {
        let code = bits & ((1 << (self.exponent + self.fraction)) - 1);
        let negative = bits >> (self.exponent + self.fraction) & 1 == 1;
        let (exponent, fraction) = (code >> self.fraction, code & ((1 << self.fraction) - 1));
        let steps = if exponent == 0 { fraction } else { fraction | 1 << self.fraction };
        let power = exponent.max(1) as i32 - self.bias() - self.fraction as i32;
        let magnitude = match code.cmp(&self.top()) {
            std::cmp::Ordering::Less => (steps as f64 * 2f64.powi(power)) as f32,
            std::cmp::Ordering::Equal if self.has_infinity => f32::INFINITY,
            _ => f32::NAN,
        };
        if negative { -magnitude } else { magnitude }
    }

    /// Rounded once, to nearest, and to even where two are as near.
    fn encode(&self, value: f32) -> u64 {
        if value.is_nan() {
            // The canonical one: quiet, and nothing else.
            return if self.has_infinity {
                self.top() | 1 << (self.fraction - 1)
            } else {
                self.top()
            };
        }
        let magnitude = f64::from(value.abs());
        // Of normal numbers below the least of this format, the steps are those of the least.
        let power = (magnitude.to_bits() >> 52) as i32 - 1023;
        let least = 1 - self.bias();
        let steps = magnitude / 2f64.powi(power.max(least) - self.fraction as i32);
        let code = match value.is_infinite() {
            true => self.top(),
            // A carry into the next exponent comes out right, because codes are dense.
            false => {
                let exponent = (power.max(least) - least) as u64;
                ((exponent << self.fraction) + steps.round_ties_even() as u64).min(self.top())
            }
        };
        if !self.has_infinity && code == self.top() {
            return code;
        }
        code | u64::from(value.is_sign_negative()) << (self.exponent + self.fraction)
    }
}

#[test]
fn the_reference_knows_the_corners_of_the_small_formats() {
    let e4m3 = Format::of(DType::F8E4M3).unwrap();
    assert_eq!((e4m3.decode(0x7e), e4m3.decode(1)), (448.0, 2f32.powi(-9)));
    assert!(e4m3.decode(0x7f).is_nan());
    assert_eq!((e4m3.encode(464.0), e4m3.encode(464.1), e4m3.encode(-1e9)), (0x7e, 0x7f, 0x7f));
    let e5m2 = Format::of(DType::F8E5M2).unwrap();
    assert_eq!((e5m2.encode(57344.0), e5m2.encode(61440.0)), (0x7b, 0x7c));
    let half = Format::of(DType::F16).unwrap();
    assert_eq!(
        (half.encode(1.0), half.encode(65519.9), half.encode(65520.0)),
        (0x3c00, 0x7bff, 0x7c00)
    );
    assert_eq!(
        (half.encode(-0.0), half.encode(2f32.powi(-25)), half.encode(f32::NAN)),
        (0x8000, 0, 0x7e00)
    );
    for code in 0..0x7c00 {
        assert_eq!(half.encode(half.decode(code)), code);
    }
}

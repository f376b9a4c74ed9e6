//! What the tests reduce: any bits, dense with those that are special.

use aether_core::DType;

/// The bit patterns most worth a test, in 64 bits of which a type takes its own.
fn specials(dtype: DType) -> &'static [u64] {
    match dtype {
        // Zeros, the smallest subnormals and the largest, the smallest normal, 1, its neighbours,
        // 1.5, the largest, infinity or NaN, and NaN with payloads.
        DType::F32 => &[
            0,
            0x8000_0000,
            1,
            0x8000_0001,
            0x007f_ffff,
            0x0080_0000,
            0x3f80_0000,
            0xbf80_0000,
            0x3f80_0001,
            0x3f7f_ffff,
            0x3fc0_0000,
            0x7f7f_ffff,
            0xff7f_ffff,
            0x7f80_0000,
            0xff80_0000,
            0x7fc0_0000,
            0xffc0_0000,
            0x7f80_0001,
            0xffff_ffff,
            0x7fab_cdef,
        ],
        DType::F64 => &[
            0,
            1 << 63,
            1,
            (1 << 63) | 1,
            0x000f_ffff_ffff_ffff,
            0x0010_0000_0000_0000,
            0x3ff0_0000_0000_0000,
            0xbff0_0000_0000_0000,
            0x3ff0_0000_0000_0001,
            0x7fef_ffff_ffff_ffff,
            0xffef_ffff_ffff_ffff,
            0x7ff0_0000_0000_0000,
            0xfff0_0000_0000_0000,
            0x7ff8_0000_0000_0000,
            0xfff8_0000_0000_0000,
            0x7ff0_0000_0000_0001,
            u64::MAX,
            0x7ff0_0000_abcd_ef01,
        ],
        DType::F16 => &[
            0, 0x8000, 1, 0x8001, 0x03ff, 0x83ff, 0x0400, 0x3c00, 0xbc00, 0x3c01, 0x7bff, 0xfbff,
            0x7c00, 0xfc00, 0x7e00, 0xfe00, 0x7c01, 0xffff, 0x7abc,
        ],
        DType::BF16 => &[
            0, 0x8000, 1, 0x8001, 0x007f, 0x807f, 0x0080, 0x3f80, 0xbf80, 0x3f81, 0x7f7f, 0xff7f,
            0x7f80, 0xff80, 0x7fc0, 0xffc0, 0x7f81, 0xffff, 0x7eab,
        ],
        // All patterns of a byte are dense enough; these are the ones that matter most.
        DType::F8E4M3 => &[0, 0x80, 1, 0x81, 7, 8, 0x38, 0xb8, 0x7e, 0xfe, 0x7f, 0xff, 0x70, 0x78],
        DType::F8E5M2 => &[0, 0x80, 1, 0x81, 3, 4, 0x3c, 0xbc, 0x7b, 0xfb, 0x7c, 0xfc, 0x7e, 0xff],
        // The extremes of all signed and unsigned integers, and around zero.
        _ => &[
            0,
            1,
            2,
            3,
            u64::MAX,
            u64::MAX - 1,
            0x7f,
            0x80,
            0x7fff,
            0x8000,
            0x7fff_ffff,
            0x8000_0000,
            0x7fff_ffff_ffff_ffff,
            1 << 63,
            0xffff_ffff,
            0xff,
        ],
    }
}

/// A deterministic stream of numbers, so that a case is its seed and shrinks with its shape.
struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }
}

/// Elements of which some are special and others any bits; `density` of 8 are special. NaN would
/// soon take over, so that some sources are filled with moderate floats between.
pub(super) fn elements(dtype: DType, count: usize, seed: u64, density: u64) -> Vec<u8> {
    let mut numbers = Numbers(seed);
    let specials = specials(dtype);
    let size = dtype.size();
    let mut bytes = Vec::with_capacity(count * size);
    for _ in 0..count {
        let number = numbers.next();
        let choice = numbers.next();
        let bits = if choice % 8 < density {
            specials[(number % specials.len() as u64) as usize]
        } else if choice & 8 == 0 && is_float(dtype) {
            moderate(dtype, number)
        } else {
            number
        };
        // The low bytes, in this machine's order.
        let low = match size {
            1 => (bits as u8).to_ne_bytes().to_vec(),
            2 => (bits as u16).to_ne_bytes().to_vec(),
            4 => (bits as u32).to_ne_bytes().to_vec(),
            _ => bits.to_ne_bytes().to_vec(),
        };
        bytes.extend(low);
    }
    bytes
}

/// The bits of a float whose exponent is near that of 1, so that sums round and cancel.
fn moderate(dtype: DType, number: u64) -> u64 {
    let (exponent_at, one, sign_at) = match dtype {
        DType::F64 => (52, 1023, 63),
        DType::F32 => (23, 127, 31),
        DType::BF16 => (7, 127, 15),
        DType::F16 => (10, 15, 15),
        DType::F8E4M3 => (3, 7, 7),
        _ => (2, 15, 7),
    };
    let fraction = number & ((1 << exponent_at) - 1);
    let exponent = one - 4 + (number >> 56) % 8;
    let sign = number >> 55 & 1;
    sign << sign_at | exponent << exponent_at | fraction
}

fn is_float(dtype: DType) -> bool {
    use DType::{BF16, F8E4M3, F8E5M2, F16, F32, F64};
    matches!(dtype, BF16 | F16 | F32 | F64 | F8E4M3 | F8E5M2)
}

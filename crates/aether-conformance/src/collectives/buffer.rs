//! Memory of a rank, with guards around it and an address of any alignment, and what it is filled with.

use std::ops::Range;

use aether_core::{Chunk, DType, Device, Span, SpanMut};

use super::bench::{Step, Stop};
use super::reference;
use crate::suite::{Random, chunk_of, pattern};

/// A range of a chunk, and bytes before and behind it that nobody may touch.
#[derive(Debug)]
pub(crate) struct Buffer {
    pub(crate) chunk: Chunk,
    pub(crate) range: Range<usize>,
    pub(crate) dtype: DType,
    guards: Vec<u8>,
}

/// How many bytes on either side are watched.
const GUARD: usize = 64;

impl Buffer {
    /// Memory of the device that holds these bytes, so many elements off the alignment of a chunk.
    pub(crate) fn new(device: &Device, dtype: DType, bytes: &[u8], skew: usize) -> Step<Self> {
        let start = GUARD + skew * dtype.size();
        let range = start..start + bytes.len();
        let mut all = pattern(range.end + GUARD, 0xA5);
        let guards = all.clone();
        for (to, from) in all.iter_mut().skip(start).zip(bytes) {
            *to = *from;
        }
        Ok(Self { chunk: chunk_of(device, &all)?, range, dtype, guards })
    }

    /// Memory of the device that holds something else than any case expects.
    pub(crate) fn garbage(device: &Device, dtype: DType, count: usize, skew: usize) -> Step<Self> {
        let bytes = match dtype {
            // A bool is 0 or 1.
            DType::Bool => vec![1; count],
            _ => pattern(count * dtype.size(), 0x5A),
        };
        Self::new(device, dtype, &bytes, skew)
    }

    pub(crate) fn span(&self) -> Step<Span<'_>> {
        Ok(self.chunk.span_of(self.range.clone(), self.dtype)?)
    }

    pub(crate) fn span_mut(&mut self) -> Step<SpanMut<'_>> {
        Ok(self.chunk.span_of_mut(self.range.clone(), self.dtype)?)
    }

    /// What the memory holds now; somebody else's bytes must not have changed.
    pub(crate) fn read(&self) -> Step<Vec<u8>> {
        let all = self.chunk.to_vec::<u8>()?;
        for (at, (found, wanted)) in all.iter().zip(&self.guards).enumerate() {
            if !self.range.contains(&at) && found != wanted {
                let from = at as i64 - self.range.start as i64;
                let end = self.range.len();
                return Err(Stop::failed(format!(
                    "the byte at {from} was written, outside of the {end} bytes of the buffer"
                )));
            }
        }
        Ok(all.get(self.range.clone()).unwrap_or_default().to_vec())
    }
}

/// Numbers of moderate size, in any type, that depend on the position and the rank: sums of them depend
/// on the order.
pub(crate) fn numbers(dtype: DType, count: usize, rank: usize, salt: u64) -> Vec<u8> {
    let mut random = Random::new(salt.wrapping_mul(0x1_0000) + rank as u64 + 1);
    let number = |_| {
        let bits = random.next_u64();
        // A sign, an exponent from -4 to 3, and a fraction of 52 bits.
        let exponent = 1019 + (bits >> 8 & 7);
        let value = f64::from_bits(bits & 1 << 63 | exponent << 52 | bits >> 12);
        match dtype {
            DType::Bool => bits & 1,
            DType::F64 => value.to_bits(),
            _ if reference::is_float(dtype) => reference::encode(dtype, value as f32),
            _ => bits,
        }
    };
    reference::bytes(dtype, (0..count).map(number).collect::<Vec<_>>())
}

/// Any bits: NaN of every payload, infinities and subnormals among them.
pub(crate) fn any_bits(dtype: DType, count: usize, rank: usize, salt: u64) -> Vec<u8> {
    let mut random = Random::new(salt.wrapping_mul(0x1_0001) + 77 * rank as u64 + 5);
    let any = |at: usize| match (dtype, at % 9) {
        (DType::Bool, _) => random.next_u64() & 1,
        // A NaN with a payload of its own, now and then.
        (_, 4) => {
            reference::canonical_nan(dtype)
                | random.next_u64() & 0x3f
                | (at as u64 & 1) << (8 * dtype.size() - 1)
        }
        _ => random.next_u64(),
    };
    reference::bytes(dtype, (0..count).map(any).collect::<Vec<_>>())
}

/// The elements of a type from their bits.
pub(crate) fn of_bits(dtype: DType, bits: &[u64]) -> Vec<u8> {
    reference::bytes(dtype, bits.iter().copied())
}

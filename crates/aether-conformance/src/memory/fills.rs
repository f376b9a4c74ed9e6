//! Fills write every element that they say and no other byte.

use aether_core::{Chunk, DType, Device, Element, Stream, fill, fill_async};

use super::{Bench, Case, expect_bytes};
use crate::suite::{Failed, Outcome, chunk_of, passed, pattern};

pub(super) const CASES: [Case; 2] = [
    Case {
        name: "fills::elements_of_every_width_and_nothing_beside_them",
        run: elements_of_every_width_and_nothing_beside_them,
    },
    Case { name: "fills::large_ones_on_a_stream", run: large_ones_on_a_stream },
];

fn elements_of_every_width_and_nothing_beside_them(bench: &Bench<'_>) -> Outcome {
    for device in bench.devices() {
        for (start, count) in [(0, 1), (1, 0), (1, 3), (2, 17), (0, 32), (5, 27)] {
            let mut chunk = chunk_of(device, &pattern(256, 6))?;
            // The bytes of each value differ, so that a narrower pattern shows.
            one(&mut chunk, 0xC3_u8, start, count)?;
            one(&mut chunk, 0xA1B2_u16, start, count)?;
            one(&mut chunk, 0x0102_0304_u32, start, count)?;
            one(&mut chunk, 0x1122_3344_5566_7788_u64, start, count)?;
            one(&mut chunk, -1.5_f32, start, count)?;
        }
    }
    passed()
}

fn one<T: Element>(chunk: &mut Chunk, value: T, start: usize, count: usize) -> Result<(), Failed> {
    let width = size_of::<T>();
    let range = start * width..(start + count) * width;
    let mut wanted = chunk.to_vec::<u8>()?;
    fill(&mut chunk.span_of_mut(range.clone(), T::DTYPE)?, value)?;
    // What one element looks like is taken from a plain slice.
    let bytes = Chunk::from_vec(&Device::cpu(0), vec![value])?.to_vec::<u8>()?;
    wanted.splice(range, bytes.repeat(count));
    expect_bytes(chunk, &wanted, &format!("{count} {} from {start} on", T::DTYPE))
}

fn large_ones_on_a_stream(bench: &Bench<'_>) -> Outcome {
    for device in bench.devices() {
        let stream = Stream::new(device)?;
        let mut chunk = Chunk::allocate(device, 1 << 20)?;
        fill_async(&mut chunk, 0x0102_0304_u32, &stream)?;
        let half = &mut chunk.span_of_mut(1 << 19.., DType::U16)?;
        fill_async(half, 0x0506_u16, &stream)?.wait()?;
        let mut wanted = 0x0102_0304_u32.to_ne_bytes().repeat(1 << 17);
        wanted.extend(0x0506_u16.to_ne_bytes().repeat(1 << 18));
        expect_bytes(&chunk, &wanted, "two fills")?;
    }
    passed()
}

//! Every byte arrives, and no other is touched, between all pairs of devices.

use aether_core::{AsSpan, AsSpanMut, Chunk, DType, Stream};

use super::{Bench, Case, passed_if};
use crate::memory::expect_bytes;
use crate::suite::{Outcome, chunk_of, expect_same, passed, pattern};

pub(super) const CASES: [Case; 4] = [
    Case { name: "moves::every_byte_between_every_pair", run: every_byte_between_every_pair },
    Case {
        name: "moves::every_byte_on_a_stream_of_either_side",
        run: every_byte_on_a_stream_of_either_side,
    },
    Case {
        name: "moves::plain_memory_of_the_host_both_ways",
        run: plain_memory_of_the_host_both_ways,
    },
    Case { name: "moves::large_ones", run: large_ones },
];

/// Sizes with offsets of the source and of the destination.
const PARTS: [(usize, usize, usize); 8] = [
    (0, 5, 6),
    (1, 0, 0),
    (7, 3, 0),
    (64, 0, 1),
    (255, 1, 64),
    (256, 256, 3),
    (1000, 17, 23),
    (1001, 0, 0),
];

fn every_byte_between_every_pair(bench: &Bench<'_>) -> Outcome {
    for (from, to) in bench.pairs() {
        let (bytes, before) = (pattern(1100, 1), pattern(1100, 2));
        let source = chunk_of(from, &bytes)?;
        for (length, start, into) in PARTS {
            let mut target = chunk_of(to, &before)?;
            bench.transport.copy(
                target.span_of_mut(into..into + length, DType::U8)?,
                source.span_of(start..start + length, DType::U8)?,
            )?;
            let mut wanted = before.clone();
            let part = bytes.get(start..start + length).unwrap_or_default();
            wanted.splice(into..into + length, part.iter().copied());
            let what = format!("{length} bytes at {start} of {from} to {into} of {to}");
            expect_bytes(&target, &wanted, &what)?;
        }
        expect_bytes(&source, &bytes, "the source")?;
    }
    passed()
}

fn every_byte_on_a_stream_of_either_side(bench: &Bench<'_>) -> Outcome {
    let mut any = false;
    for (from, to) in bench.pairs() {
        let (bytes, before) = (pattern(1100, 3), pattern(1100, 4));
        let source = chunk_of(from, &bytes)?;
        for (at, (length, start, into)) in PARTS.into_iter().enumerate() {
            let side = if at % 2 == 0 { from } else { to };
            let stream = Stream::new(side)?;
            let mut target = chunk_of(to, &before)?;
            let part = source.span_of(start..start + length, DType::U8)?;
            let span = target.span_of_mut(into..into + length, DType::U8)?;
            let found = bench.transport.copy_async(span, part, &stream);
            // A transport may serve the streams of one side alone.
            let refused = |kind| found.as_ref().is_err_and(|it| it.kind() == kind);
            if refused(aether_core::ErrorKind::WrongDevice) {
                continue;
            }
            let Some(work) = super::unless_blocking(found)? else { continue };
            any = true;
            work.wait()?;
            let mut wanted = before.clone();
            let part = bytes.get(start..start + length).unwrap_or_default();
            wanted.splice(into..into + length, part.iter().copied());
            let what = format!("{length} bytes at {start} of {from} to {into} of {to}");
            expect_bytes(&target, &wanted, &what)?;
        }
    }
    passed_if(any)
}

fn plain_memory_of_the_host_both_ways(bench: &Bench<'_>) -> Outcome {
    for device in &bench.devices {
        let (bytes, mut back) = (pattern(777, 5), vec![0u8; 777]);
        let mut chunk = Chunk::allocate(device, 777)?;
        bench.transport.copy(chunk.span_mut()?, bytes.as_slice().span()?)?;
        expect_bytes(&chunk, &bytes, &format!("from plain memory to {device}"))?;
        bench.transport.copy(back.as_mut_slice().span_mut()?, chunk.span()?)?;
        expect_same(&back, &bytes, &format!("from {device} to plain memory"))?;
    }
    passed()
}

fn large_ones(bench: &Bench<'_>) -> Outcome {
    for (from, to) in bench.pairs() {
        let bytes = pattern((2 << 20) + 77, 6);
        let source = chunk_of(from, &bytes)?;
        let mut target = Chunk::allocate(to, bytes.len())?;
        bench.transport.copy(target.span_mut()?, source.span()?)?;
        expect_bytes(&target, &bytes, &format!("2 MiB and 77 bytes from {from} to {to}"))?;
    }
    passed()
}

//! What makes no sense is refused and leaves everything as it was; what fails is told.

use aether_core::{AsSpan, AsSpanMut, Chunk, DType, Device, ErrorKind, Rows, Stream, fill};

use super::{Bench, Case};
use crate::memory::expect_bytes;
use crate::suite::{Outcome, chunk_of, expect, expect_error, passed, pattern, skipped};

pub(super) const CASES: [Case; 6] = [
    Case { name: "refusals::sizes_that_differ", run: sizes_that_differ },
    Case { name: "refusals::rows_that_are_none", run: rows_that_are_none },
    Case { name: "refusals::memory_that_may_only_be_read", run: memory_that_may_only_be_read },
    Case {
        name: "refusals::memory_that_is_only_borrowed_on_streams",
        run: memory_that_is_only_borrowed_on_streams,
    },
    Case { name: "refusals::devices_without_a_way", run: devices_without_a_way },
    Case {
        name: "refusals::a_copy_that_fails_is_told_and_remembered",
        run: a_copy_that_fails_is_told_and_remembered,
    },
];

fn sizes_that_differ(bench: &Bench<'_>) -> Outcome {
    for (from, to) in bench.pairs() {
        let before = pattern(100, 1);
        let mut target = chunk_of(to, &before)?;
        let stream = Stream::new(if to.host_addressable() { from } else { to })?;
        for bytes in [0, 99, 101] {
            let source = chunk_of(from, &pattern(bytes, 2))?;
            let what = format!("a copy of {bytes} bytes of {from} into 100 of {to}");
            let refused = bench.transport.copy(target.span_mut()?, source.span()?);
            expect_error(refused, ErrorKind::SizeMismatch, &what)?;
            let refused = bench.transport.copy_async(target.span_mut()?, source.span()?, &stream);
            let kind = refused.as_ref().err().map(|it| it.kind());
            let fine = [Some(ErrorKind::SizeMismatch), Some(ErrorKind::IllegalPair)];
            expect(fine.contains(&kind), || format!("{what} on a stream: {kind:?}"))?;
        }
        expect_bytes(&target, &before, "the destination of copies that were refused")?;
    }
    passed()
}

fn rows_that_are_none(bench: &Bench<'_>) -> Outcome {
    for (from, to) in bench.pairs() {
        let before = pattern(100, 1);
        let (source, mut target) = (chunk_of(from, &pattern(100, 2))?, chunk_of(to, &before)?);
        let refused = [
            (ErrorKind::OutOfBounds, Rows { count: 3, bytes: 10, dst_pitch: 46, src_pitch: 10 }),
            (ErrorKind::OutOfBounds, Rows { count: 3, bytes: 10, dst_pitch: 10, src_pitch: 46 }),
            (ErrorKind::Overlap, Rows { count: 3, bytes: 10, dst_pitch: 9, src_pitch: 10 }),
            (
                ErrorKind::Overflow,
                Rows { count: 3, bytes: 10, dst_pitch: 10, src_pitch: usize::MAX },
            ),
        ];
        for (kind, rows) in refused {
            let found = bench.transport.copy_rows(target.span_mut()?, source.span()?, rows);
            expect_error(found, kind, &format!("{rows:?} of 100 bytes"))?;
        }
        expect_bytes(&target, &before, "the destination of rows that were refused")?;
    }
    passed()
}

fn memory_that_may_only_be_read(bench: &Bench<'_>) -> Outcome {
    let adopts = |it: &&Device| it.host_addressable() && it.backend().adopts(it.id());
    let Some(device) = bench.devices.iter().find(adopts) else {
        return skipped("no device takes memory that its backend did not allocate");
    };
    let mut target = Chunk::from_read_only_owner(device, vec![1u8; 100])?;
    // There is no way in safe code to a span that writes such memory.
    let span = target.span_mut().map(drop);
    expect_error(span, ErrorKind::ReadOnly, "a span to write memory that may only be read")?;
    for to in &bench.devices {
        let mut copy = Chunk::allocate(to, 100)?;
        bench.transport.copy(copy.span_mut()?, target.span()?)?;
        expect_bytes(&copy, &[1; 100], "a copy of memory that may only be read")?;
    }
    passed()
}

fn memory_that_is_only_borrowed_on_streams(bench: &Bench<'_>) -> Outcome {
    for device in &bench.devices {
        let stream = Stream::new(device)?;
        let before = pattern(64, 1);
        let mut chunk = chunk_of(device, &before)?;
        let mut plain = [7u8; 64];
        let into = bench.transport.copy_async(chunk.span_mut()?, plain[..].span()?, &stream);
        let out = bench.transport.copy_async(plain[..].span_mut()?, chunk.span()?, &stream);
        for (found, way) in [(into, "to"), (out, "from")] {
            let kind = found.err().map(|it| it.kind());
            let fine = [Some(ErrorKind::BorrowedMemory), Some(ErrorKind::IllegalPair)];
            expect(fine.contains(&kind), || {
                format!("a copy on a stream {way} {device} and borrowed memory: {kind:?}")
            })?;
        }
        expect_bytes(&chunk, &before, "the chunk beside copies that were refused")?;
        expect(plain == [7; 64], || "the borrowed memory was written".to_owned())?;
    }
    passed()
}

fn devices_without_a_way(bench: &Bench<'_>) -> Outcome {
    let Some((from, to)) = bench.fixture.apart() else {
        return skipped("the fixture names no devices without a way between them");
    };
    for bytes in [0, 100] {
        let (source, mut target) = (Chunk::allocate(&from, bytes)?, Chunk::allocate(&to, bytes)?);
        let what = format!("{bytes} bytes from {from} to {to}");
        let refused = bench.transport.copy(target.span_mut()?, source.span()?);
        expect_error(refused, ErrorKind::IllegalPair, &what)?;
        let stream = Stream::new(&to)?;
        let refused = bench.transport.copy_async(target.span_mut()?, source.span()?, &stream);
        expect_error(refused, ErrorKind::IllegalPair, &format!("{what} on a stream"))?;
    }
    passed()
}

fn a_copy_that_fails_is_told_and_remembered(bench: &Bench<'_>) -> Outcome {
    let Some((from, to, arm)) = bench.fixture.failing() else {
        return skipped("the fixture can't make a copy fail");
    };
    let bytes = pattern(1000, 1);
    let source = chunk_of(&from, &bytes)?;
    let mut target = chunk_of(&to, &pattern(1000, 2))?;
    arm();
    expect(bench.transport.copy(target.span_mut()?, source.span()?).is_err(), || {
        "a copy that was made to fail went well".to_owned()
    })?;
    expect(target.to_vec::<u8>().is_err(), || "what a failed copy left could be read".to_owned())?;
    fill(&mut target.span_of_mut(.., DType::U8)?, 3u8)?;
    expect_bytes(&target, &[3; 1000], "a range that was written again")?;
    bench.transport.copy(target.span_mut()?, source.span()?)?;
    expect_bytes(&target, &bytes, "the copy after one that failed")?;
    passed()
}

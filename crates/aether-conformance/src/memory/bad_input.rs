//! Input that makes no sense is refused, with the kind of error that says why.

use aether_core::{
    Chunk, DType, Device, ErrorKind, Link, Stream, copy, copy_async, fill, fill_async, link,
};

use super::{Bench, Case, expect_bytes};
use crate::doubles::Remote;
use crate::suite::{Outcome, chunk_of, expect_error, passed, pattern, skipped};

pub(super) const CASES: [Case; 6] = [
    Case { name: "bad_input::sizes_that_differ_are_refused", run: sizes_that_differ_are_refused },
    Case {
        name: "bad_input::a_device_that_is_not_served_is_refused",
        run: a_device_that_is_not_served_is_refused,
    },
    Case {
        name: "bad_input::alignments_and_ranges_that_are_none_are_refused",
        run: alignments_and_ranges_that_are_none_are_refused,
    },
    Case {
        name: "bad_input::memory_that_is_only_borrowed_is_refused_on_streams",
        run: memory_that_is_only_borrowed_is_refused_on_streams,
    },
    Case {
        name: "bad_input::a_stream_of_another_backend_is_refused",
        run: a_stream_of_another_backend_is_refused,
    },
    Case {
        name: "bad_input::the_host_gets_no_slice_of_what_it_cannot_address",
        run: the_host_gets_no_slice_of_what_it_cannot_address,
    },
];

fn sizes_that_differ_are_refused(bench: &Bench<'_>) -> Outcome {
    let device = bench.first()?;
    let wanted = pattern(100, 1);
    let mut target = chunk_of(device, &wanted)?;
    let stream = Stream::new(device)?;
    for bytes in [0, 99, 101] {
        let source = Chunk::allocate(device, bytes)?;
        let what = format!("a copy of {bytes} bytes into 100");
        expect_error(copy(&mut target, &source), ErrorKind::SizeMismatch, &what)?;
        let refused = copy_async(&mut target, &source, &stream);
        expect_error(refused, ErrorKind::SizeMismatch, &format!("{what} on a stream"))?;
    }
    expect_bytes(&target, &wanted, "the destination of copies that were refused")?;
    passed()
}

fn a_device_that_is_not_served_is_refused(bench: &Bench<'_>) -> Outcome {
    let Some(id) = bench.fixture.unknown_device() else {
        return skipped("the fixture names no device that its backend doesn't serve");
    };
    let unknown = Device::new(id, bench.first()?.backend().clone());
    let refused = Chunk::allocate(&unknown, 100);
    expect_error(refused, ErrorKind::UnknownDevice, &format!("an allocation on {id}"))?;
    passed()
}

fn alignments_and_ranges_that_are_none_are_refused(bench: &Bench<'_>) -> Outcome {
    let device = bench.first()?;
    for alignment in [0, 3, 100] {
        let refused = Chunk::allocate_aligned(device, 64, alignment);
        let what = format!("an alignment of {alignment}");
        expect_error(refused, ErrorKind::InvalidArgument, &what)?;
    }
    let mut chunk = chunk_of(device, &pattern(64, 1))?;
    let span = chunk.span_of(60..65, DType::U8);
    expect_error(span, ErrorKind::OutOfBounds, "a span that ends behind its chunk")?;
    let span = chunk.span_of(2..10, DType::U32);
    expect_error(span, ErrorKind::Misaligned, "a span that begins within an element")?;
    let span = chunk.span_of(0..10, DType::U32);
    expect_error(span, ErrorKind::PartialElement, "a span that ends within an element")?;
    let mut odd = chunk.span_of_mut(0..6, DType::U8)?;
    expect_error(fill(&mut odd, 1u32), ErrorKind::PartialElement, "a fill of 6 bytes by 4")?;
    passed()
}

fn memory_that_is_only_borrowed_is_refused_on_streams(bench: &Bench<'_>) -> Outcome {
    let device = bench.first()?;
    let stream = Stream::new(device)?;
    let mut chunk = chunk_of(device, &pattern(64, 1))?;
    let mut plain = [0u8; 64];
    // Where no copy goes on a stream at all, that is said first.
    let kind = match link(device, &Device::cpu(0)) >= Link::Indirect {
        true => ErrorKind::BorrowedMemory,
        false => ErrorKind::IllegalPair,
    };
    let refused = copy_async(&mut chunk, &plain[..], &stream);
    expect_error(refused, kind, "a copy from borrowed memory on a stream")?;
    let refused = copy_async(&mut plain[..], &chunk, &stream);
    expect_error(refused, kind, "a copy to borrowed memory on a stream")?;
    let refused = fill_async(&mut plain[..], 1u8, &stream);
    expect_error(refused, ErrorKind::BorrowedMemory, "a fill of borrowed memory on a stream")?;
    expect_bytes(&chunk, &pattern(64, 1), "the chunk beside calls that were refused")?;
    passed()
}

fn a_stream_of_another_backend_is_refused(bench: &Bench<'_>) -> Outcome {
    let device = bench.first()?;
    let stranger = Remote::builder().build()?;
    let stream = Stream::new(stranger.devices().first().ok_or("the double has no device")?)?;
    let source = chunk_of(device, &pattern(64, 1))?;
    let mut target = chunk_of(device, &pattern(64, 2))?;
    let refused = copy_async(&mut target, &source, &stream);
    expect_error(refused, ErrorKind::WrongDevice, "a copy on a stream of another backend")?;
    let refused = fill_async(&mut target, 1u8, &stream);
    expect_error(refused, ErrorKind::WrongDevice, "a fill on a stream of another backend")?;
    expect_bytes(&target, &pattern(64, 2), "the destination of calls that were refused")?;
    passed()
}

fn the_host_gets_no_slice_of_what_it_cannot_address(bench: &Bench<'_>) -> Outcome {
    let Some(device) = bench.devices().iter().find(|it| !it.host_addressable()) else {
        return skipped("the host can address all of the devices");
    };
    let mut chunk = Chunk::allocate(device, 64)?;
    expect_error(chunk.slice::<u8>().map(drop), ErrorKind::Unsupported, "a slice")?;
    expect_error(chunk.slice_mut::<u8>().map(drop), ErrorKind::Unsupported, "a slice to write")?;
    let owner = Chunk::from_owner(device, vec![0u8; 64]);
    expect_error(owner, ErrorKind::Unsupported, "a chunk of an owner")?;
    passed()
}

//! What becomes of data when work fails: the error stays with every byte until it is overwritten.
#![allow(clippy::unwrap_used, clippy::panic, clippy::expect_used)]

mod common;

use std::sync::Arc;
use std::sync::atomic::Ordering;

use aether_core::{
    Chunk, DType, Device, Error, ErrorKind, Operation, Result, Status, Step, Stream, copy,
    copy_async, enqueue, fill,
};
use common::{Held, Owner, bytes, eventually, look_hard, reads, writes};

const FAILED: &str = "told to fail";

/// Leaves a range of the chunk as a failed write leaves it.
fn spoil(chunk: &mut Chunk, range: std::ops::Range<usize>) {
    let stream = Stream::new(chunk.device()).unwrap();
    let held = Held::new();
    let work = writes(&stream, chunk, range, &held);
    held.fail();
    assert_eq!(work.wait().unwrap_err().reason(), FAILED);
}

/// Which bytes give an error, as the host reads them one by one.
fn spoiled(chunk: &Chunk) -> Vec<bool> {
    let view = chunk.view::<u8, 1>([chunk.size()]).unwrap();
    (0..chunk.size()).map(|at| view.at([at]).is_err()).collect()
}

fn expected(size: usize, bad: impl Fn(usize) -> bool) -> Vec<bool> {
    (0..size).map(bad).collect()
}

#[test]
fn a_failed_write_is_the_error_of_host_access_and_of_copies_until_overwritten() {
    let device = Device::cpu(0);
    let mut chunk = Chunk::allocate(&device, 400).unwrap();
    let mut other = Chunk::allocate(&device, 400).unwrap();
    spoil(&mut chunk, 100..300);
    assert_eq!(chunk.slice::<u8>().unwrap_err().kind(), ErrorKind::Backend);
    assert_eq!(chunk.slice_mut::<u8>().unwrap_err().reason(), FAILED);
    assert_eq!(chunk.to_vec::<u32>().unwrap_err().reason(), FAILED);
    assert_eq!(copy(&mut other, &chunk).unwrap_err().reason(), FAILED);
    fill(&mut chunk.span_of_mut(100..200, DType::U8).unwrap(), 1u8).unwrap();
    assert_eq!(chunk.slice::<u8>().unwrap_err().reason(), FAILED);
    fill(&mut chunk.span_of_mut(200..300, DType::U8).unwrap(), 2u8).unwrap();
    let bytes = chunk.slice::<u8>().unwrap();
    assert_eq!((bytes[99], bytes[100], bytes[200], bytes[300]), (0, 1, 2, 0));
}

#[test]
fn the_error_goes_byte_by_byte_as_copies_on_streams_overwrite_it() {
    let devices = Device::cpus(2);
    let mut chunk = Chunk::allocate(&devices[0], 32).unwrap();
    let source = Chunk::from_vec(&devices[1], bytes(32, 5)).unwrap();
    spoil(&mut chunk, 4..28);
    assert_eq!(spoiled(&chunk), expected(32, |it| (4..28).contains(&it)));
    let stream = Stream::new(&devices[1]).unwrap();
    for (range, bad) in [
        (10..12, vec![4..10, 12..28]),
        (0..6, vec![6..10, 12..28]),
        (27..32, vec![6..10, 12..27]),
        (8..20, vec![6..8, 20..27]),
        (6..27, vec![]),
    ] {
        let mut part = chunk.span_of_mut(range.clone(), DType::U8).unwrap();
        copy_async(&mut part, &source.span_of(range, DType::U8).unwrap(), &stream).unwrap();
        assert_eq!(spoiled(&chunk), expected(32, |it| bad.iter().any(|bad| bad.contains(&it))));
    }
    assert_eq!(chunk.slice::<u8>().unwrap(), bytes(32, 5));
}

#[test]
fn the_last_of_two_failures_is_the_one_that_is_told() {
    let device = Device::cpu(0);
    let mut chunk = Chunk::allocate(&device, 32).unwrap();
    let stream = Stream::new(&device).unwrap();
    spoil(&mut chunk, 0..32);
    let held = Held::new();
    let work = writes(&stream, &mut chunk, 8..16, &held);
    held.panic();
    assert_eq!(work.wait().unwrap_err().kind(), ErrorKind::Panicked);
    let view = chunk.view::<u8, 1>([32]).unwrap();
    assert_eq!(view.at([7]).unwrap_err().kind(), ErrorKind::Backend);
    assert_eq!(view.at([8]).unwrap_err().kind(), ErrorKind::Panicked);
    assert_eq!(view.at([16]).unwrap_err().kind(), ErrorKind::Backend);
}

#[test]
fn a_chain_of_pending_copies_fails_with_the_first_failure() {
    let device = Device::cpu(0);
    let mut chunks: Vec<_> =
        (0..6).map(|at| Chunk::from_vec(&device, bytes(64, at)).unwrap()).collect();
    let streams: Vec<_> = (0..6).map(|_| Stream::new(&device).unwrap()).collect();
    let held = Held::new();
    writes(&streams[0], &mut chunks[0], 10..20, &held);
    let mut ends = Vec::new();
    for at in 1..6 {
        let (before, after) = chunks.split_at_mut(at);
        ends.push(copy_async(&mut after[0], &before[at - 1], &streams[at]).unwrap());
    }
    look_hard();
    assert!(ends.iter().all(|it| !it.is_done()));
    held.fail();
    for end in ends.iter().rev() {
        assert_eq!(end.wait().unwrap_err().reason(), FAILED);
        assert!(matches!(end.status(), Status::Failed(error) if error.reason() == FAILED));
    }
    // The copies didn't run: the whole destinations are spoiled, and nothing else is.
    assert_eq!(spoiled(&chunks[0]), expected(64, |it| (10..20).contains(&it)));
    assert!(spoiled(&chunks[5]).iter().all(|&it| it));
    fill(&mut chunks[5], 3u8).unwrap();
    assert_eq!(chunks[5].slice::<u8>().unwrap(), [3; 64]);
}

#[test]
fn a_failed_read_spoils_nothing() {
    let device = Device::cpu(0);
    let mut chunk = Chunk::from_vec(&device, bytes(64, 2)).unwrap();
    let stream = Stream::new(&device).unwrap();
    let held = Held::new();
    let work = reads(&stream, &chunk, 0..64, &held);
    held.fail();
    assert!(work.wait().is_err());
    assert_eq!(chunk.slice::<u8>().unwrap(), bytes(64, 2));
    assert_eq!(chunk.slice_mut::<u8>().unwrap(), bytes(64, 2));
}

#[test]
fn a_write_after_a_failed_write_does_not_fail() {
    let device = Device::cpu(0);
    let mut chunk = Chunk::allocate(&device, 64).unwrap();
    let source = Chunk::from_vec(&device, bytes(64, 8)).unwrap();
    let streams = [Stream::new(&device).unwrap(), Stream::new(&device).unwrap()];
    let held = Held::new();
    writes(&streams[0], &mut chunk, 0..64, &held);
    // Enqueued while the other is pending, and then it fails.
    let end = copy_async(&mut chunk, &source, &streams[1]).unwrap();
    held.fail();
    end.wait().unwrap();
    assert_eq!(chunk.slice::<u8>().unwrap(), bytes(64, 8));
}

#[test]
fn a_refused_call_is_told_once_and_never_begins() {
    let device = Device::cpu(0);
    let mut chunk = Chunk::allocate(&device, 64).unwrap();
    let streams = [Stream::new(&device).unwrap(), Stream::new(&device).unwrap()];
    let (held, call) = (Held::new(), Held::open_already());
    writes(&streams[0], &mut chunk, 0..64, &held);
    let end = reads(&streams[1], &chunk, 0..1, &call);
    held.fail();
    assert_eq!(end.wait().unwrap_err().reason(), FAILED);
    assert!(!call.has_begun());
    assert_eq!(call.refused.load(Ordering::SeqCst), 1);
    assert_eq!(streams[1].synchronize().unwrap_err().reason(), FAILED);
}

#[test]
fn a_refused_write_still_ends_after_the_readers_that_it_was_ordered_behind() {
    let device = Device::cpu(0);
    let (owner, counts) = Owner::new(bytes(64, 1));
    let mut target = Chunk::from_owner(&device, owner).unwrap();
    let mut source = Chunk::allocate(&device, 64).unwrap();
    let streams: Vec<_> = (0..3).map(|_| Stream::new(&device).unwrap()).collect();
    let (reader, writer) = (Held::new(), Held::new());
    let reading = reads(&streams[0], &target, 0..64, &reader);
    writes(&streams[1], &mut source, 0..64, &writer);
    let refused = copy_async(&mut target, &source, &streams[2]).unwrap();
    writer.fail();
    look_hard();
    // Its record stands for the reader's: were it over, the memory could go while it is read.
    assert!(!refused.is_done());
    drop(target);
    look_hard();
    assert_eq!(counts.dropped(), 0);
    reader.open();
    assert_eq!(refused.wait().unwrap_err().reason(), FAILED);
    assert!(reading.is_done());
    eventually("the memory goes", || counts.dropped() == 1);
}

/// Panics where it is told to.
struct Panics(&'static str);

// SAFETY: it touches no memory.
unsafe impl Operation for Panics {
    fn issue(&self, _: u64) -> Result<Step> {
        match self.0 {
            "issue" => std::panic::resume_unwind(Box::new("issue")),
            "drop" => Ok(Step::Issued),
            _ => Ok(Step::Pending),
        }
    }

    fn advance(&self, _: u64) -> Result<Step> {
        std::panic::resume_unwind(Box::new("advance"))
    }

    fn refused(&self, _: u64, _: &Error) {
        std::panic::resume_unwind(Box::new("refused"))
    }
}

impl Drop for Panics {
    fn drop(&mut self) {
        if self.0 == "drop" {
            std::panic::resume_unwind(Box::new("drop"));
        }
    }
}

#[test]
fn an_operation_that_panics_has_failed_and_the_stream_goes_on() {
    let device = Device::cpu(0);
    let mut chunk = Chunk::allocate(&device, 64).unwrap();
    for place in ["issue", "advance"] {
        let stream = Stream::new(&device).unwrap();
        let span = chunk.span_of_mut(.., DType::U8).unwrap();
        // SAFETY: the operation touches nothing.
        let work = unsafe { enqueue(&stream, &[], &[span], Arc::new(Panics(place)), 0) }.unwrap();
        let error = work.wait().unwrap_err();
        assert_eq!((error.kind(), error.place()), (ErrorKind::Panicked, Some("cpu:0")), "{place}");
        assert_eq!(chunk.slice::<u8>().unwrap_err().kind(), ErrorKind::Panicked);
        let held = Held::open_already();
        writes(&stream, &mut chunk, 0..64, &held).wait().unwrap();
    }
}

#[test]
fn a_panic_in_refused_or_in_drop_takes_neither_the_stream_nor_a_thread() {
    let device = Device::cpu(0);
    let mut chunk = Chunk::allocate(&device, 64).unwrap();
    let stream = Stream::new(&device).unwrap();
    // SAFETY: the operation touches nothing.
    let work = unsafe { enqueue(&stream, &[], &[], Arc::new(Panics("drop")), 0) }.unwrap();
    work.wait().unwrap();
    let held = Held::new();
    writes(&Stream::new(&device).unwrap(), &mut chunk, 0..64, &held);
    let span = chunk.span_of(.., DType::U8).unwrap();
    // SAFETY: as above.
    let work = unsafe { enqueue(&stream, &[span], &[], Arc::new(Panics("refused")), 0) }.unwrap();
    held.fail();
    assert_eq!(work.wait().unwrap_err().reason(), FAILED);
    let held = Held::open_already();
    writes(&stream, &mut chunk, 0..64, &held).wait().unwrap();
}

#[test]
fn a_failure_on_a_stream_does_not_stop_what_does_not_need_it() {
    let device = Device::cpu(0);
    let mut one = Chunk::allocate(&device, 64).unwrap();
    let mut two = Chunk::allocate(&device, 64).unwrap();
    let stream = Stream::new(&device).unwrap();
    let (held, fine) = (Held::new(), Held::open_already());
    let first = writes(&stream, &mut one, 0..64, &held);
    let second = writes(&stream, &mut two, 0..64, &fine);
    let third = reads(&stream, &one, 0..64, &fine);
    held.fail();
    assert_eq!(third.wait().unwrap_err().reason(), FAILED);
    second.wait().unwrap();
    assert_eq!(first.wait().unwrap_err().reason(), FAILED);
}

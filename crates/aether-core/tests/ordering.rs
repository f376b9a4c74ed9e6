//! Work on the same memory is ordered, whatever streams it is on, and only such work.
#![allow(clippy::unwrap_used, clippy::panic, clippy::expect_used)]

mod common;

use std::sync::Arc;

use aether_core::{
    Chunk, Completion, DType, Device, ErrorKind, Status, Stream, copy, copy_async, fill, fill_async,
};
use common::{Held, bytes, eventually, look_hard, numbers, reads, writes};

fn streams(device: &Device, count: usize) -> Vec<Stream> {
    (0..count).map(|_| Stream::new(device).unwrap()).collect()
}

fn access(
    stream: &Stream,
    chunk: &mut Chunk,
    range: std::ops::Range<usize>,
    is_write: bool,
    operation: &Arc<Held>,
) -> Completion {
    match is_write {
        true => writes(stream, chunk, range, operation),
        false => reads(stream, chunk, range, operation),
    }
}

#[test]
fn two_accesses_are_ordered_exactly_if_they_overlap_and_one_writes() {
    let device = Device::cpu(0);
    let ranges = [(0..64, 32..96), (0..64, 63..64), (0..64, 0..64), (8..16, 0..64)];
    let apart = [(0..64, 64..128), (64..128, 0..64), (0..1, 1..2)];
    let all = ranges.into_iter().map(|it| (it, true)).chain(apart.map(|it| (it, false)));
    for ((one, two), overlap) in all {
        for (first_writes, second_writes) in
            [(false, false), (false, true), (true, false), (true, true)]
        {
            let mut chunk = Chunk::allocate(&device, 128).unwrap();
            let streams = streams(&device, 2);
            let (first, second) = (Held::new(), Held::open_already());
            let before = access(&streams[0], &mut chunk, one.clone(), first_writes, &first);
            let after = access(&streams[1], &mut chunk, two.clone(), second_writes, &second);
            let ordered = overlap && (first_writes || second_writes);
            let case = format!("{one:?} writes {first_writes}, {two:?} writes {second_writes}");
            if ordered {
                look_hard();
                assert!(!after.is_done() && !second.has_begun(), "{case}");
            } else {
                eventually(&case, || after.is_done());
            }
            assert!(!before.is_done(), "{case}");
            first.open();
            after.wait().unwrap();
            before.wait().unwrap();
        }
    }
}

#[test]
fn operations_of_one_stream_run_in_the_order_in_which_they_were_enqueued() {
    let device = Device::cpu(0);
    let mut chunk = Chunk::allocate(&device, 128).unwrap();
    let stream = Stream::new(&device).unwrap();
    let (first, second) = (Held::new(), Held::open_already());
    let before = reads(&stream, &chunk, 0..10, &first);
    let after = writes(&stream, &mut chunk, 100..110, &second);
    look_hard();
    assert!(!after.is_done() && !second.has_begun() && !before.is_done());
    first.open();
    after.wait().unwrap();
    assert!(before.is_done());
}

#[test]
fn a_writer_waits_for_every_reader_and_not_for_the_last_one_only() {
    let device = Device::cpu(0);
    let mut chunk = Chunk::allocate(&device, 128).unwrap();
    let all = streams(&device, 10);
    let held: Vec<_> = all.iter().map(|_| Held::new()).collect();
    for (at, stream) in all.iter().enumerate() {
        reads(stream, &chunk, at..at + 90, &held[at]);
    }
    let writer = Held::open_already();
    let end = writes(&Stream::new(&device).unwrap(), &mut chunk, 40..50, &writer);
    for at in [9, 0, 5, 1, 8, 2, 7, 3, 6, 4] {
        look_hard();
        assert!(!end.is_done() && !writer.has_begun(), "before reader {at} ended");
        held[at].open();
    }
    end.wait().unwrap();
}

#[test]
fn the_host_waits_for_writes_when_it_reads_and_for_reads_when_it_writes() {
    let device = Device::cpu(0);
    let mut chunk = Chunk::from_vec(&device, bytes(100, 1)).unwrap();
    let all = streams(&device, 2);
    let reader = Held::new();
    reads(&all[0], &chunk, 0..50, &reader);
    // Reading beside a reader waits for nobody.
    assert_eq!(chunk.slice::<u8>().unwrap(), bytes(100, 1));
    std::thread::scope(|scope| {
        let opener = reader.clone();
        scope.spawn(move || {
            std::thread::sleep(std::time::Duration::from_millis(20));
            opener.open();
        });
        chunk.slice_mut::<u8>().unwrap()[3] = 77;
        assert!(reader.has_begun() && all[0].last().is_done());
    });
    let source = Chunk::from_vec(&device, bytes(100, 9)).unwrap();
    let end = copy_async(&mut chunk, &source, &all[1]).unwrap();
    assert_eq!(chunk.slice::<u8>().unwrap(), bytes(100, 9));
    assert!(end.is_done());
}

#[test]
fn a_view_of_one_half_does_not_wait_for_work_on_the_other() {
    let device = Device::cpu(0);
    let mut chunk = Chunk::from_vec(&device, numbers(20)).unwrap();
    let stream = Stream::new(&device).unwrap();
    let held = Held::new();
    let work = writes(&stream, &mut chunk, 40..80, &held);
    let view = chunk.view::<u32, 1>([20]).unwrap();
    let front = view.narrow(0, 0, 10).unwrap();
    assert_eq!(front.as_slice().unwrap(), &numbers(20)[..10]);
    assert!(!work.is_done());
    held.open();
    assert_eq!(view.as_slice().unwrap(), numbers(20));
    assert!(work.is_done());
}

#[test]
fn copies_across_streams_see_the_data_of_the_copies_before_them() {
    let devices = Device::cpus(4);
    let mut chunks: Vec<_> = devices.iter().map(|it| Chunk::allocate(it, 4000).unwrap()).collect();
    let all: Vec<_> = devices.iter().map(|it| Stream::new(it).unwrap()).collect();
    let source = Chunk::from_vec(&devices[0], numbers(1000)).unwrap();
    copy_async(&mut chunks[0], &source, &all[0]).unwrap();
    for at in 1..4 {
        let (before, after) = chunks.split_at_mut(at);
        copy_async(&mut after[0], &before[at - 1], &all[at]).unwrap();
        // What was read is overwritten at once, behind the read.
        fill_async(&mut before[at - 1], at as u32, &all[at - 1]).unwrap();
    }
    assert_eq!(chunks[3].slice::<u32>().unwrap(), numbers(1000));
    for at in 1..4 {
        assert_eq!(chunks[at - 1].slice::<u32>().unwrap(), vec![at as u32; 1000]);
    }
}

#[test]
fn one_call_with_several_buffers_waits_for_all_and_never_for_itself() {
    let device = Device::cpu(0);
    let mut chunk = Chunk::allocate(&device, 128).unwrap();
    let mut other = Chunk::allocate(&device, 128).unwrap();
    let all = streams(&device, 3);
    let (one, two) = (Held::new(), Held::new());
    writes(&all[0], &mut chunk, 0..64, &one);
    writes(&all[1], &mut other, 0..64, &two);
    let call = Held::open_already();
    let mut halves = chunk.view_mut::<u8, 1>([128]).unwrap().split_at(0, 64).unwrap();
    let end = {
        use aether_core::{AsSpan, AsSpanMut};
        let read = halves.0.span().unwrap();
        let writes = [halves.1.span_mut().unwrap(), other.span_of_mut(.., DType::U8).unwrap()];
        // SAFETY: the operation touches nothing.
        unsafe { aether_core::enqueue(&all[2], &[read], &writes, call.clone(), 0) }.unwrap()
    };
    look_hard();
    assert!(!end.is_done());
    two.open();
    look_hard();
    assert!(!end.is_done() && !call.has_begun());
    one.open();
    end.wait().unwrap();
}

#[test]
fn the_same_range_read_and_written_by_one_call_is_no_circle() {
    let device = Device::cpu(0);
    let mut chunk = Chunk::allocate(&device, 128).unwrap();
    let stream = Stream::new(&device).unwrap();
    let held = Held::open_already();
    let span = chunk.span_of_mut(.., DType::U8).unwrap();
    // SAFETY: both are given to one operation, which is told of both.
    let same = unsafe { span.alias() };
    // SAFETY: the operation touches nothing.
    let end = unsafe { aether_core::enqueue(&stream, &[same], &[span], held, 0) }.unwrap();
    end.wait().unwrap();
    assert!(chunk.slice::<u8>().is_ok());
}

#[test]
fn a_refused_enqueue_queues_nothing() {
    let device = Device::cpu(0);
    let mut chunk = Chunk::from_read_only_owner(&device, bytes(64, 3)).unwrap();
    let source = Chunk::allocate(&device, 64).unwrap();
    let stream = Stream::new(&device).unwrap();
    let refused = copy_async(&mut chunk, &source, &stream).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::ReadOnly);
    assert_eq!(stream.last().point().ticket, 0);
    assert!(matches!(stream.last().status(), Status::Done));
    assert_eq!(copy(&mut chunk, &source).unwrap_err().kind(), ErrorKind::ReadOnly);
    assert_eq!(fill(&mut chunk, 1u8).unwrap_err().kind(), ErrorKind::ReadOnly);
}

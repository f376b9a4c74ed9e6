//! Members of one caller, on paper: what the driver is asked for, and what is refused before.
#![allow(clippy::unwrap_used, reason = "tests")]

use aether_core::{Chunk, DType, Device, Error, ErrorKind, Result, Span, SpanMut, View, ViewMut};

use crate::paper::{Paper, take_notes};
use crate::{GroupConfig, GroupSet, ReduceOp, Request};

const SUM: ReduceOp = ReduceOp::Sum;

/// A group of so many devices, with a name of its own for each test.
fn join(name: &str, ranks: u32) -> GroupSet<Paper> {
    let config = GroupConfig::default().named(name);
    GroupSet::join_with(&Device::cpus(ranks), &config).unwrap()
}

/// A chunk of so many i32 on each device.
fn chunks(counts: &[usize]) -> Vec<Chunk> {
    let devices = Device::cpus(counts.len() as u32);
    devices.iter().zip(counts).map(|(on, it)| Chunk::allocate(on, it * 4).unwrap()).collect()
}

fn read(chunk: &Chunk) -> Span<'_> {
    chunk.span_of(.., DType::I32).unwrap()
}

fn write(chunk: &mut Chunk) -> SpanMut<'_> {
    chunk.span_of_mut(.., DType::I32).unwrap()
}

/// One call of every member that works in its chunk.
fn run<'a>(
    set: &mut GroupSet<Paper>,
    chunks: &'a mut [Chunk],
    request: impl Fn(usize, SpanMut<'a>) -> Request<'a>,
) -> Result<()> {
    let spans = chunks.iter_mut().map(write).enumerate();
    set.run(spans.map(|(rank, span)| request(rank, span)))
}

fn all_reduce(_: usize, dst: SpanMut<'_>) -> Request<'_> {
    Request::AllReduce { src: None, dst, op: SUM }
}

#[test]
fn a_gather_becomes_a_batch_of_each_rank() {
    let mut set = join("gather", 2);
    let (src, mut dst) = (chunks(&[2, 2]), chunks(&[0, 4]).pop());
    let mut dst = dst.as_mut().map(write);
    let request = |(rank, src)| {
        let dst = if rank == 1 { dst.take() } else { None };
        Request::Gather { src: read(src), dst, root: 1 }
    };
    set.run(src.iter().enumerate().map(request)).unwrap();
    let wanted = [
        "0: begin",
        "0: send 2 (8 bytes) to 1",
        "0: end",
        "1: begin",
        "1: send 2 (8 bytes) to 1",
        "1: recv 2 (8 bytes) from 0",
        "1: recv 2 (8 bytes) from 1",
        "1: end",
    ];
    assert_eq!(take_notes("gather"), wanted);
}

#[test]
fn a_vector_gather_in_place_leaves_the_own_chunk_alone() {
    let mut set = join("all_gather_v", 2);
    let mut all = chunks(&[3, 3]);
    let counts = [1, 2];
    run(&mut set, &mut all, |_, dst| Request::AllGatherV { src: None, dst, counts: &counts })
        .unwrap();
    let wanted = [
        "0: begin",
        "0: send 1 (4 bytes) to 1",
        "0: recv 2 (8 bytes) from 1",
        "0: end",
        "1: begin",
        "1: send 2 (8 bytes) to 0",
        "1: recv 1 (4 bytes) from 0",
        "1: end",
    ];
    assert_eq!(take_notes("all_gather_v"), wanted);
}

#[test]
fn what_reduces_becomes_an_all_reduce_with_memory_of_the_members_own() {
    let mut set = join("reduces", 2);
    let (src, mut dst) = (chunks(&[3, 3]), chunks(&[1, 2]));
    let request = |(src, dst)| Request::ReduceScatterV {
        src: read(src),
        dst: write(dst),
        counts: &[1, 2],
        op: SUM,
    };
    set.run(src.iter().zip(&mut dst).map(request)).unwrap();
    let mut notes = take_notes("reduces");
    // The second step of one rank may come before or after the first of the other.
    notes.sort();
    let wanted = [
        "0: all_reduce sum of 3",
        "0: begin",
        "0: end",
        "0: recv 1 (4 bytes) from 0",
        "0: send 1 (4 bytes) to 0",
        "1: all_reduce sum of 3",
        "1: begin",
        "1: end",
        "1: recv 2 (8 bytes) from 1",
        "1: send 2 (8 bytes) to 1",
    ];
    assert_eq!(notes, wanted);
    let mut dst = chunks(&[3]).pop();
    let mut dst = dst.as_mut().map(write);
    let request = |(rank, src)| {
        let dst = if rank == 0 { dst.take() } else { None };
        Request::Reduce { src: read(src), dst, op: ReduceOp::Max, root: 0 }
    };
    set.run(src.iter().enumerate().map(request)).unwrap();
    assert_eq!(take_notes("reduces"), ["0: all_reduce max of 3", "1: all_reduce max of 3"]);
    set.barrier().unwrap();
    let wanted = ["0: all_reduce sum of 1 in place", "1: all_reduce sum of 1 in place"];
    assert_eq!(take_notes("reduces"), wanted);
}

#[test]
fn a_refused_call_asks_the_driver_of_no_member() {
    let mut set = join("refused", 2);
    let check = |found: Result<()>, kind| {
        assert_eq!(found.unwrap_err().kind(), kind);
        assert!(take_notes("refused").is_empty());
    };
    let mut all = chunks(&[4, 4]);
    // Only the last member's part is wrong.
    let request = |rank, dst| Request::Broadcast { src: None, dst, root: rank * 2 };
    check(run(&mut set, &mut all, request), ErrorKind::RankOutOfRange);
    check(run(&mut set, &mut all[..1], all_reduce), ErrorKind::SizeMismatch);
    let mut memory = [0i32; 4];
    let mut view = ViewMut::new(&mut memory, [4]).unwrap();
    let found = set.all_reduce_in_place_async(std::slice::from_mut(&mut view), SUM);
    check(found.map(drop), ErrorKind::SizeMismatch);
    run(&mut set, &mut all, all_reduce).unwrap();
    assert_eq!(take_notes("refused").len(), 2);
}

#[test]
fn memory_that_one_member_writes_and_another_touches_is_refused_naming_both() {
    let mut set = join("overlap", 3);
    let mut memory = [0i32; 8];
    let source = [0i32; 12];
    let (one, rest) = memory.split_at_mut(4);
    let (two, three) = rest.split_at_mut(2);
    let sources: Vec<_> = (0..3).map(|_| View::new(&source[..2], [2]).unwrap()).collect();
    let mut parts: Vec<_> =
        [&mut one[..2], two, three].into_iter().map(|it| ViewMut::new(it, [2]).unwrap()).collect();
    // All may read the same, and write beside each other.
    set.all_reduce(&sources, &mut parts, SUM).unwrap();
    let base = aether_core::Address::from_ptr(memory.as_mut_ptr().cast());
    let request = |(dst, src): (usize, usize)| {
        // SAFETY: the call is refused, so nobody touches the memory through the spans.
        let dst = unsafe { SpanMut::from_raw(base.add(dst * 4), 8, DType::I32) };
        // SAFETY: as above.
        let src = unsafe { Span::from_raw(base.add(src * 4), 8, DType::I32) };
        Request::AllReduce { src: Some(src), dst, op: SUM }
    };
    take_notes("overlap");
    // Rank 2 reads one element that rank 0 writes.
    let error = set.run([(0, 6), (2, 6), (4, 1)].map(request)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Overlap, "{error}");
    assert_eq!((error.ranks().contains(&0), error.ranks().contains(&2)), (true, true), "{error}");
    assert!(take_notes("overlap").is_empty());
}

#[test]
fn a_driver_that_fails_one_rank_breaks_the_group_though_it_remembers_nothing() {
    for (name, kind) in [("declines", ErrorKind::Backend), ("panics", ErrorKind::Panicked)] {
        let mut set = join(name, 2);
        let mut all = chunks(&[4, 4]);
        let error = run(&mut set, &mut all, all_reduce).unwrap_err();
        assert_eq!(error.kind(), kind, "{error}");
        // What the call should have written gives its failure.
        assert_eq!(all[1].slice::<i32>().map(drop).unwrap_err().kind(), kind);
        take_notes(name);
        let error = set.barrier().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::GroupBroken, "{error}");
        assert!(take_notes(name).is_empty());
        assert_eq!(set.check().unwrap_err().kind(), ErrorKind::GroupBroken);
        assert_eq!(set.finish().unwrap_err().kind(), kind);
    }
}

/// Rank 1 fails in its first step. Its second step, and with it the call of both, is then refused, when
/// rank 0 was queued already.
#[test]
fn a_composed_call_that_fails_between_its_steps_ends_for_every_member() {
    let mut set = join("refuses", 2);
    let (src, mut dst) = (chunks(&[3, 3]), chunks(&[1, 2]));
    let mut request = |(src, dst)| Request::ReduceScatterV {
        src: read(src),
        dst: write(dst),
        counts: &[1, 2],
        op: SUM,
    };
    let error = set.submit(src.iter().zip(&mut dst).map(&mut request)).map(drop).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Backend, "{error}");
    assert_eq!(set.check().unwrap_err().kind(), ErrorKind::GroupBroken);
    // Nothing is left on a stream: the memory can be had.
    assert!(dst.iter().all(|it| it.slice::<i32>().is_ok()));
    let notes = take_notes("refuses");
    assert!(!notes.iter().any(|it| it.starts_with("1: send")), "{notes:?}");
}

#[test]
fn an_aborted_group_refuses_work_and_names_the_reason() {
    let mut set = join("aborted", 2);
    let why = Error::new(ErrorKind::InvalidArgument, "read a batch", "line 7 is ragged");
    set.abort(&why);
    let error = set.barrier().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::GroupBroken);
    assert!(error.reason().contains("line 7 is ragged"), "{error}");
    assert_eq!(set.finish().unwrap_err().kind(), ErrorKind::InvalidArgument);
}

#[test]
fn a_driver_that_panics_when_a_group_ends_takes_nobody_with_it() {
    let mut set = join("panics at the end", 2);
    set.abort(&Error::new(ErrorKind::InvalidArgument, "read a batch", "line 7 is ragged"));
    assert_eq!(set.barrier().unwrap_err().kind(), ErrorKind::GroupBroken);
    // One panic of a destructor would fail this test, and the second end the process.
    drop(set);
}

#[test]
fn a_driver_that_panics_when_asked_how_the_group_is_counts_as_broken() {
    let mut set = join("panics when asked", 2);
    let error = set.barrier().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::GroupBroken, "{error}");
    assert_eq!(set.finish().unwrap_err().kind(), ErrorKind::Panicked);
}

#[test]
fn a_device_that_the_driver_lacks_is_refused_at_once() {
    let error = GroupSet::<Paper>::join(&[Device::cpu(0), Device::cpu(1000)]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
    assert_eq!(error.place(), Some("cpu:1000"));
}

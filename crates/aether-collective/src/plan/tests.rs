//! What is refused, and with which kind; and which spans a plan reads and writes.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::ops::Range;

use aether_core::{Chunk, DType, Device, Error, ErrorKind, Span, SpanMut};
use smallvec::smallvec;

use super::{Asker, Plan, chunk_of};
use crate::paper::Paper;
use crate::{Message, ReduceOp, Request};

const SUM: ReduceOp = ReduceOp::Sum;

/// Plans as rank 1 of 3 on cpu:1.
fn plan(request: Request<'_>) -> Result<Plan<'_, Paper>, Error> {
    Asker { device: &Device::cpu(1), rank: 1, ranks: 3 }.plan(request)
}

fn refusal(request: Request<'_>) -> ErrorKind {
    let error = plan(request).map(drop).unwrap_err();
    assert_eq!(error.place(), Some("rank 1 (cpu:1)"), "{error}");
    error.kind()
}

fn chunk(bytes: usize) -> Chunk {
    Chunk::allocate(&Device::cpu(1), bytes).unwrap()
}

fn read(chunk: &Chunk, range: Range<usize>) -> Span<'_> {
    chunk.span_of(range, DType::F32).unwrap()
}

fn write(chunk: &mut Chunk, range: Range<usize>) -> SpanMut<'_> {
    chunk.span_of_mut(range, DType::F32).unwrap()
}

/// Where spans begin and end.
type Places = Vec<(usize, usize)>;

/// What a plan reads and writes, relative to a chunk.
fn touched(plan: Plan<'_, Paper>, base: usize) -> (Places, Places) {
    let relative = |it: Span<'_>| (it.range().start - base, it.range().end - base);
    let reads = plan.reads.iter().map(|it| relative(*it));
    (reads.collect(), plan.writes.iter().map(|it| relative(it.as_span())).collect())
}

#[test]
fn in_place_forms_read_the_part_that_they_read_and_write_what_they_write() {
    let mut chunk = chunk(24);
    let base = chunk.data().addr();
    let dst = write(&mut chunk, 0..24);
    let all = plan(Request::AllReduce { src: None, dst, op: SUM }).unwrap();
    assert_eq!(touched(all, base), (vec![(0, 24)], vec![(0, 24)]));
    let gather = plan(Request::AllGather { src: None, dst: write(&mut chunk, 0..24) }).unwrap();
    assert_eq!(touched(gather, base), (vec![(8, 16)], vec![(0, 24)]));
    let (dst, counts) = (write(&mut chunk, 0..24), [1, 4, 1]);
    let gather = plan(Request::AllGatherV { src: None, dst, counts: &counts }).unwrap();
    assert_eq!(touched(gather, base), (vec![(4, 20)], vec![(0, 24)]));
    let buffer = write(&mut chunk, 0..24);
    let scatter = plan(Request::ReduceScatterInPlace { buffer, op: SUM }).unwrap();
    assert_eq!(touched(scatter, base), (vec![(0, 24)], vec![(8, 16)]));
    for (root, reads) in [(0, vec![]), (1, vec![(0, 24)])] {
        let dst = write(&mut chunk, 0..24);
        let broadcast = plan(Request::Broadcast { src: None, dst, root }).unwrap();
        assert_eq!(touched(broadcast, base), (reads, vec![(0, 24)]));
    }
}

#[test]
fn a_source_that_is_the_destinations_own_place_is_the_in_place_form() {
    let mut chunk = chunk(24);
    let base = chunk.data().addr();
    let dst = write(&mut chunk, 0..24);
    // SAFETY: both go to one plan, which no operation gets.
    let src = unsafe { dst.alias() };
    let own = src.part(8, 8).unwrap();
    assert!(plan(Request::AllReduce { src: Some(src), dst, op: SUM }).is_ok());
    // SAFETY: as above.
    let dst = unsafe { SpanMut::from_raw(src.address(), 24, DType::F32) };
    let gather = Request::AllGather { src: Some(own), dst };
    assert_eq!(touched(plan(gather).unwrap(), base).0, [(8, 16)]);
}

/// Two ranges of one chunk that overlap and are not the same, for plans that are dropped.
fn crossed(chunk: &Chunk) -> (Span<'_>, SpanMut<'_>) {
    // SAFETY: no operation gets the span, so nobody touches the memory through it.
    let dst = unsafe { SpanMut::from_raw(chunk.data().add(4), 24, DType::F32) };
    (read(chunk, 0..24), dst)
}

#[test]
fn every_other_overlap_is_refused() {
    type Make = for<'a> fn(Span<'a>, SpanMut<'a>) -> Request<'a>;
    let forms: [Make; 10] = [
        |src, dst| Request::AllReduce { src: Some(src), dst, op: SUM },
        |src, dst| Request::AllGather { src: Some(src.part(0, 8).unwrap()), dst },
        |src, dst| Request::AllGatherV { src: Some(src), dst, counts: &[0, 6, 0] },
        |src, dst| Request::ReduceScatter { src, dst: dst.into_part(0, 8).unwrap(), op: SUM },
        |src, dst| Request::ReduceScatterV { src, dst, counts: &[0, 6, 0], op: SUM },
        |src, dst| Request::Broadcast { src: Some(src), dst, root: 1 },
        |src, dst| Request::AllToAll { src, dst },
        |src, dst| Request::AllToAllV { src, dst, counts: &[2; 9] },
        |src, dst| Request::Gather { src: src.part(0, 8).unwrap(), dst: Some(dst), root: 1 },
        |src, dst| Request::Reduce { src, dst: Some(dst), op: SUM, root: 1 },
    ];
    let chunk = chunk(48);
    for (at, make) in forms.into_iter().enumerate() {
        let (src, dst) = crossed(&chunk);
        assert_eq!(refusal(make(src, dst)), ErrorKind::Overlap, "form {at}");
    }
    let (src, dst) = crossed(&chunk);
    let to_part = dst.into_part(0, 8).unwrap();
    let scatter = Request::Scatter { src: Some(src), dst: to_part, root: 1 };
    assert_eq!(refusal(scatter), ErrorKind::Overlap);
    let (src, dst) = crossed(&chunk);
    let batch = smallvec![Message::Send { src, peer: 0 }, Message::Recv { dst, peer: 2 }];
    assert_eq!(refusal(Request::Batch(batch)), ErrorKind::Overlap);
    let ((_, one), (_, two)) = (crossed(&chunk), crossed(&chunk));
    let batch = smallvec![Message::Recv { dst: one, peer: 0 }, Message::Recv { dst: two, peer: 2 }];
    assert_eq!(refusal(Request::Batch(batch)), ErrorKind::Overlap);
}

#[test]
fn a_buffer_on_another_device_is_refused_even_if_it_is_empty() {
    for bytes in [0, 24] {
        let elsewhere = Chunk::allocate(&Device::cpu(2), bytes).unwrap();
        let mut here = chunk(bytes);
        let src = Some(read(&elsewhere, 0..bytes));
        let dst = write(&mut here, 0..bytes);
        let found = refusal(Request::AllReduce { src, dst, op: SUM });
        assert_eq!(found, ErrorKind::WrongDevice, "{bytes} bytes");
    }
}

#[test]
fn types_must_agree_in_the_in_place_form_too() {
    let mut chunk = chunk(24);
    let dst = write(&mut chunk, 0..24);
    let address = dst.as_span().address();
    // SAFETY: no operation gets the span.
    let src = unsafe { Span::from_raw(address, 24, DType::I32) };
    let found = refusal(Request::AllReduce { src: Some(src), dst, op: SUM });
    assert_eq!(found, ErrorKind::DTypeMismatch);
}

#[test]
fn partial_elements_and_odd_addresses_are_refused_before_sizes() {
    let (mut one, two) = (chunk(24), chunk(24));
    let partial = read(&two, 0..24).part(0, 21).unwrap();
    let dst = write(&mut one, 0..24);
    assert_eq!(refusal(Request::AllToAll { src: partial, dst }), ErrorKind::PartialElement);
    let odd = read(&two, 0..24).part(1, 20).unwrap();
    let dst = write(&mut one, 0..24);
    assert_eq!(refusal(Request::AllToAll { src: odd, dst }), ErrorKind::Misaligned);
}

#[test]
fn types_that_the_driver_lacks_and_reductions_of_bool_are_refused() {
    let (mut one, mut two) = (chunk(24), chunk(24));
    let dst = one.span_of_mut(.., DType::U64).unwrap();
    assert_eq!(refusal(Request::AllReduce { src: None, dst, op: SUM }), ErrorKind::Unsupported);
    let src = one.span_of(.., DType::Bool).unwrap();
    let dst = two.span_of_mut(0..8, DType::Bool).unwrap();
    assert_eq!(refusal(Request::ReduceScatter { src, dst, op: SUM }), ErrorKind::Unsupported);
    let dst = two.span_of_mut(.., DType::Bool).unwrap();
    assert!(plan(Request::AllToAll { src, dst }).is_ok(), "bool is moved");
}

#[test]
fn sizes_and_counts_must_fit() {
    let (mut one, two) = (chunk(24), chunk(64));
    let src = |bytes| read(&two, 0..bytes);
    for (bytes, counts, kind) in [
        (24, vec![2, 2, 2], ErrorKind::SizeMismatch),
        (8, vec![2, 2, 3], ErrorKind::SizeMismatch),
        (8, vec![2, 2], ErrorKind::InvalidArgument),
        (8, vec![2, 2, 2, 2], ErrorKind::InvalidArgument),
        (8, vec![2, 2, u64::MAX], ErrorKind::Overflow),
        (8, vec![u64::MAX / 8, 2, u64::MAX / 8], ErrorKind::Overflow),
    ] {
        let (src, dst) = (Some(src(bytes)), write(&mut one, 0..24));
        let found = refusal(Request::AllGatherV { src, dst, counts: &counts });
        assert_eq!(found, kind, "{counts:?}");
    }
    let dst = write(&mut one, 0..24);
    let found = refusal(Request::AllGather { src: Some(src(4)), dst });
    assert_eq!(found, ErrorKind::SizeMismatch);
    let dst = write(&mut one, 0..20);
    assert_eq!(refusal(Request::AllGather { src: None, dst }), ErrorKind::SizeMismatch);
    let dst = write(&mut one, 0..8);
    let found = refusal(Request::ReduceScatter { src: src(12), dst, op: SUM });
    assert_eq!(found, ErrorKind::SizeMismatch);
    let dst = write(&mut one, 0..24);
    assert_eq!(refusal(Request::AllToAll { src: src(36), dst }), ErrorKind::SizeMismatch);
}

#[test]
fn roots_and_peers_are_of_the_group_and_only_the_root_has_the_other_buffer() {
    let (mut one, two) = (chunk(24), chunk(24));
    let src = read(&two, 0..24);
    let dst = write(&mut one, 0..24);
    let broadcast = Request::Broadcast { src: None, dst, root: 3 };
    assert_eq!(refusal(broadcast), ErrorKind::RankOutOfRange);
    let batch = smallvec![Message::Send { src, peer: 3 }];
    assert_eq!(refusal(Request::Batch(batch)), ErrorKind::RankOutOfRange);
    let dst = write(&mut one, 0..24);
    let broadcast = Request::Broadcast { src: Some(src), dst, root: 0 };
    assert_eq!(refusal(broadcast), ErrorKind::InvalidArgument);
    let gather = Request::Gather { src, dst: None, root: 1 };
    assert_eq!(refusal(gather), ErrorKind::InvalidArgument);
    let reduce = Request::Reduce { src, dst: Some(write(&mut one, 0..24)), op: SUM, root: 0 };
    assert_eq!(refusal(reduce), ErrorKind::InvalidArgument);
    let scatter = Request::Scatter { src: None, dst: write(&mut one, 0..8), root: 1 };
    assert_eq!(refusal(scatter), ErrorKind::InvalidArgument);
}

#[test]
fn chunks_lie_densely_in_rank_order() {
    let at = |rank| chunk_of([8, 0, 12].into_iter(), rank);
    assert_eq!([at(0), at(1), at(2), at(3)], [0..8, 8..8, 8..20, 20..20]);
}

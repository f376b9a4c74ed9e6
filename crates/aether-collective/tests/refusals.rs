//! What is refused, with which kind of error; and that a refused call queues nothing on any member.
#![allow(clippy::unwrap_used)]

mod common;

use std::sync::Arc;
use std::time::Duration;

use aether_collective::{Group, GroupSet, Message, ReduceOp, Request};
use aether_core::{
    AsSpan, Backend, Chunk, DType, Device, ErrorKind, HostBackend, Result, Span, SpanMut, View,
    ViewMut,
};
use aether_host::Host;
use common::{
    all_data, chunk_views_mut, chunks, data, each_rank, set, sum, view, view_mut, views, views_mut,
};

const SUM: ReduceOp = ReduceOp::Sum;

/// Three members, and whether they still work.
struct Tested(GroupSet<Host>);

impl Tested {
    fn new() -> Self {
        Self(set(3))
    }

    /// Expects the call to be refused, and the members to work as if it had not been made. Were it
    /// queued on one of them, its next call would meet it.
    #[track_caller]
    fn refuses(&mut self, kind: ErrorKind, call: impl FnOnce(&mut GroupSet<Host>) -> Result<()>) {
        let error = call(&mut self.0).unwrap_err();
        assert_eq!(error.kind(), kind, "{error}");
        let mut buffers = all_data(3, 5);
        self.0.all_reduce_in_place(&mut views_mut(&mut buffers), SUM).unwrap();
        assert_eq!(buffers, vec![sum(3, 5); 3]);
    }
}

#[test]
fn lists_need_one_part_for_each_member() {
    let mut set = Tested::new();
    let (few, mut many) = (all_data(2, 6), all_data(4, 6));
    let kind = ErrorKind::SizeMismatch;
    set.refuses(kind, |it| it.all_reduce(&views(&few), &mut views_mut(&mut many)[..3], SUM));
    set.refuses(kind, |it| it.all_reduce_in_place(&mut views_mut(&mut many), SUM));
    set.refuses(kind, |it| it.all_to_all(&views(&few), &mut views_mut(&mut many)[..3]));
    set.refuses(kind, |it| it.gather(&views(&few), &mut view_mut(&mut [0; 18]), 0));
    set.refuses(kind, |it| it.broadcast(&view(&few[0]), &mut views_mut(&mut many), 0));
    set.refuses(kind, |it| it.permute(&views(&few), &mut views_mut(&mut many), &[0, 1, 2]));
    set.refuses(kind, |it| it.run([]));
    set.refuses(kind, |it| it.run([Request::Barrier, Request::Barrier]));
}

#[test]
fn sizes_of_source_and_destination_must_fit() {
    let mut set = Tested::new();
    let src = all_data(3, 6);
    let mut dst = all_data(3, 6);
    dst[2].pop();
    let kind = ErrorKind::SizeMismatch;
    set.refuses(kind, |it| it.all_reduce(&views(&src), &mut views_mut(&mut dst), SUM));
    set.refuses(kind, |it| it.all_gather(&views(&src), &mut views_mut(&mut dst)));
    set.refuses(kind, |it| it.reduce_scatter(&views(&src), &mut views_mut(&mut dst), SUM));
    set.refuses(kind, |it| it.broadcast(&view(&src[0]), &mut views_mut(&mut dst), 2));
    set.refuses(kind, |it| it.all_to_all(&views(&src), &mut views_mut(&mut dst)));
    set.refuses(kind, |it| it.gather(&views(&src), &mut view_mut(&mut [0; 15]), 2));
    set.refuses(kind, |it| it.scatter(&view(&[0i64; 18]), &mut views_mut(&mut dst), 2));
    set.refuses(kind, |it| it.reduce(&views(&src), &mut view_mut(&mut [0; 5]), SUM, 1));
}

#[test]
fn chunks_must_divide_and_counts_must_add_up() {
    let mut set = Tested::new();
    let (src, mut dst) = (all_data(3, 7), all_data(3, 7));
    let kind = ErrorKind::SizeMismatch;
    set.refuses(kind, |it| it.all_gather_in_place(&mut views_mut(&mut dst)));
    set.refuses(kind, |it| it.reduce_scatter_in_place(&mut views_mut(&mut dst), SUM));
    set.refuses(kind, |it| it.all_to_all(&views(&src), &mut views_mut(&mut dst)));
    set.refuses(kind, |it| it.gather(&views(&src), &mut view_mut(&mut [0; 20]), 0));
    set.refuses(kind, |it| it.all_gather_v(&views(&src), &mut views_mut(&mut dst), &[3, 2, 1]));
    let counts = [2, 2, 2];
    set.refuses(kind, |it| {
        it.reduce_scatter_v(&views(&src), &mut views_mut(&mut dst), &counts, SUM)
    });
    set.refuses(kind, |it| it.all_to_all_v(&views(&src), &mut views_mut(&mut dst), &[2; 9]));
}

#[test]
fn lists_of_counts_have_one_for_each_rank_or_pair_and_products_that_fit() {
    let mut set = Tested::new();
    let (src, mut dst) = (all_data(3, 6), all_data(3, 6));
    let kind = ErrorKind::InvalidArgument;
    for counts in [&[][..], &[3, 3], &[2, 2, 2, 0]] {
        set.refuses(kind, |it| it.all_gather_v(&views(&src), &mut views_mut(&mut dst), counts));
        set.refuses(kind, |it| {
            it.reduce_scatter_v(&views(&src), &mut views_mut(&mut dst), counts, SUM)
        });
        set.refuses(kind, |it| it.all_to_all_v(&views(&src), &mut views_mut(&mut dst), counts));
    }
    let kind = ErrorKind::Overflow;
    for counts in [[u64::MAX, 1, 1], [u64::MAX / 8 + 1, 1, 1], [1 << 60, 1 << 60, 6]] {
        set.refuses(kind, |it| it.all_gather_v(&views(&src), &mut views_mut(&mut dst), &counts));
        let mut pairs = [0; 9];
        pairs[6..].copy_from_slice(&counts);
        set.refuses(kind, |it| it.all_to_all_v(&views(&src), &mut views_mut(&mut dst), &pairs));
    }
}

#[test]
fn roots_and_peers_are_in_the_group() {
    let mut set = Tested::new();
    let (src, mut dst) = (all_data(3, 6), all_data(3, 6));
    let kind = ErrorKind::RankOutOfRange;
    for root in [3, usize::MAX] {
        set.refuses(kind, |it| it.broadcast_in_place(&mut views_mut(&mut dst), root));
        set.refuses(kind, |it| it.broadcast(&view(&src[0]), &mut views_mut(&mut dst), root));
        set.refuses(kind, |it| it.gather(&views(&src), &mut view_mut(&mut [0; 18]), root));
        set.refuses(kind, |it| it.scatter(&view(&[0i64; 18]), &mut views_mut(&mut dst), root));
        set.refuses(kind, |it| it.reduce(&views(&src), &mut view_mut(&mut [0; 6]), SUM, root));
        set.refuses(kind, |it| it.permute(&views(&src), &mut views_mut(&mut dst), &[0, root, 1]));
    }
    set.refuses(ErrorKind::InvalidArgument, |it| {
        it.permute(&views(&src), &mut views_mut(&mut dst), &[0, 1, 1])
    });
}

#[test]
fn buffers_are_on_devices_that_their_member_reaches() {
    let mut set = Tested::new();
    // The same names, served by another backend.
    let backend: Arc<dyn Backend> = Arc::new(HostBackend::new());
    let foreign = set.0.devices().iter().map(|it| Device::new(it.id(), backend.clone()));
    let foreign: Vec<Device> = foreign.collect();
    let mut all = chunks(&foreign, all_data(3, 6));
    let kind = ErrorKind::WrongDevice;
    set.refuses(kind, |it| it.all_reduce_in_place(&mut chunk_views_mut(&mut all), SUM));
    set.refuses(kind, |it| it.broadcast_in_place(&mut chunk_views_mut(&mut all), 0));
    let mut empty = chunks::<i64>(&foreign, vec![vec![]; 3]);
    set.refuses(kind, |it| it.all_gather_in_place(&mut chunk_views_mut(&mut empty)));
}

#[test]
fn members_of_one_caller_may_work_in_parts_of_one_chunk() {
    let mut set = set::<Host>(4);
    let device = set.devices()[2].clone();
    let memory: Vec<i64> = (0..4).flat_map(|rank| data(rank, 25)).collect();
    let mut chunk = Chunk::from_vec(&device, memory).unwrap();
    let whole = chunk.view_mut::<i64, 1>([100]).unwrap();
    let (low, high) = whole.split_at(0, 50).unwrap();
    let ((one, two), (three, four)) = (low.split_at(0, 25).unwrap(), high.split_at(0, 25).unwrap());
    let work = set.all_reduce_in_place_async(&mut [one, two, three, four], SUM).unwrap();
    assert!(work.wait_timeout(Duration::from_secs(30)).unwrap());
    assert_eq!(chunk.to_vec::<i64>().unwrap(), vec![sum(4, 25); 4].concat());
}

#[test]
fn strided_views_are_refused_with_the_packing_call_named() {
    let mut set = Tested::new();
    let memory = data(0, 12);
    let mut lists = all_data(3, 12);
    let column = || View::strided(&memory, [6], [2]).unwrap();
    let mut dst = all_data(3, 6);
    set.refuses(ErrorKind::NotContiguous, |it| {
        it.all_reduce(&[column(), column(), column()], &mut views_mut(&mut dst), SUM)
    });
    set.refuses(ErrorKind::NotContiguous, |it| {
        let strided = |it| ViewMut::strided(it, [4, 2], [3, 1]).unwrap();
        let mut views: Vec<_> = lists.iter_mut().map(|it| strided(it)).collect();
        let refused = it.broadcast_in_place(&mut views, 0);
        assert!(refused.as_ref().unwrap_err().reason().contains("View::pack"));
        refused
    });
    // One that has no gaps is contiguous, whatever made it.
    let narrowed = || view(&memory).narrow(0, 3, 6).unwrap();
    let from = [narrowed(), narrowed(), narrowed()];
    set.0.all_reduce(&from, &mut views_mut(&mut dst), ReduceOp::Max).unwrap();
    assert_eq!(dst, vec![memory[3..9].to_vec(); 3]);
}

#[test]
fn members_of_one_caller_that_disagree_are_told_before_anything_is_queued() {
    let mut set = Tested::new();
    let mut check = |words: &str, make: &dyn Fn(usize, SpanMut<'static>) -> Request<'static>| {
        let mut memory = data(0, 18);
        let at = Memory::of(&mut memory);
        set.refuses(ErrorKind::RankMismatch, |it| {
            // SAFETY: the call is refused, so nobody touches the memory.
            let span =
                |rank: usize| unsafe { SpanMut::from_raw(at.0.add(rank * 48), 48, DType::I64) };
            let refused = it.run((0..3).map(|rank| make(rank, span(rank))));
            let error = refused.as_ref().unwrap_err();
            assert_eq!(error.ranks(), [0, 1, 2], "{error}");
            assert!(error.reason().contains(words), "{error}");
            refused
        });
    };
    let (max, min) = (ReduceOp::Max, ReduceOp::Min);
    check("called all_reduce(min) of 6 i64", &|rank, dst| Request::AllReduce {
        src: None,
        dst,
        op: if rank == 2 { min } else { max },
    });
    check("called broadcast of 6 i64 with root 1", &|rank, dst| Request::Broadcast {
        src: None,
        dst,
        root: rank / 2,
    });
    check("called broadcast of 5 i64", &|rank, dst| {
        let dst = if rank == 2 { dst.into_part(0, 40).unwrap() } else { dst };
        Request::Broadcast { src: None, dst, root: 0 }
    });
    check("called all_gather of 2 i64", &|rank, dst| match rank {
        2 => Request::AllGather { src: None, dst },
        _ => Request::AllReduce { src: None, dst, op: SUM },
    });
    check("with counts #", &|rank, dst| {
        let counts = if rank == 2 { &[1, 2, 3] } else { &[3, 2, 1] };
        Request::AllGatherV { src: None, dst, counts }
    });
    check("called barrier", &|rank, dst| match rank {
        2 => Request::Barrier,
        _ => Request::AllReduce { src: None, dst, op: SUM },
    });
}

#[test]
fn bool_is_moved_and_never_reduced() {
    let mut set = Tested::new();
    let devices = set.0.devices().to_vec();
    let mut all = chunks(&devices, vec![vec![1u8, 0, 1], vec![0; 3], vec![0; 3]]);
    fn bools(all: &mut [Chunk]) -> Vec<SpanMut<'_>> {
        all.iter_mut().map(|it| it.span_of_mut(.., DType::Bool).unwrap()).collect()
    }
    for op in ReduceOp::ALL {
        set.refuses(ErrorKind::Unsupported, |it| {
            let reduce = |dst| Request::AllReduce { src: None, dst, op };
            it.run(bools(&mut all).into_iter().map(reduce))
        });
    }
    let send = |dst| Request::Broadcast { src: None, dst, root: 0 };
    set.0.run(bools(&mut all).into_iter().map(send)).unwrap();
    assert_eq!(all[2].to_vec::<u8>().unwrap(), [1, 0, 1]);
}

#[test]
fn untyped_spans_are_whole_elements_of_one_type_at_an_aligned_address() {
    let mut set = Tested::new();
    let devices = set.0.devices().to_vec();
    let src = chunks(&devices, all_data(3, 6));
    let mut dst = chunks(&devices, all_data(3, 6));
    let mut check = |kind, start: usize, bytes: usize, dtype| {
        let requests = src.iter().zip(&mut dst).map(|(src, dst)| Request::AllReduce {
            src: Some(src.span_of(.., dtype).unwrap().part(start, bytes).unwrap()),
            dst: dst.span_of_mut(.., DType::I64).unwrap().into_part(0, bytes / 8 * 8).unwrap(),
            op: SUM,
        });
        let requests: Vec<_> = requests.collect();
        set.refuses(kind, |it| it.run(requests));
    };
    check(ErrorKind::DTypeMismatch, 0, 48, DType::F64);
    check(ErrorKind::Misaligned, 4, 40, DType::I64);
    check(ErrorKind::PartialElement, 0, 44, DType::I64);
}

/// Where the memory of a test begins, for spans that overlap: those that refused calls get.
struct Memory(aether_core::Address);

impl Memory {
    fn of(memory: &mut [i64]) -> Self {
        Self(aether_core::Address::from_ptr(memory.as_mut_ptr().cast()))
    }

    fn read(&self, start: usize, count: usize) -> Span<'_> {
        // SAFETY: the call that gets the span is refused, so nobody touches the memory through it.
        unsafe { Span::from_raw(self.0.add(start * 8), count * 8, DType::I64) }
    }

    fn write(&self, start: usize, count: usize) -> SpanMut<'_> {
        // SAFETY: as above.
        unsafe { SpanMut::from_raw(self.0.add(start * 8), count * 8, DType::I64) }
    }
}

#[test]
fn overlap_that_is_not_the_in_place_form_is_refused() {
    let mut set = Tested::new();
    let mut memory = data(0, 100);
    let at = Memory::of(&mut memory);
    // The first member's own buffers overlap; the others' are apart.
    let shift = |rank: usize| if rank == 0 { 1 } else { 6 };
    let pair = |rank: usize| (at.read(rank * 30, 6), at.write(rank * 30 + shift(rank), 6));
    let kind = ErrorKind::Overlap;
    set.refuses(kind, |it| {
        it.run((0..3).map(pair).map(|(src, dst)| Request::AllReduce {
            src: Some(src),
            dst,
            op: SUM,
        }))
    });
    set.refuses(kind, |it| {
        it.run((0..3).map(pair).map(|(src, dst)| Request::AllToAll { src, dst }))
    });
    // This rank's chunk would be in place; another rank's is not.
    set.refuses(kind, |it| {
        it.run((0..3).map(|rank| {
            let dst = at.write(rank * 30, 6);
            Request::AllGather { src: Some(at.read(rank * 30 + (rank + 1) % 3 * 2, 2)), dst }
        }))
    });
    set.refuses(kind, |it| {
        it.run((0..3).map(|rank| {
            let dst = at.write(rank * 30 + (rank + 2) % 3 * 2, 2);
            Request::ReduceScatter { src: at.read(rank * 30, 6), dst, op: SUM }
        }))
    });
    assert_eq!(memory, data(0, 100), "nobody was inside");
}

#[test]
fn a_range_that_one_member_writes_and_another_touches_is_refused_naming_both() {
    let mut set = Tested::new();
    let mut memory = data(0, 100);
    let at = Memory::of(&mut memory);
    let mut check = |write: usize, read: usize| {
        set.refuses(ErrorKind::Overlap, |it| {
            let refused = it.run((0..3).map(|rank| {
                let dst = at.write(if rank == 2 { write } else { rank * 20 }, 6);
                let src = Some(at.read(if rank == 1 { read } else { 80 }, 6));
                Request::AllReduce { src, dst, op: SUM }
            }));
            let error = refused.as_ref().unwrap_err();
            let mut ranks = error.ranks().to_vec();
            ranks.sort_unstable();
            assert_eq!(ranks, [1, 2], "{error}");
            assert!(error.reason().contains("rank 1") && error.reason().contains("rank 2"));
            refused
        });
    };
    // Two that write, and one that reads what another writes: one element each.
    check(25, 80);
    check(40, 45);
}

#[test]
fn disjoint_halves_of_one_chunk_are_fine() {
    let mut set = set::<Host>(1);
    let device = set.devices()[0].clone();
    let mut chunk = Chunk::from_vec(&device, data(0, 20)).unwrap();
    let (src, dst) = chunk.view_mut::<i64, 1>([20]).unwrap().split_at(0, 10).unwrap();
    let (src, mut dst) = (src.as_view(), [dst]);
    set.all_reduce_async(&[src], &mut dst, SUM).unwrap().wait().unwrap();
    let half = data(0, 10);
    assert_eq!(chunk.to_vec::<i64>().unwrap(), [half.clone(), half].concat());
}

#[test]
fn members_of_one_caller_may_work_in_one_vector() {
    let mut set = set::<Host>(4);
    let mut memory: Vec<i64> = (0..4).flat_map(|rank| data(rank, 25)).collect();
    let mut parts: Vec<_> = memory.chunks_mut(25).map(view_mut).collect();
    set.all_reduce_in_place(&mut parts, SUM).unwrap();
    drop(parts);
    assert_eq!(memory, vec![sum(4, 25); 4].concat());
}

#[test]
fn calls_that_return_before_they_end_take_chunks_only() {
    let mut set = Tested::new();
    let (src, mut dst) = (all_data(3, 6), all_data(3, 6));
    let kind = ErrorKind::BorrowedMemory;
    set.refuses(kind, |it| it.all_reduce_in_place_async(&mut views_mut(&mut dst), SUM).map(drop));
    let mut to = chunks(set.0.devices(), all_data(3, 6));
    // One of the buffers is enough.
    set.refuses(kind, |it| {
        it.all_reduce_async(&views(&src), &mut chunk_views_mut(&mut to), SUM).map(drop)
    });
    set.refuses(kind, |it| {
        it.permute_async(&views(&src), &mut chunk_views_mut(&mut to), &[1, 2, 0]).map(drop)
    });
    assert_eq!(common::contents(&to), all_data(3, 6));
}

#[test]
fn a_member_alone_is_refused_before_others_learn_of_the_call() {
    each_rank(2, |mut group: Group<Host>| {
        let (rank, mut buffer) = (group.rank(), data(0, 4));
        let refused = |result: Result<()>| result.unwrap_err().kind();
        let own = view(&[1i64, 2]);
        // Both of the two are wrong, the other rank has the buffer, or should have.
        let found = refused(group.gather(&own, None::<&mut ViewMut<'_, i64, 1>>, rank));
        assert_eq!(found, ErrorKind::InvalidArgument);
        let found = refused(group.gather(&own, Some(&mut view_mut(&mut buffer)), 1 - rank));
        assert_eq!(found, ErrorKind::InvalidArgument);
        let found = refused(group.broadcast(Some(&own), &mut view_mut(&mut buffer), 1 - rank));
        assert_eq!(found, ErrorKind::InvalidArgument);
        let found =
            refused(group.scatter(None::<&View<'_, i64, 1>>, &mut view_mut(&mut buffer), rank));
        assert_eq!(found, ErrorKind::InvalidArgument);
        let found = refused(group.send(&own, 2));
        assert_eq!(found, ErrorKind::RankOutOfRange);
        let found = refused(group.recv(&mut view_mut(&mut buffer), 7));
        assert_eq!(found, ErrorKind::RankOutOfRange);
        let send = |peer| Message::Send { src: own.span().unwrap(), peer };
        let found = refused(group.run(Request::Batch([1, 5].into_iter().map(send).collect())));
        assert_eq!(found, ErrorKind::RankOutOfRange);
        group.all_reduce_in_place(&mut view_mut(&mut buffer), SUM).unwrap();
        assert_eq!(buffer, data(0, 4).iter().map(|it| it * 2).collect::<Vec<_>>());
        group.finish().unwrap();
    });
}

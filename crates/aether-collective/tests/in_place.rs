//! The in-place forms, and messages that go both ways at once.
#![allow(clippy::unwrap_used)]

mod common;

use aether_collective::{Group, ReduceOp, Request};
use aether_core::{AsSpanMut, Result, SpanMut};
use aether_host::Host;
use common::{
    Basic, all_data, chunk_views_mut, chunks, contents, data, each_rank, set, sum, view, view_mut,
    views, views_mut,
};

/// Every rank's buffer, with the rank's own chunk in its place and nothing in the others.
fn own_chunk_only(ranks: usize, count: usize) -> Vec<Vec<i64>> {
    let place = |rank: usize| {
        let mut buffer = vec![-1; ranks * count];
        buffer[rank * count..(rank + 1) * count].copy_from_slice(&data(rank, count));
        buffer
    };
    (0..ranks).map(place).collect()
}

#[test]
fn reductions_gathers_and_broadcasts_work_in_their_buffers() {
    for ranks in 1..=9 {
        let mut set = set::<Host>(ranks);
        for count in [0, 1, 3, 1000] {
            let mut buffers = all_data(ranks, count);
            set.all_reduce_in_place(&mut views_mut(&mut buffers), ReduceOp::Sum).unwrap();
            assert_eq!(buffers, vec![sum(ranks, count); ranks]);

            let mut buffers = own_chunk_only(ranks, count);
            set.all_gather_in_place(&mut views_mut(&mut buffers)).unwrap();
            assert_eq!(buffers, vec![all_data(ranks, count).concat(); ranks]);

            let whole = all_data(ranks, ranks * count);
            let mut buffers = whole.clone();
            set.reduce_scatter_in_place(&mut views_mut(&mut buffers), ReduceOp::Sum).unwrap();
            let all = sum(ranks, ranks * count);
            for (rank, buffer) in buffers.iter().enumerate() {
                let own = rank * count..(rank + 1) * count;
                let mut want = whole[rank].clone();
                want[own.clone()].copy_from_slice(&all[own]);
                assert_eq!(*buffer, want, "the other chunks stay as they are");
            }

            let root = count % ranks;
            let mut buffers = all_data(ranks, count);
            set.broadcast_in_place(&mut views_mut(&mut buffers), root).unwrap();
            assert_eq!(buffers, vec![data(root, count); ranks]);
        }
    }
}

#[test]
fn a_broadcast_into_a_buffer_of_the_root_leaves_its_source() {
    let mut set = set::<Host>(3);
    let (src, mut dst) = (data(1, 9), vec![vec![-1; 9]; 3]);
    set.broadcast(&view(&src), &mut views_mut(&mut dst), 1).unwrap();
    assert_eq!(dst, vec![data(1, 9); 3]);
}

/// The untyped calls know in-place forms that the typed ones have no name for.
#[test]
fn vector_gathers_work_in_place_composed_or_not() {
    fn run<D: aether_collective::CollectiveDriver>() {
        for ranks in 1..=9 {
            let mut set = set::<D>(ranks);
            let count = |rank: usize| (rank * 5 + 1) % 4;
            let counts: Vec<u64> = (0..ranks).map(|rank| count(rank) as u64).collect();
            let all: Vec<i64> = (0..ranks).flat_map(|rank| data(rank, count(rank))).collect();
            let place = |rank: usize| {
                let start: usize = (0..rank).map(count).sum();
                let mut buffer = vec![-1; all.len()];
                buffer[start..start + count(rank)].copy_from_slice(&data(rank, count(rank)));
                buffer
            };
            let mut buffers: Vec<_> = (0..ranks).map(place).collect();
            let mut views = views_mut(&mut buffers);
            let spans: Result<Vec<SpanMut<'_>>> =
                views.iter_mut().map(|it| it.span_mut()).collect();
            let request = |dst| Request::AllGatherV { src: None, dst, counts: &counts };
            set.run(spans.unwrap().into_iter().map(request)).unwrap();
            drop(views);
            assert_eq!(buffers, vec![all; ranks], "{ranks} ranks");
        }
    }
    run::<Host>();
    run::<Basic>();
}

#[test]
fn a_reduction_at_the_root_may_work_in_place() {
    fn run<D: aether_collective::CollectiveDriver>() {
        let mut set = set::<D>(3);
        let mut all = chunks(set.devices(), all_data(3, 50));
        let spans = chunk_views_mut(&mut all);
        let mut spans: Vec<_> = spans.into_iter().collect();
        let requests: Vec<_> = spans
            .iter_mut()
            .enumerate()
            .map(|(rank, it)| {
                let dst = it.span_mut().unwrap();
                // SAFETY: both go to one call, which is told of both.
                let src = unsafe { dst.alias() };
                let dst = Some(dst).filter(|_| rank == 2);
                Request::Reduce { src, dst, op: ReduceOp::Sum, root: 2 }
            })
            .collect();
        set.submit(requests).unwrap().wait().unwrap();
        drop(spans);
        assert_eq!(contents(&all), [data(0, 50), data(1, 50), sum(3, 50)]);
    }
    run::<Host>();
    run::<Basic>();
}

#[test]
fn two_ranks_send_to_each_other_and_a_rank_to_itself() {
    for ranks in 1..=9 {
        each_rank(ranks, |mut group: Group<Host>| {
            let rank = group.rank();
            let (to, from) = ((rank + 1) % ranks, (rank + ranks - 1) % ranks);
            let (src, mut dst) = (data(rank, 100), vec![-1; 100]);
            group.send_recv(&view(&src), to, &mut view_mut(&mut dst), from).unwrap();
            assert_eq!(dst, data(from, 100));
            // Both directions of every pair, and to itself, in one batch and in this order.
            let mut all = vec![vec![-1; 3]; ranks];
            let parts: Vec<_> = (0..ranks).map(|peer| data(rank * 10 + peer, 3)).collect();
            let (sends, mut takes) = (views(&parts), views_mut(&mut all));
            group
                .batch(|batch| {
                    let mut ends = sends.iter().zip(&mut takes).enumerate();
                    ends.try_for_each(|(peer, (src, dst))| {
                        batch.send(src, peer)?;
                        batch.recv(dst, peer)
                    })
                })
                .unwrap();
            drop(takes);
            let want: Vec<_> = (0..ranks).map(|peer| data(peer * 10 + rank, 3)).collect();
            assert_eq!(all, want);
            group.finish().unwrap();
        });
    }
}

#[test]
fn members_of_one_caller_pass_their_parts_around() {
    for ranks in 1..=9 {
        let mut set = set::<Host>(ranks);
        let to: Vec<usize> = (0..ranks).map(|rank| (rank * 2 + 3) % ranks).collect();
        let to = if ranks % 2 == 0 { (0..ranks).rev().collect() } else { to };
        let (src, mut dst) = (all_data(ranks, 20), vec![vec![-1; 20]; ranks]);
        set.permute(&views(&src), &mut views_mut(&mut dst), &to).unwrap();
        for (rank, &to) in to.iter().enumerate() {
            assert_eq!(dst[to], data(rank, 20), "{ranks} ranks");
        }
    }
}

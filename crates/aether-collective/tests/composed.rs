//! Every call does the same on a driver that provides all of them and on one that provides only what is
//! required, where the others are composed.
#![allow(clippy::unwrap_used, clippy::panic)]

mod common;

use aether_collective::{CollectiveDriver, Driver, Group, ReduceOp};
use aether_core::{Chunk, ErrorKind};
use aether_host::Host;
use common::{
    Basic, all_data, chunk_views, chunk_views_mut, chunks, contents, data, each_rank, set, sum,
    view, view_mut, views, views_mut,
};

const COUNTS: [usize; 4] = [0, 1, 5, 1000];

/// The calls of each group follow each other without a gap, so that one that is out of step shows.
#[test]
fn members_of_one_caller_gather_scatter_reduce_and_wait() {
    fn run<D: CollectiveDriver>() {
        for ranks in 1..=9 {
            let mut set = set::<D>(ranks);
            for count in COUNTS {
                let root = (count + 1) % ranks;
                let src = all_data(ranks, count);
                let mut gathered = vec![-1; ranks * count];
                set.gather(&views(&src), &mut view_mut(&mut gathered), root).unwrap();
                assert_eq!(gathered, src.concat(), "gather, {ranks} ranks, {count} elements");

                let whole = data(7, ranks * count);
                let mut dst = vec![vec![-1; count]; ranks];
                set.scatter(&view(&whole), &mut views_mut(&mut dst), root).unwrap();
                assert_eq!(dst.concat(), whole, "scatter, {ranks} ranks, {count} elements");

                let mut reduced = vec![-1; count];
                let sum_up = ReduceOp::Sum;
                set.reduce(&views(&src), &mut view_mut(&mut reduced), sum_up, root).unwrap();
                assert_eq!(reduced, sum(ranks, count), "reduce, {ranks} ranks, {count} elements");
                assert_eq!(src, all_data(ranks, count), "sources stay as they are");
                set.barrier().unwrap();
                set.barrier().unwrap();
            }
            set.finish().unwrap();
        }
    }
    assert!(Host::capabilities().rooted && Host::capabilities().barrier);
    run::<Host>();
    run::<Basic>();
}

#[test]
fn members_of_one_caller_make_the_vector_calls() {
    fn run<D: CollectiveDriver>() {
        for ranks in 1..=9 {
            let mut set = set::<D>(ranks);
            for step in [0, 1, 3, 100] {
                // Rank 1 has nothing, and no two others the same.
                let count = |rank: usize| if rank == 1 { 0 } else { rank * step + 2 };
                let counts: Vec<u64> = (0..ranks).map(|rank| count(rank) as u64).collect();
                let total: usize = (0..ranks).map(count).sum();

                let src: Vec<_> = (0..ranks).map(|rank| data(rank, count(rank))).collect();
                let mut dst = vec![vec![-1; total]; ranks];
                set.all_gather_v(&views(&src), &mut views_mut(&mut dst), &counts).unwrap();
                assert_eq!(dst, vec![src.concat(); ranks], "all_gather_v {counts:?}");

                let src = all_data(ranks, total);
                let mut dst: Vec<_> = (0..ranks).map(|rank| vec![-1; count(rank)]).collect();
                let (from, op) = (views(&src), ReduceOp::Sum);
                set.reduce_scatter_v(&from, &mut views_mut(&mut dst), &counts, op).unwrap();
                assert_eq!(dst.concat(), sum(ranks, total), "reduce_scatter_v {counts:?}");
                assert_eq!(src, all_data(ranks, total), "sources stay as they are");
            }
            set.finish().unwrap();
        }
    }
    run::<Host>();
    run::<Basic>();
}

#[test]
fn all_to_all_v_moves_each_pair_its_own_count() {
    fn run<D: CollectiveDriver>() {
        for ranks in 1..=9usize {
            let mut set = set::<D>(ranks);
            let count = |from: usize, to: usize| (from * 3 + to * 5) % 7;
            let counts: Vec<u64> =
                (0..ranks * ranks).map(|it| count(it / ranks, it % ranks) as u64).collect();
            let src: Vec<_> = (0..ranks)
                .map(|rank| data(rank, (0..ranks).map(|to| count(rank, to)).sum()))
                .collect();
            let part = |from: usize, to: usize| {
                let start: usize = (0..to).map(|it| count(from, it)).sum();
                src[from][start..start + count(from, to)].to_vec()
            };
            let want: Vec<Vec<i64>> =
                (0..ranks).map(|to| (0..ranks).flat_map(|from| part(from, to)).collect()).collect();
            let mut dst: Vec<_> = want.iter().map(|it| vec![-1; it.len()]).collect();
            set.all_to_all_v(&views(&src), &mut views_mut(&mut dst), &counts).unwrap();
            assert_eq!(dst, want, "{ranks} ranks");
            set.finish().unwrap();
        }
    }
    run::<Host>();
    run::<Basic>();
}

#[test]
fn a_member_a_thread_makes_every_call_as_well() {
    fn run<D: CollectiveDriver>() {
        for ranks in [1, 2, 5] {
            each_rank(ranks, |mut group: Group<D>| {
                let (rank, count, root) = (group.rank(), 12, ranks - 1);
                let own = data(rank, count);
                for _ in 0..3 {
                    let mut gathered = (rank == root).then(|| vec![-1; ranks * count]);
                    let mut to = gathered.as_mut().map(|it| view_mut(it));
                    group.gather(&view(&own), to.as_mut(), root).unwrap();
                    assert_eq!(gathered, (rank == root).then(|| all_data(ranks, count).concat()));

                    let whole = data(9, ranks * count);
                    let mut dst = vec![-1; count];
                    let from = (rank == root).then(|| view(&whole));
                    group.scatter(from.as_ref(), &mut view_mut(&mut dst), root).unwrap();
                    assert_eq!(dst, whole[rank * count..(rank + 1) * count]);

                    let mut reduced = (rank == root).then(|| vec![-1; count]);
                    let mut to = reduced.as_mut().map(|it| view_mut(it));
                    group.reduce(&view(&own), to.as_mut(), ReduceOp::Sum, root).unwrap();
                    assert_eq!(reduced, (rank == root).then(|| sum(ranks, count)));
                    group.barrier().unwrap();

                    let counts = vec![count as u64; ranks];
                    let mut scattered = vec![-1; count];
                    let src = data(rank, count * ranks);
                    let mut to = view_mut(&mut scattered);
                    group.reduce_scatter_v(&view(&src), &mut to, &counts, ReduceOp::Sum).unwrap();
                    let all = sum(ranks, count * ranks);
                    assert_eq!(scattered, all[rank * count..(rank + 1) * count]);
                }
                group.finish().unwrap();
            });
        }
    }
    run::<Host>();
    run::<Basic>();
}

/// The scratch memory of a composed call is gone when the call returns, and its work goes on.
#[test]
fn composed_calls_go_on_after_they_returned() {
    fn run<D: CollectiveDriver>() {
        let (ranks, count) = (4, 10_000);
        let counts = vec![count as u64 / 4; ranks];
        let mut set = set::<D>(ranks);
        let devices = set.devices().to_vec();
        let src = chunks(&devices, all_data(ranks, count));
        let mut parts = chunks(&devices, vec![vec![-1i64; count / 4]; ranks]);
        let mut reduced = Chunk::from_vec(&devices[2], vec![-1i64; count]).unwrap();
        let mut works = Vec::new();
        for _ in 0..20 {
            let (from, op) = (chunk_views(&src), ReduceOp::Sum);
            let mut to = chunk_views_mut(&mut parts);
            works.push(set.reduce_scatter_v_async(&from, &mut to, &counts, op).unwrap());
            let mut to = reduced.view_mut([count]).unwrap();
            works.push(set.reduce_async(&from, &mut to, op, 2).unwrap());
            works.push(set.barrier_async().unwrap());
        }
        assert!(works.iter().all(|it| it.completions().len() == ranks));
        works.iter().rev().for_each(|it| it.wait().unwrap());
        assert_eq!(contents(&parts).concat(), sum(ranks, count));
        assert_eq!(reduced.to_vec::<i64>().unwrap(), sum(ranks, count));
        set.finish().unwrap();
    }
    run::<Host>();
    run::<Basic>();
}

#[test]
fn composed_calls_are_refused_for_the_same_reasons() {
    fn run<D: CollectiveDriver>() -> Vec<(ErrorKind, String)> {
        let mut set = set::<D>(3);
        let src = all_data(3, 4);
        let mut refused = Vec::new();
        let mut note = |result: aether_core::Result<()>| {
            let error = result.unwrap_err();
            refused.push((error.kind(), error.attempted().to_owned()));
        };
        note(set.gather(&views(&src), &mut view_mut(&mut [0; 12]), 3));
        note(set.gather(&views(&src), &mut view_mut(&mut [0; 11]), 0));
        note(set.scatter(&view(&src[0]), &mut views_mut(&mut all_data(3, 4)), 0));
        note(set.reduce(&views(&src), &mut view_mut(&mut [0; 5]), ReduceOp::Sum, 1));
        let mut dst = all_data(3, 4);
        note(set.all_gather_v(&views(&src), &mut views_mut(&mut dst), &[4, 4]));
        note(set.all_gather_v(&views(&src), &mut views_mut(&mut dst), &[4, u64::MAX, 4]));
        let op = ReduceOp::Sum;
        note(set.reduce_scatter_v(&views(&src), &mut views_mut(&mut dst), &[1, 1, 1], op));
        note(set.all_to_all_v(&views(&src), &mut views_mut(&mut dst), &[1; 9]));
        set.barrier().unwrap();
        set.finish().unwrap();
        refused
    }
    assert_eq!(run::<Host>(), run::<Basic>());
}

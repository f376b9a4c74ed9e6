//! Calls that exceed the caches, whose results go past them: every byte, at any alignment.
#![allow(clippy::unwrap_used, clippy::panic, clippy::expect_used)]
#![cfg(not(miri))]

mod common;

use aether_collective::ReduceOp;
use aether_core::{View, ViewMut};
use common::{PATIENCE, set, within};

const RANKS: usize = 2;
/// Elements of one of the ranks' chunks, which no vector's length divides. All chunks that a call reads
/// and writes are more than twenty mebibytes.
const CHUNK: usize = (1 << 20) + 5;

/// What `rank` gives at `at`: whole numbers, whose sums are exact.
fn value(rank: usize, at: usize) -> f32 {
    (at % 1021 * 4 + rank) as f32
}

fn sum(at: usize) -> f32 {
    (0..RANKS).map(|rank| value(rank, at)).sum()
}

/// One collective: what it is called, how many chunks a rank gives and gets, and what it gets.
type Case = (&'static str, usize, usize, fn(usize, usize) -> f32);

const CASES: [Case; 4] = [
    ("all_gather", 1, RANKS, |_, at| value(at / CHUNK, at % CHUNK)),
    ("all_reduce", RANKS, RANKS, |_, at| sum(at)),
    ("all_to_all", RANKS, RANKS, |rank, at| value(at / CHUNK, rank * CHUNK + at % CHUNK)),
    ("reduce_scatter", RANKS, 1, |rank, at| sum(rank * CHUNK + at)),
];

/// Runs the case on memory that begins so many elements after where vectors are allocated.
fn check((name, given, got, expected): Case, shift: usize) {
    let (given, got) = (given * CHUNK, got * CHUNK);
    let source = |rank| (0..shift + given).map(move |at| value(rank, at.wrapping_sub(shift)));
    let sources: Vec<Vec<f32>> = (0..RANKS).map(|rank| source(rank).collect()).collect();
    let mut destinations = vec![vec![-1.0_f32; shift + got + 1]; RANKS];
    let from: Vec<_> = sources.iter().map(|it| View::new(&it[shift..], [given]).unwrap()).collect();
    let to =
        destinations.iter_mut().map(|it| ViewMut::new(&mut it[shift..shift + got], [got]).unwrap());
    let (mut to, mut members) = (to.collect::<Vec<_>>(), set(RANKS));
    match name {
        "all_gather" => members.all_gather(&from, &mut to).unwrap(),
        "all_reduce" => members.all_reduce(&from, &mut to, ReduceOp::Sum).unwrap(),
        "all_to_all" => members.all_to_all(&from, &mut to).unwrap(),
        _ => members.reduce_scatter(&from, &mut to, ReduceOp::Sum).unwrap(),
    }
    for (rank, found) in destinations.iter().enumerate() {
        let should = |at: usize| match at.checked_sub(shift) {
            Some(at) if at < got => expected(rank, at),
            _ => -1.0,
        };
        let wrong = (0..found.len()).find(|&at| found[at] != should(at));
        assert_eq!(wrong, None, "{name}, rank {rank}, shifted by {shift}");
    }
}

#[test]
fn large_calls_write_every_element_and_no_other_at_any_alignment() {
    within(PATIENCE, || {
        for case in CASES {
            // With 1 and 4 allocations begin differently from lines; with 0 as the allocator has it.
            [0, 1, 4].into_iter().for_each(|shift| check(case, shift));
        }
    });
}

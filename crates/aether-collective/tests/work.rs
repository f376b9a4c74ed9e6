//! Work that goes on after its call returned.
#![allow(clippy::unwrap_used)]

mod common;

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use aether_collective::{Group, ReduceOp, Work};
use aether_core::{Chunk, ErrorKind};
use aether_host::Host;
use common::{
    SOON, all_data, chunk_views_mut, chunks, config, contents, data, devices, each_rank, set, sum,
    until, view_mut,
};

/// All members of a group of devices of its own, each alone, for one caller.
fn members(ranks: usize) -> Vec<Group<Host>> {
    let devices = devices(ranks);
    std::thread::scope(|scope| {
        let join = |device| {
            let devices = &devices;
            scope.spawn(move || Group::join_with(devices, device, &config()).unwrap())
        };
        let joining: Vec<_> = devices.iter().map(join).collect();
        joining.into_iter().map(|it| it.join().unwrap()).collect()
    })
}

fn all_reduce(group: &mut Group<Host>, chunk: &mut Chunk) -> Work {
    let count = chunk.size() / 8;
    let mut view = chunk.view_mut::<i64, 1>([count]).unwrap();
    group.all_reduce_in_place_async(&mut view, ReduceOp::Sum).unwrap()
}

fn chunk_of(group: &Group<Host>, count: usize) -> Chunk {
    Chunk::from_vec(group.device(), data(group.rank(), count)).unwrap()
}

#[test]
fn dropping_work_neither_waits_for_it_nor_keeps_it_from_its_end() {
    let mut members = members(2);
    let mut all: Vec<_> = members.iter().map(|it| chunk_of(it, 1000)).collect();
    // The other rank comes much later: it is this thread.
    drop(all_reduce(&mut members[0], &mut all[0]));
    drop(all_reduce(&mut members[1], &mut all[1]));
    assert_eq!(contents(&all), vec![sum(2, 1000); 2]);
}

#[test]
fn one_thread_drives_members_and_waits_for_the_last_first() {
    let mut members = members(8);
    let mut all: Vec<_> = members.iter().map(|it| chunk_of(it, 500)).collect();
    let works: Vec<Work> =
        members.iter_mut().zip(&mut all).map(|(group, chunk)| all_reduce(group, chunk)).collect();
    works.iter().rev().for_each(|it| it.wait().unwrap());
    assert_eq!(contents(&all), vec![sum(8, 500); 8]);
}

#[test]
fn a_wait_with_a_limit_ends_at_it_and_the_work_goes_on() {
    let mut members = members(2);
    let mut all: Vec<_> = members.iter().map(|it| chunk_of(it, 100)).collect();
    let work = all_reduce(&mut members[0], &mut all[0]);
    let began = Instant::now();
    assert!(!work.wait_timeout(Duration::from_millis(30)).unwrap());
    assert!(began.elapsed() >= Duration::from_millis(30));
    assert!(!work.wait_timeout(Duration::ZERO).unwrap());
    assert!(!work.is_done());
    let other = all_reduce(&mut members[1], &mut all[1]);
    assert!(work.wait_timeout(Duration::MAX).unwrap());
    assert!(other.wait_timeout(SOON).unwrap());
    assert!(work.is_done() && other.is_done());
    assert_eq!(contents(&all), vec![sum(2, 100); 2]);
}

#[test]
fn work_ends_though_nobody_waits_for_it() {
    let mut members = members(2);
    let mut all: Vec<_> = members.iter().map(|it| chunk_of(it, 100)).collect();
    let works: Vec<Work> =
        members.iter_mut().zip(&mut all).map(|(group, chunk)| all_reduce(group, chunk)).collect();
    // Asking so doesn't run anything.
    until(|| works.iter().all(|it| it.completions().iter().all(|it| it.has_ended())));
}

#[test]
fn calls_that_follow_each_other_on_the_same_memory_are_ordered() {
    let mut set = set::<Host>(4);
    let mut all = chunks(set.devices(), all_data(4, 300));
    let mut works = Vec::new();
    // Each doubles what the one before left, times the number of ranks.
    for _ in 0..10 {
        let mut views = chunk_views_mut(&mut all);
        works.push(set.all_reduce_in_place_async(&mut views, ReduceOp::Sum).unwrap());
    }
    works.pop().unwrap().wait().unwrap();
    let want: Vec<_> = sum(4, 300).iter().map(|it| it * 4i64.pow(9)).collect();
    assert_eq!(contents(&all), vec![want; 4]);
    assert!(works.iter().all(Work::is_done));
}

#[test]
fn members_and_chunks_that_go_leave_their_work_running() {
    let mut groups = members(3);
    let mut all: Vec<_> = groups.iter().map(|it| chunk_of(it, 5000)).collect();
    let mut works = Vec::new();
    // Ranks 0 and 1 go, with their memory, before rank 2 has called.
    for _ in 0..2 {
        let (mut group, mut chunk) = (groups.remove(0), all.remove(0));
        works.push(all_reduce(&mut group, &mut chunk));
    }
    works.push(all_reduce(&mut groups[0], &mut all[0]));
    assert_eq!(contents(&all), [sum(3, 5000)]);
    works.iter().for_each(|it| it.wait().unwrap());
}

#[test]
fn everything_may_be_dropped_while_work_is_queued() {
    for _ in 0..50 {
        let mut set = set::<Host>(3);
        let mut all = chunks(set.devices(), all_data(3, 2000));
        for _ in 0..4 {
            let mut views = chunk_views_mut(&mut all);
            drop(set.all_reduce_in_place_async(&mut views, ReduceOp::Max).unwrap());
        }
    }
}

#[test]
fn finish_waits_for_what_was_enqueued_and_for_no_other_rank_to_finish() {
    let finished = AtomicBool::new(false);
    each_rank(2, |mut group: Group<Host>| {
        let mut chunk = chunk_of(&group, 10);
        if group.rank() == 1 {
            // Rank 0 is in `finish` by now.
            std::thread::sleep(Duration::from_millis(100));
        }
        let work = all_reduce(&mut group, &mut chunk);
        if group.rank() == 0 {
            group.finish().unwrap();
            assert!(work.completions().iter().all(|it| it.has_ended()));
            finished.store(true, Ordering::Release);
        } else {
            until(|| finished.load(Ordering::Acquire));
        }
    });
}

#[test]
fn work_that_fails_says_so_each_time_it_is_asked() {
    let mut members = members(2);
    let mut chunk = chunk_of(&members[0], 10);
    let work = all_reduce(&mut members[0], &mut chunk);
    let why = aether_core::Error::new(ErrorKind::Parse, "read a batch", "line 7 is ragged");
    members[1].abort(&why);
    for _ in 0..2 {
        assert_eq!(work.wait().unwrap_err().kind(), ErrorKind::Parse);
        assert_eq!(work.wait_timeout(SOON).unwrap_err().kind(), ErrorKind::Parse);
        assert!(work.is_done());
    }
}

#[test]
fn a_blocking_call_may_follow_one_that_still_runs() {
    each_rank(3, |mut group: Group<Host>| {
        let mut chunk = chunk_of(&group, 1000);
        let work = all_reduce(&mut group, &mut chunk);
        let mut other = data(group.rank(), 7);
        group.all_reduce_in_place(&mut view_mut(&mut other), ReduceOp::Sum).unwrap();
        assert_eq!(other, sum(3, 7));
        work.wait().unwrap();
        assert_eq!(chunk.to_vec::<i64>().unwrap(), sum(3, 1000));
    });
}

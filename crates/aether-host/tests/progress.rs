//! What must make progress, whoever waits for what. Each test fails rather than hangs.
#![allow(clippy::unwrap_used, clippy::panic, clippy::expect_used)]

mod common;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::time::Duration;

use aether_collective::{Group, GroupSet, ReduceOp, Work};
use aether_core::{Chunk, Completion, Device, Stream, View, ViewMut, copy_async, progress};
use aether_host::Host;
use common::{PATIENCE, config, set, threads, within};

fn chunks(ranks: usize, data: impl Fn(usize) -> Vec<i32>) -> Vec<Chunk> {
    let devices = Device::cpus(ranks as u32);
    devices.iter().enumerate().map(|(rank, it)| Chunk::from_vec(it, data(rank)).unwrap()).collect()
}

fn sum_in_place(set: &mut GroupSet<Host>, chunks: &mut [Chunk]) -> Work {
    let count = chunks[0].size() / 4;
    let views = chunks.iter_mut().map(|it| it.view_mut::<i32, 1>([count]).unwrap());
    set.all_reduce_in_place_async(&mut views.collect::<Vec<_>>(), ReduceOp::Sum).unwrap()
}

#[test]
fn one_caller_reduces_two_halves_of_one_chunk_in_place() {
    within(PATIENCE, || {
        let mut set = set(2);
        let data: Vec<i32> = (0..2000).collect();
        let mut chunk = Chunk::from_vec(&Device::cpu(0), data).unwrap();
        let whole = chunk.view_mut::<i32, 1>([2000]).unwrap();
        let (low, high) = whole.split_at(0, 1000).unwrap();
        let work = set.all_reduce_in_place_async(&mut [low, high], ReduceOp::Sum).unwrap();
        work.wait().unwrap();
        let data = chunk.slice::<i32>().unwrap();
        assert!((0..2000).all(|at| data[at] == 2 * (at as i32 % 1000) + 1000));
    });
}

#[test]
fn one_caller_reduces_two_halves_of_one_vector_in_place() {
    within(PATIENCE, || {
        let mut set = set(2);
        let mut data: Vec<i32> = (0..2000).collect();
        let (low, high) = data.split_at_mut(1000);
        let half = |it| ViewMut::new(it, [1000]).unwrap();
        set.all_reduce_in_place(&mut [half(low), half(high)], ReduceOp::Sum).unwrap();
        assert!((0..2000).all(|at| data[at] == 2 * (at as i32 % 1000) + 1000));
    });
}

#[test]
fn one_caller_gathers_parts_of_one_chunk_into_other_parts() {
    within(PATIENCE, || {
        let mut set = GroupSet::<Host>::join_with(&[Device::cpu(0)], &config()).unwrap();
        let mut chunk = Chunk::from_vec(&Device::cpu(0), (0..20).collect::<Vec<i32>>()).unwrap();
        for _ in 0..100 {
            let whole = chunk.view_mut::<i32, 1>([20]).unwrap();
            let (low, high) = whole.split_at(0, 10).unwrap();
            let (src, mut dst) = ([low.as_view()], [high]);
            // Reads one half and writes the other: neither waits for the other.
            drop(set.all_reduce_async(&src, &mut dst, ReduceOp::Sum).unwrap());
        }
        let data = chunk.to_vec::<i32>().unwrap();
        assert_eq!(data[10..], data[..10]);
    });
}

#[test]
fn two_ranks_send_to_each_other_and_to_themselves_in_a_batch() {
    within(PATIENCE, || {
        for count in [0usize, 1, 1000, 700_001] {
            threads(2, &config(), |rank, mut group| {
                let mine: Vec<u32> = (0..count as u32).map(|at| at * 2 + rank as u32).collect();
                let (mut theirs, mut own) = (vec![0u32; count], vec![0u32; count]);
                let src = View::new(&mine, [count]).unwrap();
                let mut dst = ViewMut::new(&mut theirs, [count]).unwrap();
                let mut own_dst = ViewMut::new(&mut own, [count]).unwrap();
                let batch = group.batch(|it| {
                    it.send(&src, 1 - rank)?;
                    it.send(&src, rank)?;
                    it.recv(&mut own_dst, rank)?;
                    it.recv(&mut dst, 1 - rank)
                });
                batch.unwrap();
                assert!((0..count).all(|at| theirs[at] == (at * 2 + 1 - rank) as u32));
                assert_eq!(own, mine);
            });
        }
    });
}

#[test]
fn messages_of_one_pair_are_matched_in_order() {
    within(PATIENCE, || {
        threads(2, &config(), |rank, mut group| {
            for number in 0..2000usize {
                let size = number % 7;
                let mut data = vec![number as u32; size];
                if rank == 0 {
                    group.send(&View::new(&data, [size]).unwrap(), 1).unwrap();
                } else {
                    data.fill(0);
                    group.recv(&mut ViewMut::new(&mut data, [size]).unwrap(), 0).unwrap();
                    assert_eq!(data, vec![number as u32; size]);
                }
            }
        });
    });
}

#[test]
fn one_thread_drives_eight_members_and_waits_for_the_last_first() {
    within(PATIENCE, || {
        let mut set = set(8);
        let mut small = chunks(8, |rank| vec![rank as i32; 5]);
        let mut large = chunks(8, |rank| (0..300_000).map(|at| at + rank as i32).collect());
        let mut works = Vec::new();
        for _ in 0..3 {
            works.push(sum_in_place(&mut set, &mut small));
            works.push(sum_in_place(&mut set, &mut large));
        }
        for work in works.iter().rev() {
            assert_eq!(work.completions().len(), 8);
            work.completions().iter().rev().for_each(|it| it.wait().unwrap());
        }
        for chunk in &small {
            assert_eq!(chunk.to_vec::<i32>().unwrap(), [28 * 64; 5]);
        }
        for chunk in &large {
            let data = chunk.slice::<i32>().unwrap();
            let value = |at: usize| (8 * at as i32).wrapping_add(28).wrapping_mul(64);
            assert!((0..300_000).all(|at| data[at] == value(at)));
        }
    });
}

#[test]
fn streams_and_groups_that_wait_on_each_other_crosswise_go_on() {
    within(PATIENCE, || {
        for _ in 0..20 {
            let (mut one, mut two) = (set(3), set(3));
            let mut a = chunks(3, |rank| (0..1000).map(|at| at + rank as i32).collect());
            let mut b = chunks(3, |_| vec![0; 1000]);
            let streams: Vec<Stream> =
                Device::cpus(3).iter().map(|it| Stream::new(it).unwrap()).collect();
            let cross = |from: &[Chunk], to: &mut [Chunk]| -> Vec<Completion> {
                // Each to its neighbour, in another order than the ranks'.
                let order = [2, 0, 1];
                let copy = |at: usize| {
                    let rank = order[at];
                    copy_async(&mut to[rank], &from[(rank + 1) % 3], &streams[rank]).unwrap()
                };
                (0..3).map(copy).collect()
            };
            drop(sum_in_place(&mut one, &mut a));
            drop(cross(&a, &mut b));
            let middle = sum_in_place(&mut two, &mut b);
            drop(cross(&b, &mut a));
            drop(sum_in_place(&mut one, &mut a));
            let last = cross(&a, &mut b);
            // The last first, and of it the last copy.
            last.iter().rev().for_each(|it| it.wait().unwrap());
            middle.wait().unwrap();
            for chunk in &b {
                let data = chunk.slice::<i32>().unwrap();
                assert!((0..1000).all(|at| data[at] == (3 * at as i32 + 3) * 9));
            }
        }
    });
}

#[test]
#[cfg_attr(miri, ignore = "there are no workers under miri")]
fn work_that_nobody_waits_for_is_done() {
    within(PATIENCE, || {
        let mut set = set(3);
        let mut data = chunks(3, |rank| vec![rank as i32; 400_000]);
        let work = sum_in_place(&mut set, &mut data);
        // This asks, and runs nothing.
        while !work.completions().iter().all(Completion::has_ended) {
            std::thread::sleep(Duration::from_millis(1));
        }
    });
}

#[test]
fn a_rank_whose_work_nobody_waits_for_holds_up_nobody() {
    within(PATIENCE, || {
        let (sender, receiver) = mpsc::channel::<()>();
        let (sender, receiver) = (std::sync::Mutex::new(sender), std::sync::Mutex::new(receiver));
        threads(2, &config(), |rank, mut group| {
            let mut chunk =
                Chunk::from_vec(group.device(), vec![rank as i32 + 1; 100_000]).unwrap();
            let work = {
                let mut view = chunk.view_mut::<i32, 1>([100_000]).unwrap();
                group.all_reduce_in_place_async(&mut view, ReduceOp::Sum).unwrap()
            };
            match rank {
                0 => {
                    drop(work);
                    // It sleeps elsewhere until the other is done.
                    receiver.lock().unwrap().recv().unwrap();
                }
                _ => {
                    work.wait().unwrap();
                    sender.lock().unwrap().send(()).unwrap();
                }
            }
            assert!(chunk.slice::<i32>().unwrap().iter().all(|&it| it == 3));
        });
    });
}

#[test]
#[cfg_attr(miri, ignore = "slow there")]
fn sixty_four_ranks_on_few_cores_make_a_thousand_calls() {
    within(PATIENCE, || {
        threads(64, &config(), |rank, mut group: Group<Host>| {
            for call in 0..1000i64 {
                let count = if call % 250 == 249 { 50_000 } else { 4 };
                let mut data: Vec<i64> = (0..count).map(|at| at * call + rank as i64).collect();
                let mut view = ViewMut::new(&mut data, [count as usize]).unwrap();
                group.all_reduce_in_place(&mut view, ReduceOp::Sum).unwrap();
                assert!((0..count).all(|at| data[at as usize] == 64 * at * call + 64 * 63 / 2));
            }
        });
    });
}

/// Memory that counts how often it is dropped.
struct Counted {
    bytes: Vec<u8>,
    drops: Arc<AtomicUsize>,
}

impl AsMut<[u8]> for Counted {
    fn as_mut(&mut self) -> &mut [u8] {
        &mut self.bytes
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.drops.fetch_add(1, Ordering::SeqCst);
        // Whoever still works on it shows.
        self.bytes.fill(0xEE);
    }
}

fn counted(device: &Device, bytes: usize, drops: &Arc<AtomicUsize>) -> Chunk {
    let owner = Counted { bytes: vec![1; bytes], drops: drops.clone() };
    Chunk::from_owner(device, owner).unwrap()
}

fn wait_for_drops(drops: &AtomicUsize, expected: usize) {
    while drops.load(Ordering::SeqCst) < expected {
        progress::look();
        std::thread::yield_now();
    }
    std::thread::sleep(Duration::from_millis(5));
    progress::look();
    assert_eq!(drops.load(Ordering::SeqCst), expected, "each is freed exactly once");
}

#[test]
fn everything_can_be_dropped_while_work_is_queued() {
    within(PATIENCE, || {
        for order in 0..3 {
            let drops = Arc::new(AtomicUsize::new(0));
            let mut set = set(4);
            let devices = set.devices().to_vec();
            let bytes = if cfg!(miri) { 8_000 } else { 1 << 20 };
            let mut chunks: Vec<Chunk> =
                devices.iter().map(|it| counted(it, bytes, &drops)).collect();
            let works: Vec<Work> = (0..10).map(|_| sum_in_place(&mut set, &mut chunks)).collect();
            match order {
                0 => drop((chunks, works, set)),
                1 => drop((set, chunks, works)),
                _ => drop((works, set, chunks)),
            }
            wait_for_drops(&drops, 4);
        }
    });
}

#[test]
fn everything_can_be_dropped_while_a_call_waits_for_a_rank_that_then_leaves() {
    within(PATIENCE, || {
        let drops = Arc::new(AtomicUsize::new(0));
        threads(2, &config(), |rank, mut group| {
            if rank == 1 {
                return;
            }
            let mut chunk = counted(group.device(), 64, &drops);
            let mut view = chunk.view_mut::<i32, 1>([16]).unwrap();
            drop(group.all_reduce_in_place_async(&mut view, ReduceOp::Sum));
        });
        wait_for_drops(&drops, 1);
    });
}

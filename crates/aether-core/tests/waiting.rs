//! Work makes progress, whoever waits for it, in whatever order, and if nobody does.
#![allow(clippy::unwrap_used, clippy::panic, clippy::expect_used)]

mod common;

use std::time::{Duration, Instant};

use aether_core::{Chunk, Device, Status, Stream, copy, copy_async, fill_async};
use common::{Held, bytes, numbers, reads, soon, writes};

const FEW: usize = if cfg!(miri) { 5 } else { 64 };

#[test]
fn one_thread_may_wait_for_the_last_of_many_streams_first() {
    let device = Device::cpu(0);
    let mut chunks: Vec<_> = (0..FEW).map(|_| Chunk::allocate(&device, 64).unwrap()).collect();
    let source = Chunk::from_vec(&device, numbers(16)).unwrap();
    let streams: Vec<_> = (0..FEW).map(|_| Stream::new(&device).unwrap()).collect();
    let mut ends = vec![copy_async(&mut chunks[0], &source, &streams[0]).unwrap()];
    for at in 1..FEW {
        let (before, after) = chunks.split_at_mut(at);
        ends.push(copy_async(&mut after[0], &before[at - 1], &streams[at]).unwrap());
    }
    for (end, chunk) in ends.iter().zip(&chunks).rev() {
        end.wait().unwrap();
        assert_eq!(chunk.slice::<u32>().unwrap(), numbers(16));
    }
}

#[test]
fn streams_that_wait_on_each_other_in_turns_go_on() {
    let device = Device::cpu(0);
    let mut chunk = Chunk::allocate(&device, 4).unwrap();
    let mut other = Chunk::allocate(&device, 4).unwrap();
    let streams = [Stream::new(&device).unwrap(), Stream::new(&device).unwrap()];
    for round in 0..(FEW as u32 * 4) {
        fill_async(&mut chunk, round, &streams[round as usize % 2]).unwrap();
        copy_async(&mut other, &chunk, &streams[(round as usize + 1) % 2]).unwrap();
    }
    streams[1].synchronize().unwrap();
    assert_eq!(other.slice::<u32>().unwrap(), [FEW as u32 * 4 - 1]);
}

#[test]
fn many_threads_on_few_cores_all_come_through() {
    let device = Device::cpu(0);
    let shared = Chunk::from_vec(&device, numbers(256)).unwrap();
    std::thread::scope(|scope| {
        for thread in 0..FEW {
            let (device, shared) = (&device, &shared);
            scope.spawn(move || {
                let stream = Stream::new(device).unwrap();
                let mut own = Chunk::allocate(device, 1024).unwrap();
                for round in 0..if cfg!(miri) { 2 } else { 50 } {
                    let end = copy_async(&mut own, shared, &stream).unwrap();
                    if round % 3 == 0 {
                        end.wait().unwrap();
                    }
                    assert_eq!(own.slice::<u32>().unwrap(), numbers(256), "thread {thread}");
                    copy(&mut own, &[round as u32; 256][..]).unwrap();
                }
            });
        }
    });
}

#[test]
fn threads_wait_for_one_completion_together() {
    let device = Device::cpu(0);
    let chunk = Chunk::allocate(&device, 64).unwrap();
    let held = Held::new();
    let work = reads(&Stream::new(&device).unwrap(), &chunk, 0..64, &held);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| work.wait().unwrap());
        }
        std::thread::sleep(Duration::from_millis(5));
        held.open();
    });
    assert!(work.is_done());
}

#[test]
fn a_wait_ends_at_its_time_and_the_work_goes_on() {
    let device = Device::cpu(0);
    let mut chunk = Chunk::allocate(&device, 64).unwrap();
    let held = Held::new();
    let work = writes(&Stream::new(&device).unwrap(), &mut chunk, 0..64, &held);
    assert!(!work.wait_timeout(Duration::ZERO).unwrap());
    let start = Instant::now();
    assert!(!work.wait_timeout(Duration::from_millis(30)).unwrap());
    assert!(start.elapsed() >= Duration::from_millis(30));
    assert!(cfg!(miri) || start.elapsed() < Duration::from_secs(5));
    assert!(matches!(work.status(), Status::Pending));
    held.open();
    assert!(work.wait_timeout(Duration::MAX).unwrap());
    assert!(matches!(work.status(), Status::Done));
    assert!(work.wait_timeout(Duration::ZERO).unwrap());
}

#[test]
fn a_wait_with_a_time_gives_the_failure() {
    let device = Device::cpu(0);
    let mut chunk = Chunk::allocate(&device, 64).unwrap();
    let held = Held::new();
    let work = writes(&Stream::new(&device).unwrap(), &mut chunk, 0..64, &held);
    held.fail();
    let error = work.wait_timeout(Duration::from_secs(10)).unwrap_err();
    assert_eq!(error.reason(), "told to fail");
}

#[test]
#[cfg_attr(miri, ignore = "it measures time")]
fn a_long_backlog_does_not_hold_a_deadline_up() {
    let device = Device::cpu(0);
    let size = 16 << 20;
    let source = Chunk::allocate(&device, size).unwrap();
    let mut target = Chunk::allocate(&device, size).unwrap();
    let stream = Stream::new(&device).unwrap();
    let start = Instant::now();
    copy_async(&mut target, &source, &stream).unwrap().wait().unwrap();
    let one = start.elapsed();
    let ends: Vec<_> =
        (0..200).map(|_| copy_async(&mut target, &source, &stream).unwrap()).collect();
    let start = Instant::now();
    let over = ends[199].wait_timeout(Duration::from_millis(1)).unwrap();
    assert!(!over && start.elapsed() < one * 100, "{:?}, one takes {one:?}", start.elapsed());
    ends[199].wait().unwrap();
}

#[test]
fn the_end_of_an_empty_stream_is_there() {
    let stream = Stream::new(&Device::cpu(0)).unwrap();
    stream.synchronize().unwrap();
    assert!(stream.last().is_done() && stream.last().has_ended());
}

#[test]
fn enqueueing_returns_before_the_work_is_done() {
    let device = Device::cpu(0);
    let mut chunk = Chunk::allocate(&device, 64).unwrap();
    let source = Chunk::from_vec(&device, bytes(64, 1)).unwrap();
    let stream = Stream::new(&device).unwrap();
    let held = Held::new();
    writes(&stream, &mut chunk, 0..64, &held);
    let end = copy_async(&mut chunk, &source, &stream).unwrap();
    assert!(!end.has_ended());
    held.open();
    end.wait().unwrap();
    assert!(end.has_ended());
}

#[test]
#[cfg_attr(miri, ignore = "miri's runs have no workers")]
fn work_that_nobody_waits_for_is_done_by_the_workers() {
    let device = Device::cpu(0);
    let streams: Vec<_> = (0..8).map(|_| Stream::new(&device).unwrap()).collect();
    let mut chunks: Vec<_> = (0..8).map(|_| Chunk::allocate(&device, 400).unwrap()).collect();
    let source = Chunk::from_vec(&device, numbers(100)).unwrap();
    // Again after the workers have gone to sleep, and again at once.
    for pause in [0, 50, 0] {
        let mut ends = vec![copy_async(&mut chunks[0], &source, &streams[0]).unwrap()];
        for at in 1..8 {
            let (before, after) = chunks.split_at_mut(at);
            ends.push(copy_async(&mut after[0], &before[at - 1], &streams[at]).unwrap());
        }
        soon("the copies end", || ends.iter().all(|it| it.has_ended()));
        std::thread::sleep(Duration::from_millis(pause));
    }
    assert_eq!(chunks[7].slice::<u32>().unwrap(), numbers(100));
}

//! Calls leave nothing behind, and small ones allocate nothing.
#![allow(clippy::unwrap_used, clippy::panic, clippy::expect_used)]

mod common;

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::Mutex;
use std::sync::atomic::{AtomicIsize, AtomicU64, Ordering};

use aether_collective::ReduceOp;
use aether_core::{Chunk, View, ViewMut};
use common::{PATIENCE, config, set, threads, within};

struct Counting;

static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);
static LIVE: AtomicIsize = AtomicIsize::new(0);

// SAFETY: everything is passed on to the system's allocator, which keeps the contract.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        LIVE.fetch_add(layout.size() as isize, Ordering::Relaxed);
        // SAFETY: the caller keeps the contract of `alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        LIVE.fetch_sub(layout.size() as isize, Ordering::Relaxed);
        // SAFETY: the caller keeps the contract of `dealloc`.
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

/// The counters are the process's: one test at a time.
static ALONE: Mutex<()> = Mutex::new(());

/// Waits until at most so many bytes are left: streams that have ended go when a worker comes by.
fn settles(left: impl Fn() -> isize, at_most: isize) {
    while left() > at_most {
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
}

/// How many allocations and how many bytes more there are after `calls` calls.
fn growth(calls: usize, mut call: impl FnMut()) -> (u64, isize) {
    (0..calls / 10).for_each(|_| call());
    let before = (ALLOCATIONS.load(Ordering::Relaxed), LIVE.load(Ordering::Relaxed));
    (0..calls).for_each(|_| call());
    let after = (ALLOCATIONS.load(Ordering::Relaxed), LIVE.load(Ordering::Relaxed));
    (after.0 - before.0, after.1 - before.1)
}

#[test]
fn twenty_thousand_small_collectives_allocate_nothing_and_leave_nothing() {
    let _alone = ALONE.lock();
    within(PATIENCE, || {
        let mut set = set(2);
        let (mut one, mut two) = ([1i32; 4], [2i32; 4]);
        let (allocations, bytes) = growth(20_000, || {
            let mut views =
                [ViewMut::new(&mut one, [4]).unwrap(), ViewMut::new(&mut two, [4]).unwrap()];
            set.all_reduce_in_place(&mut views, ReduceOp::Max).unwrap();
        });
        // The workers may do something of their own, but not for every call.
        assert!(allocations < 200, "{allocations} allocations by 20000 calls");
        assert!(bytes < 16 << 10, "{bytes} bytes are left");
    });
}

#[test]
fn small_collectives_of_threads_allocate_nothing() {
    let _alone = ALONE.lock();
    within(PATIENCE, || {
        let grown = threads(2, &config(), |rank, mut group| {
            let mut data = [rank as i32; 4];
            growth(20_000, || {
                let mut view = ViewMut::new(&mut data, [4]).unwrap();
                group.all_reduce_in_place(&mut view, ReduceOp::Max).unwrap();
            })
        });
        for (allocations, bytes) in grown {
            assert!(allocations < 400, "{allocations} allocations by 20000 calls");
            assert!(bytes < 64 << 10, "{bytes} bytes are left");
        }
    });
}

#[test]
fn twenty_thousand_asynchronous_collectives_and_messages_leave_nothing() {
    let _alone = ALONE.lock();
    within(PATIENCE, || {
        let mut set = set(2);
        let devices = set.devices().to_vec();
        let chunk = |it| Chunk::from_vec(it, vec![3i32; 4]).unwrap();
        let mut chunks: Vec<Chunk> = devices.iter().map(chunk).collect();
        let mut number = 0;
        let (_, bytes) = growth(20_000, || {
            let views = chunks.iter_mut().map(|it| it.view_mut::<i32, 1>([4]).unwrap());
            let mut views: Vec<_> = views.collect();
            let work = set.all_reduce_in_place_async(&mut views, ReduceOp::Max).unwrap();
            number += 1;
            if number % 20 == 0 {
                work.wait().unwrap();
            }
        });
        assert!(bytes < 64 << 10, "{bytes} bytes are left");
        let (from, mut to) = ([[1u8; 4], [2; 4]], [[0u8; 4]; 2]);
        let (_, bytes) = growth(20_000, || {
            let src: Vec<_> = from.iter().map(|it| View::new(it, [4]).unwrap()).collect();
            let mut dst: Vec<_> = to.iter_mut().map(|it| ViewMut::new(it, [4]).unwrap()).collect();
            set.permute(&src, &mut dst, &[1, 0]).unwrap();
        });
        assert!(bytes < 64 << 10, "{bytes} bytes are left");
        assert_eq!(to, [[2; 4], [1; 4]]);
    });
}

#[test]
fn groups_that_come_and_go_leave_nothing() {
    let _alone = ALONE.lock();
    within(PATIENCE, || {
        let call = || set(3).barrier().unwrap();
        (0..100).for_each(|_| call());
        let before = LIVE.load(Ordering::Relaxed);
        (0..1000).for_each(|_| call());
        settles(|| LIVE.load(Ordering::Relaxed) - before, 128 << 10);
    });
}

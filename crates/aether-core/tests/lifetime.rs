//! Memory outlives its work, and goes once, whatever is dropped first.
#![allow(clippy::unwrap_used, clippy::panic, clippy::expect_used)]

mod common;

use std::sync::Arc;
use std::sync::atomic::Ordering;

use aether_core::{Address, Chunk, Device, Operation, Result, Step, Stream, copy_async, enqueue};
use common::{Counts, Held, Owner, bytes, eventually, look_hard, numbers, reads, soon, writes};

/// A chunk of an owner on which work is held, with its stream and completion.
fn busy() -> (Chunk, Stream, aether_core::Completion, Arc<Held>, Arc<Counts>) {
    let device = Device::cpu(0);
    let (owner, counts) = Owner::new(bytes(64, 7));
    let chunk = Chunk::from_owner(&device, owner).unwrap();
    let stream = Stream::new(&device).unwrap();
    let held = Held::new();
    let work = reads(&stream, &chunk, 0..64, &held);
    (chunk, stream, work, held, counts)
}

#[test]
fn memory_goes_once_and_after_its_work_whatever_is_dropped_first() {
    for order in [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]] {
        let (chunk, stream, work, held, counts) = busy();
        let (mut chunk, mut stream, mut work) = (Some(chunk), Some(stream), Some(work));
        for which in order {
            match which {
                0 => drop(chunk.take()),
                1 => drop(stream.take()),
                _ => drop(work.take()),
            }
            look_hard();
            assert_eq!(counts.dropped(), 0, "{order:?} after {which}");
        }
        assert!(held.has_begun());
        held.open();
        eventually("the memory goes", || counts.dropped() > 0);
        look_hard();
        assert_eq!(counts.dropped(), 1, "{order:?}");
        assert_eq!(counts.asked(), 1);
    }
}

#[test]
fn memory_without_work_goes_at_once() {
    let (owner, counts) = Owner::new(bytes(64, 7));
    let chunk = Chunk::from_owner(&Device::cpu(0), owner).unwrap();
    assert_eq!(counts.dropped(), 0);
    drop(chunk);
    assert_eq!(counts.dropped(), 1);
}

#[test]
fn memory_that_was_read_and_written_by_many_waits_for_all() {
    let device = Device::cpu(0);
    let (owner, counts) = Owner::new(bytes(64, 7));
    let mut chunk = Chunk::from_owner(&device, owner).unwrap();
    let held: Vec<_> = (0..6).map(|_| Held::new()).collect();
    for (at, held) in held.iter().enumerate() {
        let stream = Stream::new(&device).unwrap();
        match at % 2 {
            0 => reads(&stream, &chunk, at * 8..at * 8 + 20, held),
            _ => writes(&stream, &mut chunk, at * 8..at * 8 + 4, held),
        };
    }
    drop(chunk);
    for held in held.iter().rev() {
        look_hard();
        assert_eq!(counts.dropped(), 0);
        held.open();
    }
    eventually("the memory goes", || counts.dropped() == 1);
}

#[test]
fn leaking_handles_breaks_nothing() {
    let (chunk, stream, work, held, counts) = busy();
    // The queue is never dropped now: it is leaked on purpose, and nothing else.
    if !cfg!(miri) {
        std::mem::forget(work.clone());
        std::mem::forget(stream.clone());
    }
    drop(chunk);
    look_hard();
    assert_eq!(counts.dropped(), 0);
    held.open();
    work.wait().unwrap();
    eventually("the memory goes", || counts.dropped() == 1);
}

#[test]
fn a_source_may_be_dropped_while_it_is_read() {
    let devices = Device::cpus(2);
    let (owner, counts) = Owner::new(bytes(4000, 4));
    let source = Chunk::from_owner(&devices[0], owner).unwrap();
    let mut target = Chunk::allocate(&devices[1], 4000).unwrap();
    let stream = Stream::new(&devices[0]).unwrap();
    let held = Held::new();
    reads(&stream, &target, 0..1, &held);
    copy_async(&mut target, &source, &stream).unwrap();
    drop((source, stream));
    look_hard();
    assert_eq!(counts.dropped(), 0);
    held.open();
    assert_eq!(target.to_vec::<u8>().unwrap(), bytes(4000, 4));
    eventually("the memory goes", || counts.dropped() == 1);
}

#[test]
fn an_owner_that_panics_when_it_is_dropped_takes_nobody_with_it() {
    for with_work in [false, true] {
        let (chunk, _stream, work, held, counts) = busy();
        counts.panics.store(true, Ordering::SeqCst);
        if !with_work {
            held.open();
            work.wait().unwrap();
        }
        drop(chunk);
        held.open();
        eventually("the memory goes", || counts.dropped() == 1);
        work.wait().unwrap();
    }
}

#[test]
fn an_owner_is_asked_once_and_dropped_when_refused() {
    let (owner, counts) = Owner::new(bytes(8, 1));
    let chunk = Chunk::from_read_only_owner(&Device::cpu(0), owner).unwrap();
    assert_eq!(chunk.slice::<u8>().unwrap(), bytes(8, 1));
    assert_eq!(chunk.slice::<u8>().unwrap(), bytes(8, 1));
    assert_eq!((counts.asked(), counts.dropped()), (1, 0));
    drop(chunk);
    assert_eq!((counts.asked(), counts.dropped()), (1, 1));
    let (device, lead) = common::Manual::device();
    let (owner, counts) = Owner::new(bytes(8, 1));
    assert!(Chunk::from_owner(&device, owner).is_err());
    assert_eq!((counts.asked(), counts.dropped()), (0, 1));
    lead.check();
}

#[test]
fn a_moved_owner_is_not_pointed_into() {
    // The bytes lie inside of the owner itself, so they'd move if the owner did.
    struct Inline([u8; 32]);
    impl AsMut<[u8]> for Inline {
        fn as_mut(&mut self) -> &mut [u8] {
            &mut self.0
        }
    }
    let mut inline = Inline([0; 32]);
    inline.0.copy_from_slice(&bytes(32, 6));
    let mut chunks = vec![Chunk::from_owner(&Device::cpu(0), inline).unwrap()];
    let before = chunks[0].data();
    chunks[0].slice_mut::<u8>().unwrap()[1] = 200;
    let moved = Box::new(chunks.pop().unwrap());
    assert_eq!(moved.data(), before);
    let mut expected = bytes(32, 6);
    expected[1] = 200;
    assert_eq!(moved.slice::<u8>().unwrap(), expected);
}

#[test]
fn borrowed_memory_stays_with_its_owner() {
    let device = Device::cpu(0);
    let mut lent = numbers(16);
    let address = Address::from_ptr(lent.as_mut_ptr().cast());
    // SAFETY: nobody else touches the vector until the chunk is gone, and no work is enqueued.
    let mut chunk = unsafe { Chunk::borrow(&device, address, 64) };
    assert!(!chunk.owns() && chunk.is_writable());
    assert_eq!((chunk.size(), chunk.data()), (64, address));
    assert_eq!(chunk.slice::<u32>().unwrap(), numbers(16));
    chunk.slice_mut::<u32>().unwrap()[3] = 9;
    drop(chunk);
    assert_eq!((lent[3], lent[4]), (9, numbers(16)[4]));
}

/// Waits for its own stream when it is dropped: as the last handle of a group would.
struct Last(Stream);

// SAFETY: it touches no memory.
unsafe impl Operation for Last {
    fn issue(&self, _: u64) -> Result<Step> {
        Ok(Step::Issued)
    }

    fn advance(&self, _: u64) -> Result<Step> {
        Ok(Step::Issued)
    }

    fn refused(&self, _: u64, _: &aether_core::Error) {}
}

impl Drop for Last {
    fn drop(&mut self) {
        // It may be dropped in the middle of its stream's work, where a wait can't end.
        let _ = self.0.last().wait_timeout(std::time::Duration::from_millis(1));
    }
}

#[test]
fn an_operation_may_look_at_its_own_stream_when_it_is_dropped() {
    let stream = Stream::new(&Device::cpu(0)).unwrap();
    // SAFETY: the operation touches nothing.
    let work = unsafe { enqueue(&stream, &[], &[], Arc::new(Last(stream.clone())), 0) }.unwrap();
    work.wait().unwrap();
}

#[test]
#[cfg_attr(miri, ignore = "miri's runs have no workers")]
fn memory_goes_although_nobody_looks() {
    let (chunk, stream, work, held, counts) = busy();
    drop((chunk, stream, work));
    soon("the work begins", || held.has_begun());
    held.open();
    soon("the memory goes", || counts.dropped() == 1);
}

thread_local! {
    static DEPTH: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}

/// An owner whose destructor lets the next owner's work end, and looks.
struct Chained {
    memory: Vec<u8>,
    next: Option<Arc<Held>>,
    deepest: Arc<std::sync::atomic::AtomicUsize>,
    dropped: Arc<std::sync::atomic::AtomicUsize>,
}

impl AsMut<[u8]> for Chained {
    fn as_mut(&mut self) -> &mut [u8] {
        &mut self.memory
    }
}

impl Drop for Chained {
    fn drop(&mut self) {
        let depth = DEPTH.get() + 1;
        DEPTH.set(depth);
        self.deepest.fetch_max(depth, Ordering::SeqCst);
        if let Some(next) = &self.next {
            next.open();
        }
        for _ in 0..3 {
            aether_core::progress::look();
        }
        DEPTH.set(depth - 1);
        self.dropped.fetch_add(1, Ordering::SeqCst);
    }
}

#[test]
fn owners_that_wait_when_they_are_dropped_are_not_dropped_within_each_other() {
    let count = if cfg!(miri) { 5 } else { 50 };
    let device = Device::cpu(0);
    let held: Vec<_> = (0..count).map(|_| Held::new()).collect();
    let (deepest, dropped) = (Arc::default(), Arc::default());
    for at in 0..count {
        let owner = Chained {
            memory: vec![at as u8; 8],
            next: held.get(at + 1).cloned(),
            deepest: Arc::clone(&deepest),
            dropped: Arc::clone(&dropped),
        };
        let chunk = Chunk::from_owner(&device, owner).unwrap();
        let stream = Stream::new(&device).unwrap();
        drop(reads(&stream, &chunk, 0..8, &held[at]));
    }
    held[0].open();
    eventually("all owners are dropped", || dropped.load(Ordering::SeqCst) == count);
    assert_eq!(deepest.load(Ordering::SeqCst), 1);
}

//! What calls allocate: nothing, once they have been made for a while. The test has a process of its
//! own, whose allocator counts.
#![allow(clippy::unwrap_used)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::hint::black_box;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

use aether::{
    Chunk, Device, Group, GroupConfig, GroupSet, Host, PartitionSpec, ReduceOp, Stream, View, copy,
    copy_async, partition_view,
};

/// The system's allocator, which counts allocations and the bytes that live.
struct Counting;

static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);
static LIVING: AtomicI64 = AtomicI64::new(0);

// SAFETY: every method is the system allocator's, called with the caller's own arguments.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        LIVING.fetch_add(layout.size() as i64, Ordering::Relaxed);
        // SAFETY: the caller's promise is the same.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, address: *mut u8, layout: Layout) {
        LIVING.fetch_sub(layout.size() as i64, Ordering::Relaxed);
        // SAFETY: the caller's promise is the same; what it frees came from the system's allocator.
        unsafe { System.dealloc(address, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

const CALLS: usize = 1000;

/// Refuses calls that allocate each time. A few allocations are nobody's call: a list of the process
/// that grows, a thread that starts.
fn allocates_nothing(what: &str, mut call: impl FnMut()) {
    (0..200).for_each(|_| call());
    let before = ALLOCATIONS.load(Ordering::Relaxed);
    (0..CALLS).for_each(|_| call());
    let made = ALLOCATIONS.load(Ordering::Relaxed) - before;
    assert!(made < 100, "{what}: {made} allocations in {CALLS} calls");
}

/// Makes calls of all members from one thread, blocking and not.
fn sets(ranks: u32, count: usize) {
    let devices = Device::cpus(ranks);
    let config = GroupConfig::default().named(format!("sets of {count}"));
    let mut set = GroupSet::<Host>::join_with(&devices, &config).unwrap();
    let sources: Vec<Chunk> =
        devices.iter().map(|it| Chunk::from_vec(it, vec![1f32; count]).unwrap()).collect();
    let mut chunks: Vec<Chunk> =
        devices.iter().map(|it| Chunk::allocate(it, 4 * count).unwrap()).collect();
    let from: Vec<View<'_, f32, 1>> = sources.iter().map(|it| it.view([count]).unwrap()).collect();
    let mut to: Vec<_> =
        chunks.iter_mut().map(|it| it.view_mut::<f32, 1>([count]).unwrap()).collect();
    let words = |how: &str| format!("{how}, {ranks} ranks, {count} elements");
    allocates_nothing(&words("all_reduce"), || {
        set.all_reduce(&from, &mut to, ReduceOp::Sum).unwrap();
    });
    allocates_nothing(&words("all_to_all"), || set.all_to_all(&from, &mut to).unwrap());
    allocates_nothing(&words("broadcast_in_place"), || {
        set.broadcast_in_place(&mut to, 1).unwrap();
    });
    allocates_nothing(&words("all_reduce_async"), || {
        set.all_reduce_async(&from, &mut to, ReduceOp::Sum).unwrap().wait().unwrap();
    });
    allocates_nothing(&words("permute"), || {
        set.permute(&from, &mut to, &[1, 0]).unwrap();
    });
}

/// Makes blocking calls from one thread a rank.
fn threads(calls: usize) {
    let devices = Device::cpus(2);
    let config = GroupConfig::default().named("threads");
    let rank = |device: &Device| {
        let mut group = Group::<Host>::join_with(&devices, device, &config).unwrap();
        let mut values = [1i64, 2];
        let mut buffer = aether::ViewMut::new(&mut values, [2]).unwrap();
        for _ in 0..calls {
            group.all_reduce_in_place(&mut buffer, ReduceOp::Max).unwrap();
            group.barrier().unwrap();
        }
    };
    std::thread::scope(|scope| {
        devices.iter().for_each(|it| drop(scope.spawn(|| rank(it))));
    });
}

fn copies() {
    let devices = Device::cpus(2);
    let source = Chunk::allocate(&devices[0], 64).unwrap();
    let mut target = Chunk::allocate(&devices[1], 64).unwrap();
    let stream = Stream::new(&devices[0]).unwrap();
    allocates_nothing("copy_async", || {
        copy_async(&mut target, &source, &stream).unwrap().wait().unwrap();
    });
    allocates_nothing("copy", || copy(&mut target, &source).unwrap());
    let batch = vec![0f32; 64 * 1000];
    let batch = View::new(&batch, [64, 1000]).unwrap();
    allocates_nothing("partition_view", || {
        black_box(partition_view(black_box(&batch), PartitionSpec::new(4), 2).unwrap());
    });
}

/// How many handles the process has open, where that can be told.
fn handles() -> usize {
    std::fs::read_dir("/proc/self/fd").map_or(0, Iterator::count)
}

// One test, because another one at the same time would be counted with it.
#[test]
fn calls_allocate_nothing_once_they_have_been_made_for_a_while() {
    copies();
    sets(2, 4);
    // Too large for letters, and then too large to be carried out in hand.
    sets(2, 4096);
    sets(2, 1 << 17);
    grows_nothing(5_000);
}

/// `AETHER_SOAK_CALLS` says how many; 10 million if it doesn't.
#[test]
#[ignore = "takes minutes"]
fn millions_of_small_collectives_leave_nothing_behind() {
    let calls = std::env::var("AETHER_SOAK_CALLS").ok().and_then(|it| it.parse().ok());
    grows_nothing(calls.unwrap_or(10_000_000));
}

fn grows_nothing(calls: usize) {
    // What the process needs once is there after a first group.
    threads(1000);
    let before = (LIVING.load(Ordering::Relaxed), handles());
    threads(calls / 2);
    let after = (LIVING.load(Ordering::Relaxed), handles());
    let grown = after.0 - before.0;
    assert!(grown < 64 << 10, "{calls} calls left {grown} bytes behind");
    assert!(after.1 <= before.1, "{calls} calls left {} handles open", after.1 - before.1);
}

//! What the tests share: devices of their own, data that depends on its position, and a driver that
//! provides only what is required.
#![allow(dead_code, unreachable_pub, unused_imports, reason = "each test file uses a part of it")]

mod basic;

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use aether_collective::{CollectiveDriver, Group, GroupConfig, GroupSet};
use aether_core::{Chunk, Device, Element, View, ViewMut};

pub use basic::{Basic, has_not_happened, meanwhile};

/// Long enough for a busy machine, and short enough for a test that fails.
pub const SOON: Duration = Duration::from_secs(20);

/// So many host devices that no other test uses: groups of the same devices exclude each other.
pub fn devices(count: usize) -> Vec<Device> {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let first = NEXT.fetch_add(count as u32, Ordering::Relaxed);
    (first..first + count as u32).map(Device::cpu).collect()
}

/// A configuration in which nothing waits for ever.
pub fn config() -> GroupConfig {
    GroupConfig::default().with_deadline(SOON)
}

/// Waits until it is so, and fails if it doesn't come.
#[track_caller]
pub fn until(mut it_is: impl FnMut() -> bool) {
    let end = Instant::now() + SOON;
    while !it_is() {
        assert!(Instant::now() < end, "it didn't come");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// All members of a group of devices of its own.
pub fn set<D: CollectiveDriver>(ranks: usize) -> GroupSet<D> {
    GroupSet::join_with(&devices(ranks), &config()).unwrap()
}

/// Runs each rank of a group of devices of its own in a thread of its own.
pub fn each_rank<D: CollectiveDriver>(ranks: usize, run: impl Fn(Group<D>) + Sync) {
    each_rank_with(ranks, &config(), run);
}

/// As [`each_rank`], configured.
pub fn each_rank_with<D: CollectiveDriver>(
    ranks: usize,
    config: &GroupConfig,
    run: impl Fn(Group<D>) + Sync,
) {
    let devices = devices(ranks);
    std::thread::scope(|scope| {
        for device in &devices {
            let (devices, run) = (&devices, &run);
            scope.spawn(move || run(Group::join_with(devices, device, config).unwrap()));
        }
    });
}

/// What a rank holds: no two elements of any two ranks are the same.
pub fn data(rank: usize, count: usize) -> Vec<i64> {
    (0..count).map(|at| (rank as i64 + 1) * 1_000_003 + at as i64 * 17).collect()
}

/// The sum of what all ranks hold.
pub fn sum(ranks: usize, count: usize) -> Vec<i64> {
    let all: Vec<_> = (0..ranks).map(|rank| data(rank, count)).collect();
    (0..count).map(|at| all.iter().map(|it| it[at]).sum()).collect()
}

/// What every rank holds, by rank.
pub fn all_data(ranks: usize, count: usize) -> Vec<Vec<i64>> {
    (0..ranks).map(|rank| data(rank, count)).collect()
}

/// A chunk with these elements on each device.
pub fn chunks<T: Element>(devices: &[Device], elements: Vec<Vec<T>>) -> Vec<Chunk> {
    devices.iter().zip(elements).map(|(on, it)| Chunk::from_vec(on, it).unwrap()).collect()
}

/// The whole slice to read.
pub fn view<T: Element>(slice: &[T]) -> View<'_, T, 1> {
    View::new(slice, [slice.len()]).unwrap()
}

/// The whole slice to write.
pub fn view_mut<T: Element>(slice: &mut [T]) -> ViewMut<'_, T, 1> {
    let length = slice.len();
    ViewMut::new(slice, [length]).unwrap()
}

/// Every list to read.
pub fn views<T: Element>(lists: &[Vec<T>]) -> Vec<View<'_, T, 1>> {
    lists.iter().map(|it| view(it)).collect()
}

/// Every list to write.
pub fn views_mut<T: Element>(lists: &mut [Vec<T>]) -> Vec<ViewMut<'_, T, 1>> {
    lists.iter_mut().map(|it| view_mut(it)).collect()
}

/// Every chunk to read, as i64.
pub fn chunk_views(chunks: &[Chunk]) -> Vec<View<'_, i64, 1>> {
    chunks.iter().map(|it| it.view([it.size() / 8]).unwrap()).collect()
}

/// Every chunk to write, as i64.
pub fn chunk_views_mut(chunks: &mut [Chunk]) -> Vec<ViewMut<'_, i64, 1>> {
    chunks
        .iter_mut()
        .map(|it| {
            let count = it.size() / 8;
            it.view_mut([count]).unwrap()
        })
        .collect()
}

/// What the chunks hold.
pub fn contents(chunks: &[Chunk]) -> Vec<Vec<i64>> {
    chunks.iter().map(|it| it.to_vec().unwrap()).collect()
}

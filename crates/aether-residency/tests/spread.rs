//! One source to several replicas at a time: it is read once, and each replica has its own outcome.
#![allow(clippy::unwrap_used, clippy::panic, clippy::expect_used)]

mod common;

use std::alloc::Layout;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::ThreadId;

use aether_core::{
    Address, AsSpanMut, Backend, Chunk, Device, DeviceId, DeviceKind, Error, ErrorKind,
    HostBackend, Link, NativeStream, Region, Result, Stream,
};
use aether_residency::ReplicaSet;
use common::{Held, bytes, until};

/// Memory of the host that tells which copies were made, in order.
struct Witness {
    inner: HostBackend,
    copies: Mutex<Vec<Seen>>,
    /// Copies to this device fail.
    failing: AtomicU32,
}

#[derive(Clone, Copy, PartialEq, Eq)]
struct Seen {
    by: ThreadId,
    source: usize,
    bytes: usize,
    to: u32,
}

const NONE: u32 = u32::MAX;
const KIND: DeviceKind = DeviceKind(79);

impl Witness {
    fn devices(count: u32) -> (Arc<Self>, Vec<Device>) {
        let inner = HostBackend::new();
        let it = Self { inner, copies: Mutex::default(), failing: AtomicU32::new(NONE) };
        let it = Arc::new(it);
        let device = |index| Device::new(DeviceId::new(KIND, index), it.clone());
        let devices = (0..count).map(device).collect();
        (it, devices)
    }

    fn fail(&self, device: u32) {
        self.failing.store(device, Ordering::SeqCst);
    }
}

// SAFETY: everything is the host backend's, but for copies that fail without touching memory.
unsafe impl Backend for Witness {
    fn name(&self) -> &str {
        "witness"
    }

    fn allocate(&self, device: DeviceId, layout: Layout, zeroed: bool) -> Result<Address> {
        self.inner.allocate(device, layout, zeroed)
    }

    unsafe fn free(&self, device: DeviceId, address: Address, layout: Layout) {
        // SAFETY: the caller promises what the host backend asks.
        unsafe { self.inner.free(device, address, layout) }
    }

    unsafe fn copy(&self, stream: NativeStream, dst: Region, src: Region) -> Result<()> {
        let (by, source) = (std::thread::current().id(), src.address.addr());
        let seen = Seen { by, source, bytes: src.bytes, to: dst.device.index };
        self.copies.lock().unwrap().push(seen);
        if self.failing.load(Ordering::SeqCst) == dst.device.index {
            return Err(Error::new(ErrorKind::Backend, "copy", "told to fail").on(dst.device));
        }
        // SAFETY: the caller promises what the host backend asks.
        unsafe { self.inner.copy(stream, dst, src) }
    }

    unsafe fn fill(&self, stream: NativeStream, dst: Region, pattern: &[u8]) -> Result<()> {
        // SAFETY: the caller promises what the host backend asks.
        unsafe { self.inner.fill(stream, dst, pattern) }
    }

    fn host_addressable(&self, _: DeviceId) -> bool {
        true
    }

    fn link(&self, device: DeviceId, other: &Device) -> Link {
        self.inner.link(device, other)
    }

    fn shares_copies(&self) -> bool {
        true
    }

    fn open_stream(&self, device: DeviceId) -> Result<NativeStream> {
        self.inner.open_stream(device)
    }
}

/// More than a copy in slices takes at least, and no multiple of a slice.
const SIZE: usize = (1 << 20) + 12_345;

fn broadcast(set: &mut ReplicaSet, source: &[u8], borrowed: bool) -> Result<()> {
    match borrowed {
        true => set.broadcast(source),
        false => set.broadcast(&Chunk::from_vec(&Device::cpu(0), source.to_vec()).unwrap()),
    }
}

#[test]
fn a_broadcast_reads_each_part_of_its_source_once_for_all_replicas() {
    for borrowed in [true, false] {
        let (witness, devices) = Witness::devices(3);
        let mut set = ReplicaSet::new(&devices, SIZE).unwrap();
        let source = bytes(SIZE, 1);
        broadcast(&mut set, &source, borrowed).unwrap();
        for replica in set.chunks() {
            assert!(replica.slice::<u8>().unwrap() == source);
        }
        let mut seen = witness.copies.lock().unwrap().clone();
        // The threads take turns in any way, and each sees its own copies in order.
        let mut threads: Vec<ThreadId> = Vec::new();
        seen.iter().for_each(|it| {
            if !threads.contains(&it.by) {
                threads.push(it.by);
            }
        });
        seen.sort_by_key(|it| threads.iter().position(|by| *by == it.by));
        let slices = seen.chunks(3);
        assert!(slices.len() > 1);
        assert_eq!(slices.clone().map(|it| it[0].bytes).sum::<usize>(), SIZE);
        for slice in slices {
            let same = |it: &Seen| (it.by, it.source) == (slice[0].by, slice[0].source);
            assert!(slice.iter().all(same));
            assert_eq!(slice.iter().map(|it| it.to).collect::<Vec<_>>(), [0, 1, 2]);
        }
    }
}

#[test]
fn a_replica_whose_copy_fails_has_the_error_alone_and_is_not_tried_again() {
    for borrowed in [true, false] {
        let (witness, devices) = Witness::devices(3);
        let mut set = ReplicaSet::new(&devices, SIZE).unwrap();
        witness.fail(1);
        let source = bytes(SIZE, 2);
        let error = broadcast(&mut set, &source, borrowed).unwrap_err();
        assert_eq!((error.kind(), error.reason()), (ErrorKind::Backend, "told to fail"));
        witness.fail(NONE);
        assert_eq!(set.chunk(1).unwrap().slice::<u8>().unwrap_err().reason(), "told to fail");
        for at in [0, 2] {
            assert!(set.chunk(at).unwrap().slice::<u8>().unwrap() == source);
        }
        assert_eq!(set.repair(0).unwrap(), [1]);
        assert!(set.chunk(1).unwrap().slice::<u8>().unwrap() == source);
    }
}

#[test]
fn a_replica_that_is_written_still_keeps_no_other_waiting() {
    let (witness, devices) = Witness::devices(3);
    let mut set = ReplicaSet::new(&devices, SIZE).unwrap();
    let held = Held::on(set.chunk_mut(1).unwrap().span_mut().unwrap(), false);
    let source = Chunk::from_vec(&devices[0], bytes(SIZE, 3)).unwrap();
    let streams: Vec<_> = devices.iter().map(|it| Stream::new(it).unwrap()).collect();
    let work = set.broadcast_async(&source, &streams).unwrap();
    until("the others are there", || work[0].is_done() && work[2].is_done());
    assert!(!work[1].has_ended());
    assert!(witness.copies.lock().unwrap().iter().all(|it| it.to != 1));
    held.let_go();
    work[1].wait().unwrap();
    for replica in set.chunks() {
        assert!(replica.slice::<u8>().unwrap() == bytes(SIZE, 3));
    }
}

#[test]
fn a_copy_in_slices_moves_every_byte_and_takes_part_in_the_order_of_its_streams() {
    let (witness, devices) = Witness::devices(2);
    let first = Chunk::from_vec(&Device::cpu(0), bytes(3 * SIZE, 4)).unwrap();
    let mut second = Chunk::allocate(&devices[0], 3 * SIZE).unwrap();
    let mut third = Chunk::allocate(&devices[1], 3 * SIZE).unwrap();
    let streams: Vec<_> = devices.iter().map(|it| Stream::new(it).unwrap()).collect();
    aether_core::copy_async(&mut second, &first, &streams[0]).unwrap();
    let last = aether_core::copy_async(&mut third, &second, &streams[1]).unwrap();
    drop((first, second));
    last.wait().unwrap();
    assert!(third.slice::<u8>().unwrap() == bytes(3 * SIZE, 4));
    assert!(witness.copies.lock().unwrap().len() > 4);
}

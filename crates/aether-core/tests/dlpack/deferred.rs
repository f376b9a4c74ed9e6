//! A device whose work runs when the test says so, and whose streams order each other.

use std::alloc::Layout;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use aether_core::{
    Address, Backend, Device, DeviceId, DeviceKind, HostBackend, Link, NativeStream, Ordered,
    Point, Region, Result,
};

#[derive(Default)]
pub(crate) struct Deferred {
    host: HostBackend,
    streams: AtomicU64,
    /// Up to which ticket each stream has come.
    done: Mutex<BTreeMap<u64, u64>>,
    /// Which stream was ordered behind which point.
    waits: Mutex<Vec<(NativeStream, Point)>>,
    /// What was marked, in order.
    marked: Mutex<Vec<Point>>,
    pub(crate) freed: AtomicUsize,
}

impl Deferred {
    pub(crate) fn device() -> (Device, Arc<Self>) {
        let backend = Arc::new(Self::default());
        (Device::new(DeviceId::new(DeviceKind::CUDA, 0), backend.clone()), backend)
    }

    /// Everything on the stream has ended.
    pub(crate) fn finish(&self, stream: NativeStream) {
        self.done.lock().unwrap().insert(stream.0, u64::MAX);
    }

    /// The stream has come so far.
    pub(crate) fn finish_up_to(&self, point: Point) {
        self.done.lock().unwrap().insert(point.stream.0, point.ticket);
    }

    /// The last point that was marked on the stream.
    pub(crate) fn last_mark(&self, stream: NativeStream) -> Option<Point> {
        self.marked.lock().unwrap().iter().rev().find(|it| it.stream == stream).copied()
    }

    pub(crate) fn is_ordered(&self, stream: NativeStream, behind: Point) -> bool {
        self.waits.lock().unwrap().contains(&(stream, behind))
    }
}

// SAFETY: memory and copies are the host's, whose promises hold. Work is done at once, so that an end
// which is told late, and an order that is only noted, are late and noted for nobody.
unsafe impl Backend for Deferred {
    fn name(&self) -> &str {
        "deferred"
    }

    fn allocate(&self, device: DeviceId, layout: Layout, zeroed: bool) -> Result<Address> {
        self.host.allocate(device, layout, zeroed)
    }

    unsafe fn free(&self, device: DeviceId, address: Address, layout: Layout) {
        self.freed.fetch_add(1, Ordering::SeqCst);
        // SAFETY: the caller promises what the host's backend asks.
        unsafe { self.host.free(device, address, layout) }
    }

    unsafe fn copy(&self, stream: NativeStream, dst: Region, src: Region) -> Result<()> {
        // SAFETY: as above.
        unsafe { self.host.copy(stream, dst, src) }
    }

    unsafe fn fill(&self, stream: NativeStream, dst: Region, pattern: &[u8]) -> Result<()> {
        // SAFETY: as above.
        unsafe { self.host.fill(stream, dst, pattern) }
    }

    fn host_addressable(&self, _: DeviceId) -> bool {
        true
    }

    fn adopts(&self, _: DeviceId) -> bool {
        true
    }

    fn link(&self, _: DeviceId, _: &Device) -> Link {
        Link::Direct
    }

    fn is_asynchronous(&self) -> bool {
        true
    }

    fn open_stream(&self, _: DeviceId) -> Result<NativeStream> {
        Ok(NativeStream(self.streams.fetch_add(1, Ordering::SeqCst) + 1))
    }

    fn mark(&self, at: Point) -> Result<()> {
        self.marked.lock().unwrap().push(at);
        Ok(())
    }

    fn is_done(&self, at: Point) -> Result<bool> {
        Ok(self.done.lock().unwrap().get(&at.stream.0).is_some_and(|&it| it >= at.ticket))
    }

    fn wait(&self, stream: NativeStream, on: Point) -> Result<Ordered> {
        self.waits.lock().unwrap().push((stream, on));
        Ok(Ordered::ByDevice)
    }
}

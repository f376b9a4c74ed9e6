//! Lifetimes and bounds, what a host may rely on, and that long runs stay small.

use std::alloc::Layout;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use aether_conformance::checked::{Checked, Detector, Fault, What};
use aether_conformance::doubles::wrapping::{Hooks, Relay};
use aether_conformance::doubles::{Remote, Scrambled};
use aether_core::{
    Address, Backend, Chunk, Device, DeviceId, DeviceKind, ErrorKind, HostBackend, Link,
    NativeStream, Point, Region, Stream, Touch, copy_async, fill_async, link, progress,
};

use crate::toy::DEVICE;

fn layout(bytes: usize) -> Layout {
    Layout::from_size_align(bytes, 64).unwrap()
}

struct Bench {
    backend: Arc<Checked<HostBackend>>,
    stream: NativeStream,
}

impl Bench {
    fn new() -> Self {
        let backend = Checked::new(HostBackend::new());
        let stream = backend.open_stream(DEVICE).unwrap();
        Self { backend, stream }
    }

    fn allocate(&self, bytes: usize) -> Region {
        let address = self.backend.allocate(DEVICE, layout(bytes), true).unwrap();
        Region { device: DEVICE, address, bytes }
    }

    fn free(&self, it: Region, layout: Layout) {
        // SAFETY: `allocate` gave the address; the detector hands on one free that is right and none
        // that is wrong.
        unsafe { self.backend.free(DEVICE, it.address, layout) }
    }

    fn touch(&self, region: Region, writes: bool) {
        self.backend.observe(Some(self.stream), &[Touch { region, writes }]);
    }

    fn faults(&self) -> Vec<Fault> {
        self.backend.reports().iter().map(|it| it.fault).collect()
    }
}

#[test]
fn a_use_of_freed_memory_is_reported_with_the_free() {
    let bench = Bench::new();
    let x = bench.allocate(100);
    bench.free(x, layout(100));
    // Other allocations don't get the address at once.
    let others: Vec<Region> = (0..10).map(|_| bench.allocate(100)).collect();
    assert!(others.iter().all(|it| it.address != x.address));
    bench.touch(x, false);
    assert_eq!(bench.faults(), [Fault::UseAfterFree]);
    let report = &bench.backend.reports()[0];
    assert_eq!(report.earlier.unwrap().what, What::Free);
    assert_eq!(report.later.unwrap().what, What::Work);
}

#[test]
fn an_access_out_of_bounds_is_reported() {
    let bench = Bench::new();
    let x = bench.allocate(100);
    bench.touch(x, true);
    assert_eq!(bench.faults(), []);
    bench.touch(Region { bytes: 101, ..x }, false);
    bench.touch(Region { address: x.address.add(100), bytes: 1, ..x }, false);
    bench.backend.observe(None, &[Touch { region: Region { bytes: 101, ..x }, writes: false }]);
    assert_eq!(bench.faults(), [Fault::OutOfBounds; 3]);
}

#[test]
fn a_bad_free_is_reported_and_not_handed_on() {
    let bench = Bench::new();
    let x = bench.allocate(100);
    bench.free(x, layout(99));
    bench.free(Region { address: x.address.add(64), ..x }, layout(36));
    bench.free(x, layout(100));
    bench.free(x, layout(100));
    assert_eq!(bench.faults(), [Fault::BadFree; 3]);
}

#[test]
fn a_copy_onto_itself_is_reported() {
    let bench = Bench::new();
    let x = bench.allocate(100);
    let part = |at: usize| Region { address: x.address.add(at), bytes: 50, ..x };
    // A relay that copies nothing: the detector alone is asked.
    let detector = bench.backend.detector();
    struct Nothing;
    impl Hooks for Nothing {
        unsafe fn copy(
            &self,
            _: &dyn Backend,
            _: NativeStream,
            _: Region,
            _: Region,
        ) -> aether_core::Result<()> {
            Ok(())
        }
    }
    // SAFETY: nobody relies on the copies.
    let inner = unsafe { Relay::new(Arc::new(HostBackend::new()), Nothing) };
    let idle = Checked::sharing(detector, inner);
    let stream = idle.open_stream(DEVICE).unwrap();
    // SAFETY: the relay copies nothing.
    unsafe { idle.copy(stream, part(0), part(49)) }.unwrap();
    assert_eq!(bench.faults(), [Fault::Overlap]);
    // SAFETY: the relay copies nothing.
    unsafe { idle.copy(stream, part(0), part(50)) }.unwrap();
    assert_eq!(bench.faults().len(), 1);
}

#[test]
fn a_stream_that_is_not_open_is_reported_and_refused() {
    let bench = Bench::new();
    let x = bench.allocate(100);
    bench.backend.close_stream(bench.stream);
    // SAFETY: the region is an allocation that nobody else uses.
    let refused = unsafe { bench.backend.fill(bench.stream, x, &[1]) }.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::InvalidArgument);
    assert_eq!(bench.faults(), [Fault::BadStream(bench.stream)]);
}

#[test]
fn a_host_that_goes_on_before_the_end_is_reported() {
    let scrambled = Scrambled::new(Arc::new(HostBackend::new()), 1).unwrap();
    let checked = Checked::of(scrambled.clone());
    let stream = checked.open_stream(DEVICE).unwrap();
    let address = checked.allocate(DEVICE, layout(64), true).unwrap();
    let region = Region { device: DEVICE, address, bytes: 64 };
    let at = Point { stream, ticket: 1 };
    scrambled.hold();
    // SAFETY: the region is an allocation that nobody else uses, and that is never freed.
    unsafe { checked.fill(stream, region, &[1]) }.unwrap();
    checked.mark(at).unwrap();
    checked.acquired(at);
    assert_eq!(checked.reports()[0].fault, Fault::NotEnded(at));
    scrambled.release();
    while !checked.is_done(at).unwrap() {
        std::thread::yield_now();
    }
    checked.acquired(at);
    assert_eq!(checked.reports().len(), 1);
}

#[test]
fn a_host_that_promised_to_hold_work_back_and_does_not_is_reported() {
    let scrambled = Scrambled::ordered_by_host(Arc::new(HostBackend::new()), 1).unwrap();
    let checked = Checked::of(scrambled.clone());
    let (one, two) = (checked.open_stream(DEVICE).unwrap(), checked.open_stream(DEVICE).unwrap());
    let at = Point { stream: one, ticket: 1 };
    let region = Region {
        device: DEVICE,
        address: checked.allocate(DEVICE, layout(64), true).unwrap(),
        bytes: 64,
    };
    scrambled.hold();
    // SAFETY: the region is an allocation that nobody else uses, and that is never freed.
    unsafe { checked.fill(one, region, &[1]) }.unwrap();
    checked.mark(at).unwrap();
    checked.wait(two, at).unwrap();
    checked.observe(Some(two), &[Touch { region, writes: false }]);
    assert_eq!(
        checked.reports().iter().map(|it| it.fault).collect::<Vec<_>>(),
        [Fault::NotEnded(at)]
    );
    scrambled.release();
}

#[test]
fn one_detector_sees_the_work_of_one_backend_on_the_memory_of_another() {
    let detector = Detector::new();
    let host = Checked::sharing(&detector, Arc::new(HostBackend::new()));
    let remote = Checked::sharing(&detector, Remote::builder().build().unwrap());
    let device = host.device(DEVICE);
    let mut plain = Chunk::allocate(&device, 256).unwrap();
    let host_device = remote.device(DeviceId::new(Remote::HOST_KIND, 0));
    let pinned = Chunk::from_vec(&host_device, vec![5u8; 256]).unwrap();
    let stream = remote.open_stream(host_device.id()).unwrap();
    let region =
        |it: &Chunk| Region { device: it.device().id(), address: it.data(), bytes: it.size() };
    // SAFETY: both chunks live on, and this thread alone touches them.
    unsafe { remote.copy(stream, region(&plain), region(&pinned)) }.unwrap();
    // Nobody told the host's chunk of this work.
    assert_eq!(plain.slice_mut::<u8>().unwrap(), [5; 256]);
    let faults: Vec<Fault> = detector.reports().iter().map(|it| it.fault).collect();
    assert_eq!(faults, [Fault::Unordered]);
}

#[test]
fn devices_that_the_backend_names_or_is_asked_about_are_watched_too() {
    let remote = Checked::of(Remote::builder().build().unwrap());
    let device = remote.device(DeviceId::new(Remote::KIND, 0));
    let staging = device.backend().staging(device.id()).unwrap();
    assert!(staging.shares_backend(&device));

    /// Links its own devices alone, and so has to know them by whatever name they come.
    struct Own;
    impl Hooks for Own {
        fn link(&self, inner: &dyn Backend, _: DeviceId, other: &Device) -> Link {
            match std::ptr::addr_eq(Arc::as_ptr(other.backend()), inner) {
                true => Link::Direct,
                false => Link::None,
            }
        }
    }
    // SAFETY: fewer links break no promise.
    let own = unsafe { Relay::new(Arc::new(HostBackend::new()), Own) };
    let checked = Checked::of(own);
    let (one, other) = (checked.device(DEVICE), checked.device(DeviceId { index: 1, ..DEVICE }));
    assert_eq!(link(&one, &other), Link::Direct);
    assert_eq!(link(&one, &Device::cpu(1)), Link::None);
}

#[test]
fn long_runs_stay_small() {
    let checked = Checked::new(HostBackend::new());
    let devices = checked.devices(DeviceKind::CPU, 2);
    let source = Chunk::allocate(&devices[0], 4096).unwrap();
    let mut target = Chunk::allocate(&devices[1], 4096).unwrap();
    for round in 0..5000 {
        let stream = Stream::new(&devices[round % 2]).unwrap();
        let start = round * 7 % 4000;
        let from = source.span_of(start..start + 50, aether_core::DType::U8).unwrap();
        let mut to = target.span_of_mut(start..start + 50, aether_core::DType::U8).unwrap();
        copy_async(&mut to, &from, &stream).unwrap().wait().unwrap();
    }
    checked.verdict().unwrap();
    assert!(checked.detector().records() < 600, "{} records", checked.detector().records());
}

/// Counts what the inner backend is asked.
#[derive(Default)]
struct Counted {
    live: AtomicUsize,
}

impl Hooks for Counted {
    fn allocate(
        &self,
        inner: &dyn Backend,
        device: DeviceId,
        layout: Layout,
        zeroed: bool,
    ) -> aether_core::Result<Address> {
        self.live.fetch_add(1, Ordering::SeqCst);
        inner.allocate(device, layout, zeroed)
    }

    unsafe fn free(&self, inner: &dyn Backend, device: DeviceId, address: Address, layout: Layout) {
        self.live.fetch_sub(1, Ordering::SeqCst);
        // SAFETY: the caller promises what the inner backend asks.
        unsafe { inner.free(device, address, layout) }
    }
}

#[test]
fn memory_goes_back_to_the_backend_in_time_and_at_the_end() {
    // SAFETY: the hooks only count.
    let relay = unsafe { Relay::new(Arc::new(HostBackend::new()), Counted::default()) };
    let checked = Checked::of(relay.clone());
    let device = checked.device(DEVICE);
    for _ in 0..1000 {
        drop(Chunk::allocate(&device, 1000).unwrap());
    }
    let live = relay.hooks().live.load(Ordering::SeqCst);
    assert!((1..=256).contains(&live), "{live} are kept back");
    drop((device, checked));
    assert_eq!(relay.hooks().live.load(Ordering::SeqCst), 0);
}

#[test]
fn memory_whose_work_a_device_lost_is_never_freed() {
    let scrambled = Scrambled::new(Arc::new(HostBackend::new()), 4).unwrap();
    // SAFETY: the hooks only count.
    let relay = unsafe { Relay::new(scrambled.clone(), Counted::default()) };
    let checked = Checked::of(relay.clone());
    let device = checked.device(DEVICE);
    let stream = Stream::new(&device).unwrap();
    let mut chunk = Chunk::allocate(&device, 1000).unwrap();
    scrambled.hold();
    let work = fill_async(&mut chunk, 1u8, &stream).unwrap();
    scrambled.break_device();
    assert_eq!(work.wait().unwrap_err().reason(), "the double was told to break");
    assert_eq!(chunk.slice::<u8>().unwrap_err().reason(), "the double was told to break");
    drop((chunk, work, stream));
    while progress::look() {}
    assert_eq!(relay.hooks().live.load(Ordering::SeqCst), 1);
    checked.verdict().unwrap();
}

#[test]
fn a_device_that_is_short_of_memory_gets_back_what_is_kept() {
    let checked = Checked::of(Remote::builder().limit(1000).build().unwrap());
    let device = checked.device(DeviceId::new(Remote::KIND, 0));
    for bytes in [600, 700, 1000, 999, 900] {
        drop(Chunk::allocate(&device, bytes).unwrap());
    }
    assert_eq!(Chunk::allocate(&device, 1001).unwrap_err().kind(), ErrorKind::OutOfMemory);
}

//! A backend or an operation that panics: the work has failed, the text is told, and nothing unwinds
//! past work on borrowed memory.
#![allow(clippy::unwrap_used, clippy::panic, clippy::expect_used)]

mod common;

use std::alloc::Layout;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use aether_core::{
    Address, Backend, Chunk, Device, DeviceId, DeviceKind, Error, ErrorKind, HostBackend, Link,
    NativeStream, Operation, Ordered, Point, Region, Result, Rows, Span, Step, Stream, Touch, copy,
    copy_async, copy_rows, enqueue, fill,
};
use common::{bytes, eventually, look_hard};

/// How often it is asked for an end before the device does what it has.
const LATE: usize = if cfg!(miri) { 4 } else { 100 };

/// A device on the host's memory that is late, and that panics in one of its methods.
struct Panics {
    host: HostBackend,
    /// Where, and how often still.
    place: &'static str,
    left: AtomicUsize,
    /// What was issued and didn't run, and how often its end was asked for.
    issued: Mutex<(Vec<(Region, Region)>, usize)>,
    streams: AtomicUsize,
}

impl Panics {
    fn device(place: &'static str) -> (Device, Arc<Self>) {
        let backend = Arc::new(Self {
            host: HostBackend::new(),
            place,
            left: AtomicUsize::new(0),
            issued: Mutex::default(),
            streams: AtomicUsize::new(0),
        });
        (Device::new(DeviceId::new(DeviceKind(1 << 16), 0), backend.clone()), backend)
    }

    fn arm(&self, times: usize) {
        self.left.store(times, Ordering::SeqCst);
    }

    fn is_armed(&self) -> bool {
        self.left.load(Ordering::SeqCst) > 0
    }

    fn is_quiet(&self) -> bool {
        self.issued.lock().unwrap().0.is_empty()
    }

    fn at(&self, place: &'static str) {
        if self.place != place || !self.is_armed() {
            return;
        }
        // "When `mark` or `is_done` fails, or panics, no work on that stream touches memory any more
        // that the backend did not allocate."
        if matches!(place, "mark" | "is_done") {
            self.run();
        }
        self.left.fetch_sub(1, Ordering::SeqCst);
        resume_unwind(Box::new(format!("told to, in {place}")));
    }

    fn run(&self) {
        let mut issued = self.issued.lock().unwrap();
        for (dst, src) in issued.0.drain(..) {
            // SAFETY: aether promised valid regions until the copy has ended, which it has not.
            unsafe { self.host.copy(NativeStream(0), dst, src) }.unwrap();
        }
        issued.1 = 0;
    }
}

// SAFETY: the host's backend is behind it; what was issued runs in order, before an end is told.
unsafe impl Backend for Panics {
    fn name(&self) -> &str {
        "panics"
    }

    fn allocate(&self, device: DeviceId, layout: Layout, zeroed: bool) -> Result<Address> {
        self.host.allocate(device, layout, zeroed)
    }

    unsafe fn free(&self, device: DeviceId, address: Address, layout: Layout) {
        // SAFETY: the caller promises what the host's backend asks.
        unsafe { self.host.free(device, address, layout) };
        self.at("free");
    }

    unsafe fn copy(&self, _: NativeStream, dst: Region, src: Region) -> Result<()> {
        self.issued.lock().unwrap().0.push((dst, src));
        self.at("copy");
        Ok(())
    }

    unsafe fn copy_rows(
        &self,
        stream: NativeStream,
        dst: Region,
        src: Region,
        rows: Rows,
    ) -> Result<()> {
        for row in 0..rows.count {
            let at = |it: Region, pitch: usize| Region {
                address: it.address.add(row * pitch),
                bytes: rows.bytes,
                ..it
            };
            // SAFETY: the caller promises every row.
            unsafe { self.copy(stream, at(dst, rows.dst_pitch), at(src, rows.src_pitch)) }?;
            self.at("copy_rows");
        }
        Ok(())
    }

    unsafe fn fill(&self, stream: NativeStream, dst: Region, pattern: &[u8]) -> Result<()> {
        self.at("fill");
        // SAFETY: the caller promises what the host's backend asks.
        unsafe { self.host.fill(stream, dst, pattern) }
    }

    fn host_addressable(&self, _: DeviceId) -> bool {
        self.at("host_addressable");
        true
    }

    fn link(&self, _: DeviceId, _: &Device) -> Link {
        self.at("link");
        Link::Direct
    }

    fn is_asynchronous(&self) -> bool {
        self.at("is_asynchronous");
        true
    }

    fn open_stream(&self, _: DeviceId) -> Result<NativeStream> {
        self.at("open_stream");
        Ok(NativeStream(self.streams.fetch_add(1, Ordering::SeqCst) as u64 + 1))
    }

    fn close_stream(&self, _: NativeStream) {
        self.at("close_stream");
    }

    fn mark(&self, _: Point) -> Result<()> {
        self.at("mark");
        Ok(())
    }

    fn is_done(&self, _: Point) -> Result<bool> {
        self.at("is_done");
        let mut issued = self.issued.lock().unwrap();
        issued.1 += 1;
        let late = issued.1 >= LATE;
        let quiet = issued.0.is_empty();
        drop(issued);
        if late {
            self.run();
        }
        Ok(late || quiet)
    }

    fn wait(&self, _: NativeStream, _: Point) -> Result<Ordered> {
        self.at("wait");
        Ok(Ordered::ByHost)
    }

    fn acquired(&self, _: Point) {
        self.at("acquired");
    }

    fn observe(&self, _: Option<NativeStream>, _: &[Touch]) {
        self.at("observe");
    }
}

/// Drops chunks that aether may have to leak. Miri would report that, so there they are kept instead.
fn drop_or_keep<const N: usize>(chunks: [Chunk; N]) {
    static KEPT: Mutex<Vec<Chunk>> = Mutex::new(Vec::new());
    if cfg!(miri) {
        KEPT.lock().unwrap().extend(chunks);
    }
}

const PLACES: [&str; 14] = [
    "acquired",
    "close_stream",
    "copy",
    "copy_rows",
    "fill",
    "free",
    "host_addressable",
    "is_asynchronous",
    "is_done",
    "link",
    "mark",
    "observe",
    "open_stream",
    "wait",
];

#[test]
fn no_blocking_call_is_left_before_the_end_of_its_work_on_borrowed_memory() {
    for place in PLACES {
        let often: &[usize] = if cfg!(miri) { &[1000] } else { &[1, 2, 1000] };
        for &times in often {
            let (device, backend) = Panics::device(place);
            let mut chunk = Chunk::allocate(&device, 256).unwrap();
            let source = bytes(256, 3);
            let mut target = vec![0; 256];
            let rows = Rows { count: 4, bytes: 32, dst_pitch: 64, src_pitch: 64 };
            backend.arm(times);
            for call in 0..4 {
                let outcome = catch_unwind(AssertUnwindSafe(|| match call {
                    0 => copy(&mut chunk, &source[..]),
                    1 => copy(&mut target[..], &chunk),
                    2 => copy_rows(&mut target[..], &chunk, rows),
                    _ => fill(&mut chunk, 7u8),
                }));
                assert!(backend.is_quiet(), "{place}, call {call}: left before the end");
                // What is asked while nothing is queued is the caller's to hear.
                let before = ["host_addressable", "is_asynchronous", "link", "open_stream"];
                assert!(outcome.is_ok() || before.contains(&place), "{place}, call {call}");
            }
            backend.arm(0);
            drop_or_keep([chunk]);
            // And everything goes on, but for memory whose work can't be proved to have ended.
            let mut chunk = Chunk::allocate(&device, 256).unwrap();
            copy(&mut chunk, &source[..]).unwrap();
            copy(&mut target[..], &chunk).unwrap();
            assert_eq!(target, source, "{place}");
        }
    }
}

#[test]
fn what_other_streams_wait_for_never_unwinds_either() {
    for place in PLACES {
        let (device, backend) = Panics::device(place);
        let stream = Stream::new(&device).unwrap();
        let mut target = vec![0; 256];
        // One read of borrowed memory that depends on work of another stream of the device, and one
        // of a stream of another device.
        let on = [Device::cpu(0), device.clone()];
        for other in on {
            let mut chunk = Chunk::allocate(&device, 256).unwrap();
            let data = Chunk::from_vec(&device, bytes(256, 1)).unwrap();
            let ahead = copy_async(&mut chunk, &data, &stream).unwrap();
            let mut middle = Chunk::allocate(&other, 256).unwrap();
            backend.arm(1000);
            let outcome = catch_unwind(AssertUnwindSafe(|| {
                copy(&mut middle, &chunk).and_then(|()| copy(&mut target[..], &middle))
            }));
            backend.arm(0);
            drop(outcome);
            drop(ahead.wait());
            assert!(backend.is_quiet(), "{place}");
            eventually("the streams have ended", || stream.last().is_done());
            drop_or_keep([chunk, data, middle]);
        }
    }
}

#[test]
fn the_error_of_a_panic_says_what_the_panic_said() {
    for (place, attempted) in
        [("copy", "run an operation"), ("mark", "mark a stream"), ("is_done", "ask for the end")]
    {
        let (device, backend) = Panics::device(place);
        let mut chunk = Chunk::allocate(&device, 64).unwrap();
        backend.arm(1);
        let error = copy(&mut chunk, &bytes(64, 1)[..]).unwrap_err();
        assert_eq!((error.kind(), error.attempted()), (ErrorKind::Panicked, attempted));
        assert_eq!(error.reason(), format!("the backend panicked: told to, in {place}"));
        backend.run();
        drop_or_keep([chunk]);
    }
    let (device, backend) = Panics::device("observe");
    let chunk = Chunk::allocate(&device, 64).unwrap();
    backend.arm(1);
    let error = chunk.slice::<u8>().unwrap_err();
    assert_eq!(error.reason(), "the backend panicked: told to, in observe");
    assert_eq!(chunk.slice::<u8>().unwrap(), [0; 64]);
}

/// Panics when it is asked where it works, at this ask and later.
#[derive(Default)]
struct Asked {
    from: usize,
    asked: AtomicUsize,
    begun: AtomicUsize,
}

// SAFETY: it touches no memory.
unsafe impl Operation for Asked {
    fn issue(&self, _: u64) -> Result<Step> {
        self.begun.fetch_add(1, Ordering::SeqCst);
        Ok(Step::Pending)
    }

    fn advance(&self, _: u64) -> Result<Step> {
        Ok(Step::Issued)
    }

    fn works_on_host(&self) -> bool {
        if self.asked.fetch_add(1, Ordering::SeqCst) >= self.from {
            resume_unwind(Box::new("asked where it works"));
        }
        true
    }

    fn refused(&self, _: u64, _: &Error) {}
}

#[test]
fn where_an_operation_works_is_asked_once_and_before_it_is_queued() {
    let stream = Stream::new(&Device::cpu(0)).unwrap();
    let memory = [1u8; 16];
    let address = Address::from_ptr(memory.as_ptr().cast_mut());
    // SAFETY: the array is initialised, unchanged, and outlives the span.
    let span = unsafe { Span::from_raw(address, 16, aether_core::DType::U8) };
    for from in [0, 1] {
        let call = Arc::new(Asked { from, ..Asked::default() });
        let queue = || {
            // SAFETY: the operation touches nothing.
            unsafe { enqueue(&stream, &[span], &[], call.clone(), 0) }
        };
        let outcome = catch_unwind(AssertUnwindSafe(queue));
        look_hard();
        stream.synchronize().unwrap();
        assert_eq!(outcome.is_ok(), from == 1);
        assert_eq!(call.begun.load(Ordering::SeqCst), from);
        assert_eq!(call.asked.load(Ordering::SeqCst), 1);
    }
}

#[test]
fn what_a_backend_is_asked_once_and_for_all_is_asked_when_a_stream_opens() {
    let (device, backend) = Panics::device("is_asynchronous");
    let stream = Stream::new(&device).unwrap();
    let source = Chunk::from_vec(&device, bytes(64, 2)).unwrap();
    let mut chunk = Chunk::allocate(&device, 64).unwrap();
    backend.arm(usize::MAX);
    copy_async(&mut chunk, &source, &stream).unwrap().wait().unwrap();
    assert_eq!(chunk.slice::<u8>().unwrap(), bytes(64, 2));
    let opened = backend.streams.load(Ordering::SeqCst);
    assert!(catch_unwind(AssertUnwindSafe(|| Stream::new(&device))).is_err());
    assert_eq!(backend.streams.load(Ordering::SeqCst), opened);
}

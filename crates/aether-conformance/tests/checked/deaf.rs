//! The engine of aether-core, made deaf: a relay between it and the detector leaves out every wait and
//! every acquisition that is about one stream, as if the engine had forgotten them. (It then has the
//! host wait, so memory stays valid.) The detector reports each in every run.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use aether_conformance::checked::{By, Checked, Fault, What};
use aether_conformance::doubles::Scrambled;
use aether_conformance::doubles::wrapping::{Hooks, Relay};
use aether_core::{
    Address, Backend, Chunk, Device, DeviceId, DeviceKind, HostBackend, NativeStream, Ordered,
    Point, Result, Stream, copy, copy_async, fill_async, progress,
};

/// Leaves out what is about streams in the list.
#[derive(Default)]
struct Deaf {
    to: Mutex<Vec<u64>>,
    left_out: AtomicU64,
    frees: AtomicUsize,
}

impl Deaf {
    fn leaves_out(&self, on: Point) -> bool {
        let deaf = self.to.lock().unwrap().contains(&on.stream.0);
        self.left_out.fetch_add(u64::from(deaf), Ordering::SeqCst);
        deaf
    }
}

impl Hooks for Deaf {
    fn wait(&self, inner: &dyn Backend, stream: NativeStream, on: Point) -> Result<Ordered> {
        match self.leaves_out(on) {
            true => Ok(Ordered::ByHost),
            false => inner.wait(stream, on),
        }
    }

    fn acquired(&self, inner: &dyn Backend, at: Point) {
        if !self.leaves_out(at) {
            inner.acquired(at);
        }
    }

    unsafe fn free(
        &self,
        inner: &dyn Backend,
        device: DeviceId,
        address: Address,
        layout: std::alloc::Layout,
    ) {
        // SAFETY: the caller promises what the inner backend asks.
        unsafe { inner.free(device, address, layout) }
        self.frees.fetch_add(1, Ordering::SeqCst);
    }
}

struct Bench {
    checked: Arc<Checked>,
    relay: Arc<Relay<Deaf>>,
    device: Device,
    streams: Vec<Stream>,
}

impl Bench {
    fn new(inner: Arc<dyn Backend>) -> Self {
        let checked = Checked::around(inner);
        // SAFETY: the hooks answer that the host orders, which is always right, and tell less to a
        // detector.
        let relay = unsafe { Relay::new(checked.clone(), Deaf::default()) };
        let device = relay.device(DeviceId::new(DeviceKind::CPU, 0));
        let streams = (0..3).map(|_| Stream::new(&device).unwrap()).collect();
        Self { checked, relay, device, streams }
    }

    fn chunk(&self) -> Chunk {
        Chunk::allocate(&self.device, 4096).unwrap()
    }

    /// Waits until so many chunks are freed, which a worker may do.
    fn freed(&self, count: usize) {
        let until = Instant::now() + Duration::from_secs(20);
        while self.relay.hooks().frees.load(Ordering::SeqCst) < count {
            assert!(Instant::now() < until, "nothing frees the memory");
            progress::look();
        }
    }
}

/// Runs a scenario on a backend whose copies are done when they return and on an asynchronous one:
/// in full, and deaf to each of `streams`, which gives the pair.
fn check(scenario: fn(&Bench), wanted: &[(usize, What, What)]) {
    for run in 0..40 {
        let backend = || -> Arc<dyn Backend> {
            let host = Arc::new(HostBackend::new());
            match run % 3 {
                0 => host,
                1 => Scrambled::new(host, run).unwrap(),
                _ => Scrambled::ordered_by_host(host, run).unwrap(),
            }
        };
        let bench = Bench::new(backend());
        scenario(&bench);
        bench.checked.verdict().unwrap();
        for &(stream, earlier, later) in wanted {
            let bench = Bench::new(backend());
            let native = bench.streams[stream].native();
            bench.relay.hooks().to.lock().unwrap().push(native.0);
            scenario(&bench);
            let found = bench.checked.reports();
            let hit = found.iter().any(|it| {
                let (Some(one), Some(two)) = (it.earlier, it.later) else { return false };
                let on = matches!(one.by, By::Stream { stream, .. } if stream == native);
                it.fault == Fault::Unordered && on && (one.what, two.what) == (earlier, later)
            });
            assert!(hit, "run {run}: nothing of {earlier:?} and {later:?} in {found:#?}");
            assert!(bench.relay.hooks().left_out.load(Ordering::SeqCst) > 0);
        }
    }
}

#[test]
fn the_engine_orders_a_read_behind_a_write() {
    let scenario = |bench: &Bench| {
        let (mut x, mut y) = (bench.chunk(), bench.chunk());
        fill_async(&mut x, 1u8, &bench.streams[0]).unwrap();
        copy_async(&mut y, &x, &bench.streams[1]).unwrap().wait().unwrap();
    };
    check(scenario, &[(0, What::Fill, What::Copy)]);
}

#[test]
fn the_engine_orders_a_write_behind_a_read() {
    let scenario = |bench: &Bench| {
        let (mut x, mut y) = (bench.chunk(), bench.chunk());
        copy_async(&mut y, &x, &bench.streams[0]).unwrap();
        fill_async(&mut x, 1u8, &bench.streams[1]).unwrap().wait().unwrap();
    };
    check(scenario, &[(0, What::Copy, What::Fill)]);
}

#[test]
fn the_engine_orders_a_write_behind_a_write() {
    let scenario = |bench: &Bench| {
        let mut x = bench.chunk();
        fill_async(&mut x, 1u8, &bench.streams[0]).unwrap();
        fill_async(&mut x, 2u8, &bench.streams[1]).unwrap().wait().unwrap();
    };
    check(scenario, &[(0, What::Fill, What::Fill)]);
}

#[test]
fn the_engine_orders_a_write_behind_every_reader() {
    let scenario = |bench: &Bench| {
        let (mut x, mut y, mut z) = (bench.chunk(), bench.chunk(), bench.chunk());
        copy_async(&mut y, &x, &bench.streams[0]).unwrap();
        copy_async(&mut z, &x, &bench.streams[1]).unwrap();
        fill_async(&mut x, 1u8, &bench.streams[2]).unwrap().wait().unwrap();
    };
    check(scenario, &[(0, What::Copy, What::Fill), (1, What::Copy, What::Fill)]);
}

#[test]
fn the_engine_orders_a_blocking_copy_behind_a_write() {
    let scenario = |bench: &Bench| {
        let (mut x, mut y) = (bench.chunk(), bench.chunk());
        fill_async(&mut x, 1u8, &bench.streams[0]).unwrap();
        copy(&mut y, &x).unwrap();
    };
    check(scenario, &[(0, What::Fill, What::Copy)]);
}

#[test]
fn the_engine_waits_before_the_host_reads() {
    let scenario = |bench: &Bench| {
        let mut x = bench.chunk();
        fill_async(&mut x, 1u8, &bench.streams[0]).unwrap();
        assert_eq!(x.slice::<u8>().unwrap(), [1; 4096]);
    };
    check(scenario, &[(0, What::Fill, What::Host)]);
}

#[test]
fn the_engine_waits_before_the_host_writes() {
    let scenario = |bench: &Bench| {
        let (mut x, mut y) = (bench.chunk(), bench.chunk());
        copy_async(&mut y, &x, &bench.streams[0]).unwrap();
        x.slice_mut::<u8>().unwrap().fill(3);
    };
    check(scenario, &[(0, What::Copy, What::Host)]);
}

#[test]
fn the_engine_frees_memory_behind_the_work_on_it() {
    let scenario = |bench: &Bench| {
        let mut x = bench.chunk();
        fill_async(&mut x, 1u8, &bench.streams[0]).unwrap();
        drop(x);
        bench.freed(1);
    };
    check(scenario, &[(0, What::Fill, What::Free)]);
}

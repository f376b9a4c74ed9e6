//! A device that the host can't address, for routes and staging: ordinary memory behind a backend
//! that says so.
#![allow(dead_code, reason = "each test file uses a part of it")]

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, Weak};

use aether_core::{
    Address, Backend, Chunk, Device, DeviceId, DeviceKind, Error, ErrorKind, Link, NativeStream,
    Operation, Ordered, Point, Region, Result, SpanMut, Step, Stream, Touch, enqueue,
};

pub(crate) const REMOTE: DeviceKind = DeviceKind(77);
pub(crate) const REMOTE_HOST: DeviceKind = DeviceKind(78);

/// What the backend says of itself.
#[derive(Clone, Copy)]
pub(crate) struct Setting {
    /// Copies end later, when somebody asks.
    pub(crate) asynchronous: bool,
    /// How one remote device reaches another.
    pub(crate) peers: Link,
    /// How a remote device reaches staging memory; none where there is no staging memory.
    pub(crate) staging: Link,
}

impl Setting {
    pub(crate) const PLAIN: Self =
        Self { asynchronous: false, peers: Link::None, staging: Link::Indirect };
    pub(crate) const ASYNCHRONOUS: Self = Self { asynchronous: true, ..Self::PLAIN };
    pub(crate) const BOTH: [Self; 2] = [Self::PLAIN, Self::ASYNCHRONOUS];
}

/// What has run, in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    /// A copy was handed to this backend.
    Issued { from: DeviceId, to: DeviceId },
    /// A copy by this backend has run.
    Copied { from: DeviceId, to: DeviceId, bytes: usize },
    /// The processor wrote memory of this backend by itself.
    Written { on: DeviceId, bytes: usize },
}

pub(crate) struct Remote {
    this: Weak<Self>,
    setting: Setting,
    streams: Mutex<HashMap<u64, Queue>>,
    opened: AtomicUsize,
    pub(crate) events: Mutex<Vec<Event>>,
    /// Copies on streams of these devices do not run.
    pub(crate) held: Mutex<Vec<DeviceId>>,
    /// The copy to this kind that is so many copies ahead fails: 1 is the next.
    pub(crate) failing: Mutex<Option<(DeviceKind, usize)>>,
    pub(crate) asked: Mutex<HashMap<(DeviceId, DeviceId), usize>>,
    /// Bytes of staging memory: now, and at most.
    pub(crate) staged_now: AtomicUsize,
    pub(crate) staged_most: AtomicUsize,
}

struct Queue {
    device: DeviceId,
    jobs: VecDeque<Job>,
    done: u64,
}

enum Job {
    Copy { dst: Region, src: Region },
    Fill { dst: Region, pattern: Vec<u8> },
    Mark(u64),
    Wait(Point),
}

// SAFETY: jobs hold addresses, which are numbers to whoever has them; they run under the lock.
unsafe impl Send for Job {}

impl Remote {
    pub(crate) fn new(setting: Setting) -> Arc<Self> {
        Arc::new_cyclic(|this| Self {
            this: this.clone(),
            setting,
            streams: Mutex::default(),
            opened: AtomicUsize::new(0),
            events: Mutex::default(),
            held: Mutex::default(),
            failing: Mutex::default(),
            asked: Mutex::default(),
            staged_now: AtomicUsize::new(0),
            staged_most: AtomicUsize::new(0),
        })
    }

    pub(crate) fn device(self: &Arc<Self>, index: u32) -> Device {
        Device::new(DeviceId::new(REMOTE, index), self.clone())
    }

    pub(crate) fn staging_device(self: &Arc<Self>) -> Device {
        Device::new(DeviceId::new(REMOTE_HOST, 0), self.clone())
    }

    /// Forgets what has run, and how much staging memory there was.
    pub(crate) fn forget(&self) {
        self.events.lock().unwrap().clear();
        self.asked.lock().unwrap().clear();
        self.staged_most.store(self.staged_now.load(Ordering::SeqCst), Ordering::SeqCst);
    }

    pub(crate) fn hold(&self, device: &Device) {
        self.held.lock().unwrap().push(device.id());
    }

    pub(crate) fn release(&self) {
        self.held.lock().unwrap().clear();
    }

    /// How many copies have run, and how often the processor has written, to memory of this kind.
    pub(crate) fn arrived(&self, at: DeviceKind) -> usize {
        let to = |it: &&Event| match it {
            Event::Copied { to, .. } => to.kind == at,
            Event::Written { on, .. } => on.kind == at,
            Event::Issued { .. } => false,
        };
        self.events.lock().unwrap().iter().filter(to).count()
    }

    /// When each copy to memory of this kind was handed over, and when each had run.
    pub(crate) fn times(&self, at: DeviceKind) -> (Vec<usize>, Vec<usize>) {
        let events = self.events.lock().unwrap();
        let when = |fits: fn(&Event, DeviceKind) -> bool| {
            let all = events.iter().enumerate().filter(|it| fits(it.1, at));
            all.map(|it| it.0).collect()
        };
        (
            when(|it, at| matches!(it, Event::Issued { to, .. } if to.kind == at)),
            when(|it, at| matches!(it, Event::Copied { to, .. } if to.kind == at)),
        )
    }

    fn run(&self, job: &Job) {
        match job {
            Job::Copy { dst, src } => {
                let (from, to) = (src.address.as_ptr(), dst.address.as_ptr());
                // SAFETY: `Backend::copy` promises two valid regions of one size that don't overlap.
                unsafe { std::ptr::copy_nonoverlapping(from, to, src.bytes) };
                let event = Event::Copied { from: src.device, to: dst.device, bytes: src.bytes };
                self.events.lock().unwrap().push(event);
            }
            Job::Fill { dst, pattern } => {
                for (at, byte) in (0..dst.bytes).zip(pattern.iter().cycle()) {
                    // SAFETY: `Backend::fill` promises a valid region, and `at` is inside.
                    unsafe { dst.address.add(at).as_ptr().write(*byte) };
                }
            }
            Job::Mark(_) | Job::Wait(_) => {}
        }
    }

    fn enqueue(&self, stream: NativeStream, job: Job) {
        if !self.setting.asynchronous {
            return self.run(&job);
        }
        self.streams.lock().unwrap().get_mut(&stream.0).unwrap().jobs.push_back(job);
    }

    /// Runs all streams until each has nothing more to do, waits for another, or is held.
    fn drain(&self, streams: &mut HashMap<u64, Queue>) {
        let names: Vec<u64> = streams.keys().copied().collect();
        let mut moved = true;
        while moved {
            moved = names.iter().filter(|&&name| self.step(streams, name)).count() > 0;
        }
    }

    fn step(&self, streams: &mut HashMap<u64, Queue>, name: u64) -> bool {
        let queue = &streams[&name];
        let held = self.held.lock().unwrap().contains(&queue.device);
        let ready = match queue.jobs.front() {
            // A stream that was closed had nothing pending.
            Some(Job::Wait(on)) => streams.get(&on.stream.0).is_none_or(|it| it.done >= on.ticket),
            Some(Job::Mark(_)) => true,
            Some(_) => !held,
            None => false,
        };
        let Some(queue) = streams.get_mut(&name).filter(|_| ready) else { return false };
        let job = queue.jobs.pop_front().unwrap();
        if let Job::Mark(ticket) = job {
            queue.done = ticket;
        }
        self.run(&job);
        true
    }
}

// SAFETY: memory comes from the global allocator and is valid from any thread; jobs of one stream run
// in order; a point is done when its mark was reached, which is behind all earlier jobs; and a stream
// stops at a wait until the point is done.
unsafe impl Backend for Remote {
    fn name(&self) -> &str {
        "remote"
    }

    fn allocate(&self, device: DeviceId, layout: Layout, _zeroed: bool) -> Result<Address> {
        if device.kind == REMOTE_HOST {
            let now = self.staged_now.fetch_add(layout.size(), Ordering::SeqCst) + layout.size();
            self.staged_most.fetch_max(now, Ordering::SeqCst);
        }
        // SAFETY: the size is never zero ("Allocates `layout.size()` bytes, never zero").
        Ok(Address::from_ptr(unsafe { alloc_zeroed(layout) }))
    }

    unsafe fn free(&self, device: DeviceId, address: Address, layout: Layout) {
        if device.kind == REMOTE_HOST {
            self.staged_now.fetch_sub(layout.size(), Ordering::SeqCst);
        }
        // SAFETY: the caller promises that it came from `allocate` with this layout.
        unsafe { dealloc(address.as_ptr(), layout) }
    }

    unsafe fn copy(&self, stream: NativeStream, dst: Region, src: Region) -> Result<()> {
        let mut failing = self.failing.lock().unwrap();
        if let Some((kind, ahead)) = &mut *failing
            && *kind == dst.device.kind
        {
            *ahead -= 1;
            if *ahead == 0 {
                *failing = None;
                return Err(Error::new(ErrorKind::Backend, "copy", "told to fail").on(dst.device));
            }
        }
        drop(failing);
        let issued = Event::Issued { from: src.device, to: dst.device };
        self.events.lock().unwrap().push(issued);
        self.enqueue(stream, Job::Copy { dst, src });
        Ok(())
    }

    unsafe fn fill(&self, stream: NativeStream, dst: Region, pattern: &[u8]) -> Result<()> {
        self.enqueue(stream, Job::Fill { dst, pattern: pattern.to_vec() });
        Ok(())
    }

    fn host_addressable(&self, device: DeviceId) -> bool {
        device.kind == REMOTE_HOST
    }

    fn link(&self, device: DeviceId, other: &Device) -> Link {
        *self.asked.lock().unwrap().entry((device, other.id())).or_default() += 1;
        let own = std::ptr::addr_eq(Arc::as_ptr(other.backend()), self);
        match (device.kind == REMOTE_HOST, other.kind() == REMOTE_HOST) {
            (false, false) if own && device == other.id() => Link::Direct,
            (false, false) if own => self.setting.peers,
            (true, true) if own => Link::Direct,
            _ if own => self.setting.staging,
            (true, _) if other.host_addressable() => Link::Blocking,
            _ => Link::None,
        }
    }

    fn staging(&self, device: DeviceId) -> Option<Device> {
        let named = device.kind == REMOTE && self.setting.staging > Link::None;
        let this = self.this.upgrade().filter(|_| named)?;
        Some(Device::new(DeviceId::new(REMOTE_HOST, 0), this))
    }

    fn is_asynchronous(&self) -> bool {
        self.setting.asynchronous
    }

    fn open_stream(&self, device: DeviceId) -> Result<NativeStream> {
        let name = self.opened.fetch_add(1, Ordering::SeqCst) as u64 + 1;
        let queue = Queue { device, jobs: VecDeque::new(), done: 0 };
        self.streams.lock().unwrap().insert(name, queue);
        Ok(NativeStream(name))
    }

    fn close_stream(&self, stream: NativeStream) {
        self.streams.lock().unwrap().remove(&stream.0);
    }

    fn mark(&self, at: Point) -> Result<()> {
        self.enqueue(at.stream, Job::Mark(at.ticket));
        Ok(())
    }

    fn is_done(&self, at: Point) -> Result<bool> {
        if !self.setting.asynchronous {
            return Ok(true);
        }
        let mut streams = self.streams.lock().unwrap();
        self.drain(&mut streams);
        Ok(streams[&at.stream.0].done >= at.ticket)
    }

    fn wait(&self, stream: NativeStream, on: Point) -> Result<Ordered> {
        if !self.setting.asynchronous {
            return Ok(Ordered::ByHost);
        }
        self.enqueue(stream, Job::Wait(on));
        Ok(Ordered::ByDevice)
    }

    fn observe(&self, stream: Option<NativeStream>, touches: &[Touch]) {
        for touch in touches.iter().filter(|it| stream.is_none() && it.writes) {
            let event = Event::Written { on: touch.region.device, bytes: touch.region.bytes };
            self.events.lock().unwrap().push(event);
        }
    }
}

/// An operation that stays where it is until it is let go.
#[derive(Default)]
pub(crate) struct Held {
    open: AtomicBool,
    fails: bool,
}

// SAFETY: it touches no memory.
unsafe impl Operation for Held {
    fn issue(&self, _: u64) -> Result<Step> {
        Ok(Step::Pending)
    }

    fn advance(&self, _: u64) -> Result<Step> {
        match (self.open.load(Ordering::SeqCst), self.fails) {
            (false, _) => Ok(Step::Pending),
            (true, false) => Ok(Step::Issued),
            (true, true) => Err(Error::new(ErrorKind::Backend, "hold", "told to fail")),
        }
    }

    fn refused(&self, _: u64, _: &Error) {}
}

impl Held {
    /// Puts an operation that pretends to write the span on a stream of its own.
    pub(crate) fn on(span: SpanMut<'_>, fails: bool) -> Arc<Self> {
        let held = Arc::new(Self { open: AtomicBool::new(false), fails });
        let stream = Stream::new(&Device::cpu(0)).unwrap();
        // SAFETY: the operation touches nothing, and the tests give spans of chunks.
        drop(unsafe { enqueue(&stream, &[], &[span], held.clone(), 0) }.unwrap());
        held
    }

    pub(crate) fn let_go(&self) {
        self.open.store(true, Ordering::SeqCst);
    }
}

/// Bytes that tell their position, from a seed.
pub(crate) fn bytes(count: usize, seed: u32) -> Vec<u8> {
    (0..count as u32).map(|it| (it.wrapping_mul(2_654_435_761) >> 13) as u8 ^ seed as u8).collect()
}

pub(crate) fn chunk_of(device: &Device, data: &[u8]) -> Chunk {
    Chunk::from_vec(device, data.to_vec()).unwrap()
}

/// Looks until it holds; panics after a generous while.
pub(crate) fn until(what: &str, holds: impl Fn() -> bool) {
    let start = std::time::Instant::now();
    while !holds() {
        aether_core::progress::look();
        assert!(start.elapsed() < std::time::Duration::from_secs(20), "{what}");
        std::thread::yield_now();
    }
}

/// Lets everything run that can.
pub(crate) fn settle() {
    let mut idle = 0;
    while idle < 200 {
        idle = if aether_core::progress::look() { 0 } else { idle + 1 };
        std::thread::yield_now();
    }
}

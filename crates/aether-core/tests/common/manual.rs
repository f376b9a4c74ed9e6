//! A device that a test leads by hand: asynchronous, and out of the host's reach.
//!
//! What is issued on its streams runs only when the test says so, one command at a time, on a stream
//! chosen at random among those that may go on. So whatever isn't ordered by [`Backend::wait`] runs in
//! the wrong order sooner or later. It notes whatever it sees go wrong.

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use aether_core::{
    Address, Backend, Device, DeviceId, DeviceKind, Error, ErrorKind, Link, NativeStream, Ordered,
    Point, Region, Result,
};

use super::Random;

pub(crate) struct Manual {
    state: Mutex<State>,
    /// How memory of the host gets here and back.
    host: Link,
    staging: Option<Device>,
}

struct State {
    random: Random,
    live: BTreeMap<usize, (Address, Layout)>,
    streams: BTreeMap<u64, Native>,
    opened: u64,
    complaints: Vec<String>,
    fail_copies: usize,
    fail_marks: usize,
    fail_waits: usize,
    panic_copies: usize,
    lost: bool,
    lost_streams: BTreeSet<u64>,
}

#[derive(Default)]
struct Native {
    commands: VecDeque<Command>,
    marked: BTreeSet<u64>,
    reached: u64,
}

#[derive(Clone)]
enum Command {
    Copy { dst: Region, src: Region },
    Fill { dst: Region, pattern: Vec<u8> },
    Mark(u64),
    Wait(Point),
}

impl Command {
    fn touches(&self, range: &Range<usize>) -> bool {
        let overlaps = |it: &Region| {
            let start = it.address.addr();
            start < range.end && range.start < start + it.bytes
        };
        match self {
            Self::Copy { dst, src } => overlaps(dst) || overlaps(src),
            Self::Fill { dst, .. } => overlaps(dst),
            Self::Mark(_) | Self::Wait(_) => false,
        }
    }
}

impl Manual {
    /// A device of its own, and the hand that leads it.
    pub(crate) fn device() -> (Device, Arc<Self>) {
        Self::with_links(Link::Indirect, None)
    }

    /// As above; says how host memory gets here, and through what it is staged.
    pub(crate) fn with_links(host: Link, staging: Option<Device>) -> (Device, Arc<Self>) {
        let state = State {
            random: Random(0x9e37_79b9_7f4a_7c15),
            live: BTreeMap::new(),
            streams: BTreeMap::new(),
            opened: 0,
            complaints: Vec::new(),
            fail_copies: 0,
            fail_marks: 0,
            fail_waits: 0,
            panic_copies: 0,
            lost: false,
            lost_streams: BTreeSet::new(),
        };
        let lead = Arc::new(Self { state: Mutex::new(state), host, staging });
        (Device::new(DeviceId::new(DeviceKind(901), 0), lead.clone()), lead)
    }

    /// Runs one command; false if none may run.
    pub(crate) fn step(&self) -> bool {
        let mut state = self.state();
        let able: Vec<u64> =
            state.streams.keys().copied().filter(|&it| state.may_go_on(it)).collect();
        if able.is_empty() {
            return false;
        }
        let chosen = able[state.random.below(able.len())];
        let native = state.streams.get_mut(&chosen).unwrap();
        match native.commands.pop_front().unwrap() {
            Command::Mark(ticket) => native.reached = ticket,
            Command::Wait(_) => {}
            Command::Copy { dst, src } => {
                let (to, from) = (dst.address.as_ptr(), src.address.as_ptr());
                // SAFETY: aether promised valid regions until the copy has ended, which it learns
                // from a later mark only.
                unsafe { std::ptr::copy_nonoverlapping(from, to, dst.bytes) };
            }
            Command::Fill { dst, pattern } => {
                for at in 0..dst.bytes {
                    let to = dst.address.add(at).as_ptr();
                    // SAFETY: as above.
                    unsafe { to.write(pattern[at % pattern.len()]) };
                }
            }
        }
        true
    }

    /// Runs whatever may run.
    pub(crate) fn run(&self) {
        while self.step() {}
    }

    /// Has a thread run it from now on, until the pump is dropped.
    pub(crate) fn pump(self: &Arc<Self>) -> Pump {
        let stop = Arc::new(AtomicBool::new(false));
        let (lead, stopped) = (self.clone(), stop.clone());
        let thread = std::thread::spawn(move || {
            while !stopped.load(Ordering::SeqCst) {
                if !lead.step() {
                    std::thread::yield_now();
                }
            }
        });
        Pump { stop, thread: Some(thread) }
    }

    pub(crate) fn fail_copies(&self, count: usize) {
        self.state().fail_copies = count;
    }

    pub(crate) fn fail_marks(&self, count: usize) {
        self.state().fail_marks = count;
    }

    pub(crate) fn fail_waits(&self, count: usize) {
        self.state().fail_waits = count;
    }

    /// How many waits are still to fail.
    pub(crate) fn waits_to_fail(&self) -> usize {
        self.state().fail_waits
    }

    pub(crate) fn panic_copies(&self, count: usize) {
        self.state().panic_copies = count;
    }

    /// From now on the device can't tell what has ended.
    pub(crate) fn lose(&self) {
        self.state().lost = true;
    }

    /// From now on the device can't tell what of one stream has ended.
    pub(crate) fn lose_stream(&self, stream: NativeStream) {
        self.state().lost_streams.insert(stream.0);
    }

    /// How many allocations there are.
    pub(crate) fn live(&self) -> usize {
        self.state().live.len()
    }

    /// How many commands were issued and didn't run yet.
    pub(crate) fn queued(&self) -> usize {
        self.state().streams.values().map(|it| it.commands.len()).sum()
    }

    /// How many streams are open.
    pub(crate) fn streams(&self) -> usize {
        self.state().streams.len()
    }

    /// Frees what aether leaks on purpose, so that only what it leaks by mistake is found.
    pub(crate) fn free_leaked(&self) {
        let mut state = self.state();
        for (address, layout) in std::mem::take(&mut state.live).into_values() {
            // SAFETY: the allocation is one of ours and nobody frees it any more: the test is over.
            unsafe { dealloc(address.as_ptr(), layout) };
        }
    }

    /// Fails if anything went wrong that the device could see.
    #[track_caller]
    pub(crate) fn check(&self) {
        let complaints = self.state().complaints.clone();
        assert!(complaints.is_empty(), "the device complains: {complaints:?}");
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn failure(what: &'static str) -> Error {
        Error::new(ErrorKind::Backend, what, "the device was told to fail")
    }
}

impl State {
    fn may_go_on(&self, stream: u64) -> bool {
        match self.streams.get(&stream).and_then(|it| it.commands.front()) {
            None => false,
            Some(Command::Wait(on)) => self.is_reached(*on),
            Some(_) => true,
        }
    }

    /// A ticket that was never marked is reached when everything marked before it is.
    fn is_reached(&self, at: Point) -> bool {
        self.streams.get(&at.stream.0).is_none_or(|it| {
            it.marked.range(..=at.ticket).next_back().is_none_or(|&last| it.reached >= last)
        })
    }

    fn push(&mut self, stream: NativeStream, command: Command) {
        match self.streams.get_mut(&stream.0) {
            Some(native) => native.commands.push_back(command),
            None => self.complaints.push(format!("work on the closed stream {stream:?}")),
        }
    }
}

/// Counts down; true while there is something left.
fn take(left: &mut usize) -> bool {
    let some = *left > 0;
    *left = left.saturating_sub(1);
    some
}

// SAFETY: memory comes from the global allocator and is freed once; each stream's commands run in
// order; a mark is reached after everything issued before it; a wait holds its stream up until then.
unsafe impl Backend for Manual {
    fn name(&self) -> &str {
        "manual"
    }

    fn allocate(&self, _: DeviceId, layout: Layout, _: bool) -> Result<Address> {
        // SAFETY: "never zero".
        let pointer = unsafe { alloc_zeroed(layout) };
        assert!(!pointer.is_null());
        let address = Address::from_ptr(pointer);
        self.state().live.insert(address.addr(), (address, layout));
        Ok(address)
    }

    unsafe fn free(&self, _: DeviceId, address: Address, layout: Layout) {
        let mut state = self.state();
        let range = address.addr()..address.addr() + layout.size();
        if state.streams.values().any(|it| it.commands.iter().any(|it| it.touches(&range))) {
            state.complaints.push(format!("{address:?} is freed while work touches it"));
        }
        if state.live.remove(&address.addr()).map(|it| it.1) != Some(layout) {
            state.complaints.push(format!("{address:?} is freed, and was not allocated so"));
            return;
        }
        // SAFETY: the address was live and is taken off the list just now.
        unsafe { dealloc(address.as_ptr(), layout) };
    }

    unsafe fn copy(&self, stream: NativeStream, dst: Region, src: Region) -> Result<()> {
        let mut state = self.state();
        if take(&mut state.panic_copies) {
            drop(state);
            std::panic::resume_unwind(Box::new("told to panic"));
        }
        if take(&mut state.fail_copies) {
            return Err(Self::failure("copy"));
        }
        state.push(stream, Command::Copy { dst, src });
        Ok(())
    }

    unsafe fn fill(&self, stream: NativeStream, dst: Region, pattern: &[u8]) -> Result<()> {
        self.state().push(stream, Command::Fill { dst, pattern: pattern.to_vec() });
        Ok(())
    }

    fn host_addressable(&self, _: DeviceId) -> bool {
        false
    }

    fn link(&self, _: DeviceId, other: &Device) -> Link {
        if std::ptr::addr_eq(Arc::as_ptr(other.backend()), self) {
            return Link::Direct;
        }
        match (&self.staging, other.host_addressable()) {
            (Some(staging), true) if staging == other => Link::Direct,
            (_, true) => self.host,
            _ => Link::None,
        }
    }

    fn staging(&self, _: DeviceId) -> Option<Device> {
        self.staging.clone()
    }

    fn is_asynchronous(&self) -> bool {
        true
    }

    fn open_stream(&self, _: DeviceId) -> Result<NativeStream> {
        let mut state = self.state();
        state.opened += 1;
        let name = state.opened;
        state.streams.insert(name, Native::default());
        Ok(NativeStream(name))
    }

    fn close_stream(&self, stream: NativeStream) {
        let mut state = self.state();
        let lost = state.lost;
        match state.streams.remove(&stream.0) {
            Some(native) if native.commands.is_empty() || lost => {}
            Some(_) => state.complaints.push(format!("{stream:?} is closed with work on it")),
            None => state.complaints.push(format!("{stream:?} is closed twice")),
        }
    }

    fn mark(&self, at: Point) -> Result<()> {
        let mut state = self.state();
        if take(&mut state.fail_marks) {
            return Err(Self::failure("mark"));
        }
        state.push(at.stream, Command::Mark(at.ticket));
        let marks = state.streams.get_mut(&at.stream.0).map(|it| &mut it.marked);
        if marks.is_some_and(|it| {
            it.last().is_some_and(|&last| last >= at.ticket) || !it.insert(at.ticket)
        }) {
            state.complaints.push(format!("{at:?} is marked out of order"));
        }
        Ok(())
    }

    fn is_done(&self, at: Point) -> Result<bool> {
        let state = self.state();
        match state.lost || state.lost_streams.contains(&at.stream.0) {
            true => Err(Error::new(ErrorKind::Backend, "ask for the end", "the device is lost")),
            false => Ok(state.is_reached(at)),
        }
    }

    fn wait(&self, stream: NativeStream, on: Point) -> Result<Ordered> {
        let mut state = self.state();
        if take(&mut state.fail_waits) {
            return Err(Self::failure("wait"));
        }
        // What was never marked would order nothing: as an event that was never recorded.
        if !state.streams.get(&on.stream.0).is_some_and(|it| it.marked.contains(&on.ticket)) {
            state.complaints.push(format!("a wait for {on:?}, which was never marked"));
        }
        state.push(stream, Command::Wait(on));
        Ok(Ordered::ByDevice)
    }
}

/// A thread that runs a device.
pub(crate) struct Pump {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Drop for Pump {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::SeqCst);
        if let Some(thread) = self.thread.take() {
            thread.join().unwrap();
        }
    }
}

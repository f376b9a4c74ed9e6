//! A backend that is asynchronous for real.

use std::alloc::Layout;
use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::thread::JoinHandle;
use std::time::Duration;

use aether_core::{
    Address, Backend, Device, DeviceId, Error, ErrorKind, Link, MemoryInfo, NativeStream, Ordered,
    Point, Region, Result, Rows, Touch,
};

use super::wrapping::{inward, outward};

/// The test double of a device with streams of its own: a backend whose copies are done when they
/// return, made asynchronous.
///
/// Copies and fills are queued and run by worker threads, each stream in order and the streams in an
/// order that the seed and the scheduler pick. Points end when the workers have come so far, and
/// [`Backend::wait`] orders on the device. It can be told to [hold](Scrambled::hold) everything, so
/// that a test knows its work to be in flight, and to [break](Scrambled::break_device).
pub struct Scrambled {
    inner: Arc<dyn Backend>,
    shared: Arc<Shared>,
    by_host: bool,
    workers: Vec<JoinHandle<()>>,
    me: Weak<dyn Backend>,
}

struct Shared {
    inner: Arc<dyn Backend>,
    state: Mutex<State>,
    bell: Condvar,
}

#[derive(Default)]
struct State {
    streams: BTreeMap<u64, Stream>,
    last_stream: u64,
    random: u64,
    held: bool,
    /// How long a worker waits before each command.
    delay: Duration,
    broken: Option<Error>,
    over: bool,
}

struct Stream {
    commands: VecDeque<Command>,
    /// Tickets that are marked and not reached.
    marks: VecDeque<u64>,
    /// A worker has a command of it in hands.
    busy: bool,
    /// The inner backend's name of it.
    native: NativeStream,
}

#[derive(Clone, Copy)]
enum Command {
    Copy { dst: Region, src: Region },
    CopyRows { dst: Region, src: Region, rows: Rows },
    Fill { dst: Region, pattern: [u8; 8], width: usize },
    Mark(u64),
    Wait(Point),
}

/// How many workers run the commands.
const WORKERS: usize = 2;

impl Scrambled {
    /// Makes `inner` asynchronous.
    ///
    /// # Errors
    /// `InvalidArgument` if it is asynchronous already; `Io` if no thread can be started.
    pub fn new(inner: Arc<dyn Backend>, seed: u64) -> Result<Arc<Self>> {
        Self::build(inner, seed, false)
    }

    /// The same, but [`Backend::wait`] leaves the order to the host.
    ///
    /// # Errors
    /// Those of [`Scrambled::new`].
    pub fn ordered_by_host(inner: Arc<dyn Backend>, seed: u64) -> Result<Arc<Self>> {
        Self::build(inner, seed, true)
    }

    /// The device `id` of the inner backend, made asynchronous.
    pub fn device(self: &Arc<Self>, id: DeviceId) -> Device {
        Device::new(id, self.clone())
    }

    /// Waits so long before each command from now on, so that whoever doesn't wait for it is early.
    pub fn slow_down(&self, delay: Duration) {
        self.shared.lock().delay = delay;
    }

    /// Runs nothing until [`Scrambled::release`]; what is running has ended when this returns.
    pub fn hold(&self) {
        let mut state = self.shared.lock();
        state.held = true;
        while state.streams.values().any(|it| it.busy) {
            state = self.shared.sleep(state);
        }
    }

    /// Runs on after [`Scrambled::hold`].
    pub fn release(&self) {
        self.shared.lock().held = false;
        self.shared.bell.notify_all();
    }

    /// Breaks the device: nothing more runs, and it can't tell any more what has ended.
    pub fn break_device(&self) {
        let reason = "the double was told to break";
        self.shared.lock().broken = Some(Error::new(ErrorKind::Backend, "run a stream", reason));
        self.shared.bell.notify_all();
    }

    fn build(inner: Arc<dyn Backend>, seed: u64, by_host: bool) -> Result<Arc<Self>> {
        if inner.is_asynchronous() {
            let reason = format!("{} is asynchronous already", inner.name());
            return Err(Error::new(ErrorKind::InvalidArgument, "make it asynchronous", reason));
        }
        // An odd state never becomes 0, at which the generator would stay.
        let state = State { random: seed << 1 | 1, ..State::default() };
        let shared = Arc::new(Shared {
            inner: inner.clone(),
            state: Mutex::new(state),
            bell: Condvar::new(),
        });
        let mut workers = Vec::new();
        for _ in 0..WORKERS {
            let of_worker = shared.clone();
            let builder = std::thread::Builder::new().name("aether-scrambled".to_owned());
            let started = builder.spawn(move || of_worker.work()).map_err(|error| {
                shared.finish();
                Error::new(ErrorKind::Io, "start a worker", "the system has no thread for it")
                    .caused_by(error)
            })?;
            workers.push(started);
        }
        Ok(Arc::new_cyclic(|me: &Weak<Self>| Self {
            inner,
            shared,
            by_host,
            workers,
            me: me.clone(),
        }))
    }

    fn push(&self, stream: NativeStream, command: Command) -> Result<()> {
        let mut state = self.shared.lock();
        if let Some(error) = &state.broken {
            return Err(error.clone());
        }
        let Some(stream) = state.streams.get_mut(&stream.0) else {
            let reason = format!("stream #{} is not open", stream.0);
            return Err(Error::new(ErrorKind::InvalidArgument, "use a stream", reason));
        };
        if let Command::Mark(ticket) = command {
            stream.marks.push_back(ticket);
        }
        stream.commands.push_back(command);
        drop(state);
        self.shared.bell.notify_all();
        Ok(())
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn sleep<'a>(&self, state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        self.bell.wait(state).unwrap_or_else(PoisonError::into_inner)
    }

    fn finish(&self) {
        self.lock().over = true;
        self.bell.notify_all();
    }

    fn work(&self) {
        let mut state = self.lock();
        while !state.over {
            let Some((name, native, command)) = state.take() else {
                state = self.sleep(state);
                continue;
            };
            let (idle, delay) = (state.next_random() % 64, state.delay);
            drop(state);
            if !delay.is_zero() {
                std::thread::sleep(delay);
            }
            // Delays of different lengths, so that streams overtake each other.
            (0..idle).for_each(|_| std::hint::spin_loop());
            if idle.is_multiple_of(16) {
                std::thread::yield_now();
            }
            let outcome = self.run(native, command);
            state = self.lock();
            if let Err(error) = outcome {
                state.broken = Some(error);
            }
            if let Some(stream) = state.streams.get_mut(&name) {
                stream.busy = false;
            }
            self.bell.notify_all();
        }
    }

    fn run(&self, stream: NativeStream, command: Command) -> Result<()> {
        match command {
            // SAFETY: who called `copy` of the double promised valid regions, free of conflicts
            // until the copy has ended; `is_done` tells the end only after this.
            Command::Copy { dst, src } => unsafe { self.inner.copy(stream, dst, src) },
            // SAFETY: as for `Copy`, for every row.
            Command::CopyRows { dst, src, rows } => unsafe {
                self.inner.copy_rows(stream, dst, src, rows)
            },
            Command::Fill { dst, pattern, width } => {
                let pattern = pattern.get(..width).unwrap_or(&pattern);
                // SAFETY: as for the destination of `Copy`.
                unsafe { self.inner.fill(stream, dst, pattern) }
            }
            Command::Mark(_) | Command::Wait(_) => Ok(()),
        }
    }
}

impl State {
    /// Takes the next command that moves bytes from a stream picked at random, after going past the
    /// marks and the waits that are over.
    fn take(&mut self) -> Option<(u64, NativeStream, Command)> {
        if self.held || self.broken.is_some() {
            return None;
        }
        while self.pass() {}
        let ready = |it: &Stream| {
            !it.busy && it.commands.front().is_some_and(|it| !matches!(it, Command::Wait(_)))
        };
        let names: Vec<u64> =
            self.streams.iter().filter(|it| ready(it.1)).map(|it| *it.0).collect();
        let pick = (self.next_random() % (names.len().max(1) as u64)) as usize;
        let name = *names.get(pick)?;
        let stream = self.streams.get_mut(&name)?;
        stream.busy = true;
        Some((name, stream.native, stream.commands.pop_front()?))
    }

    /// Goes past every mark and past every wait that is over, and says whether anything moved.
    fn pass(&mut self) -> bool {
        let mut moved = false;
        let names: Vec<u64> = self.streams.keys().copied().collect();
        for name in names {
            while let Some(stream) = self.streams.get(&name).filter(|it| !it.busy) {
                match stream.commands.front() {
                    Some(Command::Wait(on)) if self.reached(*on) => {}
                    Some(Command::Mark(_)) => {}
                    _ => break,
                }
                let Some(stream) = self.streams.get_mut(&name) else { break };
                if let Some(Command::Mark(_)) = stream.commands.pop_front() {
                    stream.marks.pop_front();
                }
                moved = true;
            }
        }
        moved
    }

    fn reached(&self, on: Point) -> bool {
        let marks = self.streams.get(&on.stream.0).map(|it| &it.marks);
        marks.and_then(|it| it.front()).is_none_or(|&next| next > on.ticket)
    }

    /// Marsaglia's xorshift: good enough to pick a stream.
    fn next_random(&mut self) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random
    }
}

impl Drop for Scrambled {
    fn drop(&mut self) {
        self.shared.finish();
        for worker in self.workers.drain(..) {
            // A worker that panicked has nothing left to end.
            drop(worker.join());
        }
    }
}

impl fmt::Debug for Scrambled {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Scrambled({})", self.inner.name())
    }
}

// SAFETY: allocations are those of the inner backend, which keeps the contract. Commands of a stream
// run one after the other, because a stream whose command a worker has in hands is `busy` and gives
// out no other; a mark leaves `marks` only when it is at the front, after everything before it was
// run, and the mutex makes what was run visible to whoever sees that; a wait keeps its stream until
// the point that it waits for is reached.
unsafe impl Backend for Scrambled {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn allocate(&self, device: DeviceId, layout: Layout, zeroed: bool) -> Result<Address> {
        self.inner.allocate(device, layout, zeroed)
    }

    unsafe fn free(&self, device: DeviceId, address: Address, layout: Layout) {
        // SAFETY: the caller promises what the inner backend asks.
        unsafe { self.inner.free(device, address, layout) }
    }

    unsafe fn copy(&self, stream: NativeStream, dst: Region, src: Region) -> Result<()> {
        self.push(stream, Command::Copy { dst, src })
    }

    unsafe fn fill(&self, stream: NativeStream, dst: Region, pattern: &[u8]) -> Result<()> {
        let mut kept = [0; 8];
        let Some(start) = kept.get_mut(..pattern.len()) else {
            let reason = format!("a pattern of {} bytes", pattern.len());
            return Err(Error::new(ErrorKind::InvalidArgument, "fill", reason));
        };
        start.copy_from_slice(pattern);
        self.push(stream, Command::Fill { dst, pattern: kept, width: pattern.len() })
    }

    fn host_addressable(&self, device: DeviceId) -> bool {
        self.inner.host_addressable(device)
    }

    fn adopts(&self, device: DeviceId) -> bool {
        self.inner.adopts(device)
    }

    fn link(&self, device: DeviceId, other: &Device) -> Link {
        self.inner.link(device, &inward(other, self, &self.inner))
    }

    fn staging(&self, device: DeviceId) -> Option<Device> {
        self.inner.staging(device).map(|it| outward(it, &self.inner, &self.me))
    }

    unsafe fn copy_rows(
        &self,
        stream: NativeStream,
        dst: Region,
        src: Region,
        rows: Rows,
    ) -> Result<()> {
        self.push(stream, Command::CopyRows { dst, src, rows })
    }

    fn is_asynchronous(&self) -> bool {
        true
    }

    fn open_stream(&self, device: DeviceId) -> Result<NativeStream> {
        let native = self.inner.open_stream(device)?;
        let stream =
            Stream { commands: VecDeque::new(), marks: VecDeque::new(), busy: false, native };
        let mut state = self.shared.lock();
        state.last_stream += 1;
        // Names of its own, because a backend may have one name for all its streams.
        let name = state.last_stream;
        state.streams.insert(name, stream);
        Ok(NativeStream(name))
    }

    fn close_stream(&self, stream: NativeStream) {
        let closed = self.shared.lock().streams.remove(&stream.0);
        if let Some(closed) = closed {
            self.inner.close_stream(closed.native);
        }
    }

    fn mark(&self, at: Point) -> Result<()> {
        self.push(at.stream, Command::Mark(at.ticket))
    }

    fn is_done(&self, at: Point) -> Result<bool> {
        let state = self.shared.lock();
        match (state.reached(at), &state.broken) {
            (true, _) => Ok(true),
            (false, Some(error)) => Err(error.clone()),
            (false, None) => Ok(false),
        }
    }

    fn wait(&self, stream: NativeStream, on: Point) -> Result<Ordered> {
        if self.by_host {
            return Ok(Ordered::ByHost);
        }
        self.push(stream, Command::Wait(on))?;
        Ok(Ordered::ByDevice)
    }

    fn observe(&self, stream: Option<NativeStream>, touches: &[Touch]) {
        // Points and streams of the inner backend are the double's own business.
        if stream.is_none() {
            self.inner.observe(None, touches);
        }
    }

    fn memory_info(&self, device: DeviceId) -> Option<MemoryInfo> {
        self.inner.memory_info(device)
    }

    fn description(&self, device: DeviceId) -> String {
        format!("{}, asynchronous", self.inner.description(device))
    }
}

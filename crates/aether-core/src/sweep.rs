//! Copies in slices: whoever looks takes some, and all destinations of a slice while it is in the cache.
//!
//! A sweep is one source and one or several destinations, each an operation on a stream of its own.
//! An operation that gets to the front of its stream *arrives*. The first look after that begins a
//! *pass* over the source, for every destination that has arrived; one that comes later, because it
//! waited for something else, gets a pass of its own, so no destination ever waits for another.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use crate::backend::{NativeStream, Region, Rows};
use crate::sync::lock;
use crate::unwind::contain;
use crate::{Device, Error, ErrorKind, Result, Step, Stream, progress};

/// From how many bytes on a copy is worth more than one thread: it takes several times as long as to
/// wake one.
pub(crate) const LEAST: usize = 2 << 20;

/// How much of a source makes a slice, in bytes: it stays in a core's cache while every destination
/// gets it, and is long enough for a copy to be at its best.
const SLICE: usize = 128 << 10;

/// Whether copies of so many bytes, all destinations together, go in slices on the stream.
pub(crate) fn is_worth_it(stream: &Stream, bytes: usize) -> bool {
    let backend = stream.device().backend();
    bytes >= LEAST && !backend.is_asynchronous() && backend.shares_copies()
}

/// One source and its destinations.
pub(crate) struct Sweep {
    source: Region,
    rows: Rows,
    slice: usize,
    state: Mutex<State>,
}

struct State {
    /// More destinations may come: nothing begins yet.
    open: bool,
    targets: Vec<Stage>,
}

/// One destination.
#[derive(Clone)]
pub(crate) struct Target {
    /// The device whose backend copies, and its stream.
    device: Device,
    stream: NativeStream,
    region: Region,
}

impl Target {
    pub(crate) fn on(stream: &Stream, region: Region) -> Self {
        Self { device: stream.device().clone(), stream: stream.native(), region }
    }
}

/// How far a destination is.
enum Stage {
    Queued(Target),
    Arrived(Target),
    /// It has this place in a pass.
    Swept(Arc<Pass>, usize),
}

impl Sweep {
    /// A sweep over rows of the source, all of them one row for one range. Nothing begins before it
    /// is [closed](Sweep::close).
    pub(crate) fn new(source: Region, rows: Rows) -> Arc<Self> {
        Self::by(source, rows, SLICE)
    }

    fn by(source: Region, rows: Rows, slice: usize) -> Arc<Self> {
        let state = State { open: true, targets: Vec::new() };
        Arc::new(Self { source, rows, slice, state: Mutex::new(state) })
    }

    /// Adds a destination, and gives its place.
    pub(crate) fn add(&self, target: Target) -> usize {
        let mut state = lock(&self.state);
        state.targets.push(Stage::Queued(target));
        state.targets.len() - 1
    }

    /// There are no more destinations.
    pub(crate) fn close(&self) {
        lock(&self.state).open = false;
    }

    /// Begins the copy to a destination, which is quick, or goes on with it.
    ///
    /// # Errors
    /// The copy to this destination failed. Nobody touches its memory any more.
    ///
    /// # Safety
    /// From the first call until an answer that is not [`Step::Pending`], the rows of the source and of
    /// the destination are valid, nobody else writes the one or touches the other, and the target's
    /// backend can copy between the two and shares its copies.
    pub(crate) unsafe fn step(&self, at: usize, first: bool) -> Result<Step> {
        if first {
            self.arrive(at);
            return Ok(Step::Pending);
        }
        let Some((pass, place)) = self.pass_of(at) else { return Ok(Step::Pending) };
        pass.help(End::Front, None);
        if pass.left.load(Ordering::Acquire) > 0 {
            return Ok(Step::Pending);
        }
        pass.outcome(place).map(|()| Step::Issued)
    }

    fn arrive(&self, at: usize) {
        let mut state = lock(&self.state);
        if let Some(stage) = state.targets.get_mut(at)
            && let Stage::Queued(target) = stage
        {
            *stage = Stage::Arrived(target.clone());
        }
    }

    /// The pass that a destination is in; it begins now if there is none.
    fn pass_of(&self, at: usize) -> Option<(Arc<Pass>, usize)> {
        let mut state = lock(&self.state);
        if let Some(Stage::Swept(pass, place)) = state.targets.get(at) {
            return Some((pass.clone(), *place));
        }
        if state.open || !matches!(state.targets.get(at), Some(Stage::Arrived(_))) {
            return None;
        }
        let arrived = state.targets.iter().filter_map(|it| match it {
            Stage::Arrived(target) => Some(target.clone()),
            _ => None,
        });
        let pass = Arc::new(Pass::new(self, arrived.collect()));
        let (mut places, mut own) = (0.., None);
        for (index, stage) in state.targets.iter_mut().enumerate() {
            if matches!(stage, Stage::Arrived(_))
                && let Some(place) = places.next()
            {
                *stage = Stage::Swept(pass.clone(), place);
                own = own.or((index == at).then_some(place));
            }
        }
        drop(state);
        publish(&pass);
        own.map(|place| (pass, place))
    }
}

/// One pass over the source, for all destinations that were ready.
struct Pass {
    source: Region,
    slices: Slices,
    targets: Vec<Writing>,
    /// How many slices were given out, and how many of them from each end.
    taken: AtomicUsize,
    front: AtomicUsize,
    back: AtomicUsize,
    /// How many slices have not ended.
    left: AtomicUsize,
}

/// Where slices are taken from. Whoever has the stream in hands takes the front, and helpers the back:
/// each goes through memory in its own order, and with the next copy through the same as before, so
/// that a core finds in its cache what it had there.
#[derive(Clone, Copy, PartialEq, Eq)]
enum End {
    Front,
    Back,
}

/// A destination that is written.
struct Writing {
    target: Target,
    has_failed: AtomicBool,
    /// The first failure.
    failure: Mutex<Option<Error>>,
}

impl Pass {
    fn new(sweep: &Sweep, targets: Vec<Target>) -> Self {
        // With several destinations less of the source is as much work.
        let slice = (sweep.slice / targets.len().max(1)).max(sweep.slice / 4);
        let slices = Slices::new(sweep.rows, slice);
        let writing = |target| Writing {
            target,
            has_failed: AtomicBool::new(false),
            failure: Mutex::default(),
        };
        Self {
            source: sweep.source,
            slices,
            targets: targets.into_iter().map(writing).collect(),
            taken: AtomicUsize::new(0),
            front: AtomicUsize::new(0),
            back: AtomicUsize::new(0),
            left: AtomicUsize::new(slices.count),
        }
    }

    /// Takes slices while there are any, or until the time is over, and says whether it took one.
    fn help(&self, end: End, until: Option<Instant>) -> bool {
        let mut took = false;
        while let Some(at) = self.take(end) {
            took = true;
            self.copy(at);
            if self.left.fetch_sub(1, Ordering::AcqRel) == 1 {
                progress::announce();
            }
            if until.is_some_and(|it| Instant::now() >= it) {
                break;
            }
        }
        took
    }

    /// Gives out a slice.
    fn take(&self, end: End) -> Option<usize> {
        let count = self.slices.count;
        // Looked at first, so that those who come again and again don't count it up.
        if self.taken.load(Ordering::Relaxed) >= count {
            return None;
        }
        let taken = self.taken.fetch_add(1, Ordering::Relaxed);
        if taken >= count {
            return None;
        }
        if taken + 1 == count {
            withdraw(self);
        }
        // Both ends together give out no more than there are, so they don't meet.
        Some(match end {
            End::Front => self.front.fetch_add(1, Ordering::Relaxed),
            End::Back => count - 1 - self.back.fetch_add(1, Ordering::Relaxed),
        })
    }

    /// Copies one slice to every destination that has not failed.
    fn copy(&self, at: usize) {
        let slice = self.slices.at(at);
        let part = |region: Region, start: usize, pitch: usize| Region {
            address: region.address.add(start),
            bytes: (slice.rows.count - 1) * pitch + slice.rows.bytes,
            ..region
        };
        let src = part(self.source, slice.src, slice.rows.src_pitch);
        for it in &self.targets {
            if it.has_failed.load(Ordering::Relaxed) {
                continue;
            }
            let dst = part(it.target.region, slice.dst, slice.rows.dst_pitch);
            let (backend, stream) = (it.target.device.backend(), it.target.stream);
            let copied = contain(|| match slice.rows.count {
                // SAFETY: `step` was promised valid rows free of conflicts until it answers, which it
                // does when no slice is left; this slice is a part of them, no other has a byte of
                // it, and the backend lets several threads copy parts at a time.
                1 => unsafe { backend.copy(stream, dst, src) },
                // SAFETY: as for one row, for every row of the slice.
                _ => unsafe { backend.copy_rows(stream, dst, src, slice.rows) },
            });
            let failure = match copied {
                Ok(Ok(())) => continue,
                Ok(Err(error)) => error,
                Err(panic) => {
                    Error::new(ErrorKind::Panicked, "copy a slice", format!("the backend {panic}"))
                        .on(&it.target.device)
                }
            };
            lock(&it.failure).get_or_insert(failure);
            it.has_failed.store(true, Ordering::Relaxed);
        }
    }

    fn outcome(&self, place: usize) -> Result<()> {
        let failure = self.targets.get(place).and_then(|it| lock(&it.failure).clone());
        failure.map_or(Ok(()), Err)
    }
}

/// The passes of the process that have slices to give out, and how many there are.
static UNDER_WAY: Mutex<Vec<Arc<Pass>>> = Mutex::new(Vec::new());
static COUNT: AtomicUsize = AtomicUsize::new(0);

/// Takes slices of some pass, whoever began it, and says whether there was one.
pub(crate) fn help(until: Option<Instant>) -> bool {
    if COUNT.load(Ordering::Relaxed) == 0 {
        return false;
    }
    let pass = lock(&UNDER_WAY).first().cloned();
    pass.is_some_and(|it| it.help(End::Back, until))
}

/// Lets others take slices, and wakes some.
fn publish(pass: &Arc<Pass>) {
    if pass.slices.count < 2 {
        return;
    }
    let mut passes = lock(&UNDER_WAY);
    passes.push(pass.clone());
    COUNT.store(passes.len(), Ordering::Relaxed);
    drop(passes);
    progress::summon();
}

/// All slices were given out.
fn withdraw(pass: &Pass) {
    let mut passes = lock(&UNDER_WAY);
    let at = passes.iter().position(|it| std::ptr::eq(Arc::as_ptr(it), pass));
    let gone = at.map(|at| passes.remove(at));
    COUNT.store(passes.len(), Ordering::Relaxed);
    drop(passes);
    // Whoever withdraws it has it in hands, so it doesn't go here.
    drop(gone);
}

/// How rows are cut: groups of short rows, or parts of long ones.
#[derive(Clone, Copy)]
struct Slices {
    rows: Rows,
    /// How long a part of a row is, in bytes, and how many rows make a group.
    width: usize,
    height: usize,
    /// How many parts make a row.
    across: usize,
    count: usize,
}

/// One slice: where it begins on each side, and its rows.
#[derive(Debug, PartialEq, Eq)]
struct Slice {
    dst: usize,
    src: usize,
    rows: Rows,
}

impl Slices {
    /// There is a row, and none is empty.
    fn new(rows: Rows, slice: usize) -> Self {
        let width = rows.bytes.min(slice);
        let height = (slice / rows.bytes.max(1)).clamp(1, rows.count.max(1));
        let across = rows.bytes.div_ceil(width.max(1));
        Self { rows, width, height, across, count: across * rows.count.div_ceil(height) }
    }

    fn at(&self, index: usize) -> Slice {
        let (row, column) = (index / self.across * self.height, index % self.across * self.width);
        let Rows { count, bytes, dst_pitch, src_pitch } = self.rows;
        let count = self.height.min(count - row);
        let bytes = self.width.min(bytes - column);
        Slice {
            dst: row * dst_pitch + column,
            src: row * src_pitch + column,
            rows: Rows { count, bytes, dst_pitch, src_pitch },
        }
    }
}

#[cfg(test)]
#[path = "sweep_tests.rs"]
mod tests;

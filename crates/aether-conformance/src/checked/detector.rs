//! The clocks, and what follows from them.
//!
//! Every stream has a vector clock, and so has the host. An issue advances the stream's own part and
//! joins the host's clock; a mark keeps the stream's clock under its ticket; a wait joins a kept clock
//! into a stream's, and an acquisition joins it into the host's. An access is ordered behind another
//! if its clock knows the other's issue. None of this depends on when anything runs.

use std::alloc::Layout;
use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use aether_core::{Address, DeviceId, NativeStream, Point, Region, Touch};

use super::blocks::{Block, Blocks, Place};
use super::clock::Clock;
use super::report::{Access, By, Fault, Findings, Report, What};
use super::shadow::{Mark, Shadow};

/// Whose addresses they are: all host-addressable memory is one space.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Space {
    Host,
    /// A device of the wrapper with this number.
    Device(u64, DeviceId),
}

/// The clocks and records, which several wrapped backends may share: then work of one backend on
/// another's memory is checked too.
#[derive(Clone, Debug, Default)]
pub struct Detector(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    host: Clock,
    streams: HashMap<u64, Stream>,
    last_stream: u64,
    last_wrapper: u64,
    /// The number of the last issue of each slot.
    slots: Vec<u64>,
    /// Slots of streams that are closed.
    idle: Vec<usize>,
    shadows: HashMap<Space, Shadow>,
    blocks: HashMap<Space, Blocks>,
    reports: Vec<Report>,
    more: u64,
}

#[derive(Debug)]
struct Stream {
    native: NativeStream,
    slot: usize,
    clock: Clock,
    /// The issues of the slot before this stream had it.
    before: u64,
    last_mark: u64,
    marks: BTreeMap<u64, Clock>,
    /// Points that the host has promised to see the end of before it issues anything here.
    promised: Vec<Point>,
}

/// How many findings are kept; the others are counted.
const KEPT: usize = 256;

impl Detector {
    /// One with no record yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// The findings so far.
    pub fn reports(&self) -> Vec<Report> {
        self.lock().reports.clone()
    }

    /// Whether nothing was found so far.
    ///
    /// # Errors
    /// What was found.
    pub fn verdict(&self) -> Result<(), Findings> {
        let state = self.lock();
        if state.reports.is_empty() {
            return Ok(());
        }
        Err(Findings { reports: state.reports.clone(), more: state.more })
    }

    pub(super) fn join_wrapper(&self) -> u64 {
        let mut state = self.lock();
        state.last_wrapper += 1;
        state.last_wrapper
    }

    pub(super) fn open(&self, native: NativeStream) -> NativeStream {
        let mut state = self.lock();
        let slot = state.take_slot();
        state.last_stream += 1;
        let name = state.last_stream;
        let before = state.slots.get(slot).copied().unwrap_or(0);
        let stream = Stream {
            native,
            slot,
            clock: Clock::default(),
            before,
            last_mark: 0,
            marks: BTreeMap::new(),
            promised: Vec::new(),
        };
        state.streams.insert(name, stream);
        NativeStream(name)
    }

    /// Forgets a stream, and gives the backend's name of it and its last marked ticket.
    pub(super) fn close(&self, name: NativeStream) -> Option<(NativeStream, u64)> {
        let mut state = self.lock();
        let Some(stream) = state.streams.remove(&name.0) else {
            state.bad_stream(name, "it was closed, but is not open");
            return None;
        };
        state.idle.push(stream.slot);
        Some((stream.native, stream.last_mark))
    }

    /// The backend's name of an open stream; none is a finding.
    pub(super) fn native(&self, name: NativeStream) -> Option<NativeStream> {
        let mut state = self.lock();
        let native = state.streams.get(&name.0).map(|it| it.native);
        if native.is_none() {
            state.bad_stream(name, "it was used, but is not open");
        }
        native
    }

    /// Takes the points that have to have ended before something is issued on the stream.
    pub(super) fn promised(&self, name: NativeStream) -> Vec<Point> {
        let mut state = self.lock();
        state
            .streams
            .get_mut(&name.0)
            .map(|it| std::mem::take(&mut it.promised))
            .unwrap_or_default()
    }

    pub(super) fn not_ended(&self, at: Point, detail: &str) {
        self.lock().report(Fault::NotEnded(at), None, None, detail.to_owned());
    }

    pub(super) fn closed_early(&self, name: NativeStream) {
        self.lock().bad_stream(name, "it was closed while work was on it");
    }

    /// Checks and enters what work on the stream touches, all of it as one issue.
    pub(super) fn issue(&self, name: NativeStream, what: What, touches: &[(Space, Touch)]) {
        let mut state = self.lock();
        let State { host, streams, slots, .. } = &mut *state;
        let Some(stream) = streams.get_mut(&name.0) else { return };
        let Some(last) = slots.get_mut(stream.slot) else { return };
        *last += 1;
        let (slot, issue) = (stream.slot, *last);
        stream.clock.join(host);
        stream.clock.advance(slot, issue);
        let (clock, host) = (stream.clock.clone(), host.clone());
        let number = issue - stream.before;
        let by = By::Stream { stream: name, issue: number, after_ticket: stream.last_mark };
        let access = |it: &Touch| Access { what, by, region: it.region, writes: it.writes };
        for (space, touch) in touches {
            state.check(*space, access(touch), &clock);
        }
        for (space, touch) in touches {
            let range = addresses(touch.region);
            let mark = Mark { slot, issue, access: Arc::new(access(touch)) };
            state.shadows.entry(*space).or_default().enter(range, touch.writes, &mark, &host);
        }
    }

    /// Checks that source and destination of a copy don't overlap.
    pub(super) fn copy_is_apart(&self, dst: (Space, Region), src: (Space, Region)) {
        let (to, from) = (addresses(dst.1), addresses(src.1));
        if dst.0 == src.0 && to.start < from.end && from.start < to.end {
            let detail = format!("a copy goes from {src:?} to {dst:?}");
            self.lock().report(Fault::Overlap, None, None, detail);
        }
    }

    pub(super) fn mark(&self, at: Point) {
        let mut state = self.lock();
        if let Some(stream) = state.streams.get_mut(&at.stream.0) {
            stream.last_mark = at.ticket.max(stream.last_mark);
            stream.marks.insert(at.ticket, stream.clock.clone());
        }
    }

    /// Orders the stream behind the point, on the device or because the host promises to hold back.
    pub(super) fn wait(&self, name: NativeStream, on: Point, promised: bool) {
        let mut state = self.lock();
        let Some(known) = state.kept(on) else { return };
        if let Some(stream) = state.streams.get_mut(&name.0) {
            stream.clock.join(&known);
            if promised {
                stream.promised.push(on);
            }
        }
    }

    pub(super) fn acquired(&self, at: Point) {
        let mut state = self.lock();
        let Some(known) = state.kept(at) else { return };
        state.host.join(&known);
        if let Some(stream) = state.streams.get_mut(&at.stream.0) {
            // Whatever is issued from now on joins the host's clock, so nobody needs an earlier one.
            let last = stream.marks.range(..=at.ticket).next_back().map(|it| *it.0);
            if let Some(last) = last {
                stream.marks = stream.marks.split_off(&last);
            }
        }
    }

    /// Checks what the host touches. There is nothing to enter: all that is issued later joins the
    /// host's clock.
    pub(super) fn host_access(&self, touches: &[(Space, Touch)]) {
        let mut state = self.lock();
        let host = state.host.clone();
        for (space, touch) in touches {
            let (region, writes) = (touch.region, touch.writes);
            let access = Access { what: What::Host, by: By::Host, region, writes };
            state.check(*space, access, &host);
        }
    }

    /// Enters an allocation, which counts as a write by the host.
    pub(super) fn allocated(&self, space: Space, region: Region, layout: Layout, extent: usize) {
        let access = Access { what: What::Allocate, by: By::Host, region, writes: true };
        let start = region.address.addr();
        let range = start..start.saturating_add(extent);
        let mut state = self.lock();
        let taken = state.blocks.entry(space).or_default().overlapping(&range).map(|it| *it.1);
        if let Some(taken) = taken {
            let detail = "the backend gave the same memory twice".to_owned();
            state.report(Fault::Overlap, Some(taken.access), Some(access), detail);
            return;
        }
        let host = state.host.clone();
        state.order(space, access, &host);
        state.shadows.entry(space).or_default().clear(&range);
        let block = Block { device: region.device, layout, extent, access, freed: false };
        state.blocks.entry(space).or_default().insert(start, block);
    }

    /// Checks a free, which counts as a write by the host. It gives the size of the allocation with
    /// its guard, and whether the memory may go back to the backend.
    pub(super) fn freed(
        &self,
        space: Space,
        device: DeviceId,
        address: Address,
        layout: Layout,
    ) -> Option<(usize, bool)> {
        let start = address.addr();
        let region = Region { device, address, bytes: layout.size() };
        let access = Access { what: What::Free, by: By::Host, region, writes: true };
        let mut state = self.lock();
        let block = state.blocks.entry(space).or_default().get_mut(start).copied();
        let as_allocated = |it: &Block| !it.freed && it.layout == layout && it.device == device;
        let Some(block) = block.filter(as_allocated) else {
            let detail = match block {
                None => "nothing was allocated there",
                Some(it) if it.freed => "it was freed before",
                Some(_) => "it was allocated with another layout, or on another device",
            };
            let earlier = block.map(|it| it.access);
            state.report(Fault::BadFree, earlier, Some(access), detail.to_owned());
            return None;
        };
        let host = state.host.clone();
        let over = state.order(space, access, &host);
        let range = start..start.saturating_add(block.extent);
        state.shadows.entry(space).or_default().clear(&range);
        if let Some(block) = state.blocks.entry(space).or_default().get_mut(start) {
            block.freed = true;
            block.access = access;
        }
        Some((block.extent, over))
    }

    /// The memory goes back to the backend, and its addresses may come again.
    pub(super) fn forget(&self, space: Space, address: Address) {
        self.lock().blocks.entry(space).or_default().remove(address.addr());
    }

    /// On how many ranges of memory something is on record. It grows only with work whose end the
    /// host doesn't know.
    pub fn records(&self) -> usize {
        self.lock().shadows.values().map(Shadow::len).sum()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// A slot that no stream holds. One whose last issue the host doesn't know stays aside: its next
    /// holder would seem to be ordered behind it.
    fn take_slot(&mut self) -> usize {
        let known =
            |slot: usize| self.slots.get(slot).is_some_and(|&last| self.host.at(slot) >= last);
        if let Some(at) = self.idle.iter().position(|&slot| known(slot)) {
            return self.idle.swap_remove(at);
        }
        self.slots.push(0);
        self.slots.len() - 1
    }

    /// What was known on the stream at the point: what the last mark up to it kept. Where that is
    /// gone, the host knows it already, and what the next mark kept does no harm.
    fn kept(&self, at: Point) -> Option<Clock> {
        let stream = self.streams.get(&at.stream.0)?;
        let up_to = stream.marks.range(..=at.ticket).next_back();
        up_to
            .or_else(|| stream.marks.first_key_value().filter(|it| self.host_knows(stream, it.1)))
            .map(|it| it.1.clone())
    }

    fn host_knows(&self, stream: &Stream, kept: &Clock) -> bool {
        self.host.at(stream.slot) >= kept.at(stream.slot)
    }

    /// Checks where an access lies, and its order.
    fn check(&mut self, space: Space, access: Access, knows: &Clock) {
        let range = addresses(access.region);
        if range.is_empty() {
            return;
        }
        let (fault, block) = match self.blocks.entry(space).or_default().place(&range) {
            Place::Inside | Place::Anonymous => {
                self.order(space, access, knows);
                return;
            }
            Place::Outside(block) => (Fault::OutOfBounds, block),
            Place::Freed(block) => (Fault::UseAfterFree, block),
        };
        let region = block.access.region;
        let detail = format!("the allocation is {:?}+{}", region.address, block.layout.size());
        self.report(fault, Some(block.access), Some(access), detail);
    }

    /// Checks the order of an access, and tells whether it is ordered behind all that it conflicts
    /// with.
    fn order(&mut self, space: Space, access: Access, knows: &Clock) -> bool {
        let range = addresses(access.region);
        let shadow = self.shadows.entry(space).or_default();
        let conflicts = shadow.conflicts(&range, access.writes, knows);
        for mark in &conflicts {
            let By::Stream { stream, issue, .. } = mark.access.by else { continue };
            let who = match access.by {
                By::Host => "the host".to_owned(),
                By::Stream { stream, .. } => format!("stream #{}", stream.0),
            };
            let known = issue.saturating_sub(mark.issue - knows.at(mark.slot));
            let detail = format!(
                "{who} is ordered behind stream #{} up to issue {known}, and not behind issue {issue}",
                stream.0
            );
            self.report(Fault::Unordered, Some(*mark.access), Some(access), detail);
        }
        conflicts.is_empty()
    }

    fn bad_stream(&mut self, name: NativeStream, detail: &str) {
        self.report(Fault::BadStream(name), None, None, detail.to_owned());
    }

    fn report(
        &mut self,
        fault: Fault,
        earlier: Option<Access>,
        later: Option<Access>,
        detail: String,
    ) {
        if self.reports.len() < KEPT {
            self.reports.push(Report { fault, earlier, later, detail });
        } else {
            self.more += 1;
        }
    }
}

fn addresses(region: Region) -> std::ops::Range<usize> {
    let start = region.address.addr();
    start..start.saturating_add(region.bytes)
}

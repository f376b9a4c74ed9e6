//! One collective call of one rank: it shows what it asks for, compares it with what the others show, and
//! then goes through the steps of the work.

mod agreement;
mod pieces;

use std::sync::atomic::{Ordering, fence};

use aether_collective::{OpName, Signature};
use aether_core::{DType, Result, Stores};

use super::header::{Call, Header};
use super::member::Look;
use super::participant::Peer;
use super::pod::{self, Place};
use super::shape::{INLINE, WINDOW};
use super::table::Table;
use super::work::{Region, Work};
use crate::kernels::Kernel;
use crate::resource::HostRange;

/// The collective call of a rank, and what is kept from one to the next.
pub(crate) struct Collective {
    /// How many calls the rank has made; the current one is the last.
    calls: u64,
    signature: Signature,
    src: Option<HostRange>,
    dst: Option<HostRange>,
    counts: Vec<u64>,
    /// Where each rank's source is, and each rank's destination.
    sources: Vec<Place>,
    targets: Vec<Place>,
    work: Work,
    kernel: Option<Kernel>,
    /// How what is copied goes to the destination.
    stores: Stores,
    /// All have arrived and agree, and the work is planned.
    begun: bool,
    /// The steps of all calls before.
    base: u64,
    /// The next step to stage, to read (or reduce) and to copy the results of, from 0.
    stage: u64,
    read: u64,
    copy: u64,
}

impl Default for Collective {
    fn default() -> Self {
        Self {
            calls: 0,
            signature: Signature::new(OpName::Barrier, DType::U8, 0),
            src: None,
            dst: None,
            counts: Vec::new(),
            sources: Vec::new(),
            targets: Vec::new(),
            work: Work::default(),
            kernel: None,
            stores: Stores::Ordinary,
            begun: false,
            base: 0,
            stage: 0,
            read: 0,
            copy: 0,
        }
    }
}

// SAFETY: the addresses in it are numbers until unsafe code uses them.
unsafe impl Send for Collective {}

impl Collective {
    /// Shows what the rank asks for.
    pub(crate) fn arrive(
        &mut self,
        table: &Table,
        signature: Signature,
        src: Option<HostRange>,
        dst: Option<HostRange>,
        counts: &[u64],
    ) {
        let slot = (self.calls % 2) as usize;
        self.calls += 1;
        (self.signature, self.src, self.dst, self.begun) = (signature, src, dst, false);
        self.counts.clear();
        self.counts.extend_from_slice(counts);
        let call = &table.own().calls[slot];
        call.what.set(pod::what(&signature));
        call.count.set(signature.count);
        call.digest.set(signature.counts);
        call.listed.set(counts.len() as u64);
        if !counts.is_empty() {
            let room = table.shape.ranks * table.shape.ranks;
            let at = table.base().wrapping_add(table.shape.counts + slot * room * 8);
            let listed = counts.len().min(room);
            // SAFETY: the list's place has room for `room` words, is aligned (`Shape`), is written by
            // this rank alone, and read by nobody: they are at the call before, whose list is the other
            // one, and will read this one when they have seen `number`.
            unsafe { std::ptr::copy_nonoverlapping(counts.as_ptr(), at.cast(), listed) };
        }
        let place = match src {
            None => Place::Nowhere,
            Some(src) if src.bytes <= INLINE => self.copy_inline(table, slot, src),
            Some(src) => table.place_of(src),
        };
        call.source.set(place.to_word());
        call.target.set(dst.map_or(Place::Nowhere, |it| table.place_of(it)).to_word());
        call.number.set(self.calls);
        table.publish();
    }

    /// Does one thing that can be done.
    ///
    /// # Errors
    /// `RankMismatch`; the group's failure, if memory was read that its owner may have got back.
    pub(crate) fn advance(&mut self, table: &Table) -> Result<Look> {
        if !self.begun {
            if !self.all_have_arrived(table) {
                return Ok(Look::Waits);
            }
            self.begin(table)?;
            if self.work.steps > 0 {
                return Ok(Look::Moved);
            }
            // All that is read came with the calls.
            self.read_step(table, 0);
            return Ok(Look::Over);
        }
        self.step(table)
    }

    fn all_have_arrived(&self, table: &Table) -> bool {
        table.others().all(|(_, peer)| self.call_of(peer.header()).number.get() >= self.calls)
    }

    fn call_of<'h>(&self, header: &'h Header) -> &'h Call {
        let [even, odd] = &header.calls;
        if self.calls % 2 == 1 { even } else { odd }
    }

    /// All have arrived: compares the calls, and plans the work.
    fn begin(&mut self, table: &Table) -> Result<()> {
        self.compare(table)?;
        self.sources.clear();
        self.targets.clear();
        for peer in table.peers.iter() {
            let call = self.call_of(peer.header());
            self.sources.push(Place::of_word(call.source.peek()));
            self.targets.push(Place::of_word(call.target.peek()));
        }
        let sources = &self.sources;
        let source = |rank: usize| sources.get(rank).copied().unwrap_or(Place::Nowhere);
        self.work.plan(&table.shape, table.rank, &self.signature, &self.counts, source);
        self.kernel = self.signature.op.and_then(|op| Kernel::select(self.signature.dtype, op));
        // As much is read as is written.
        self.stores = Stores::for_traffic(2 * self.dst.map_or(0, |it| it.bytes));
        self.begun = true;
        (self.stage, self.read, self.copy) = (0, 0, 0);
        if self.work.steps == 0 {
            return Ok(());
        }
        self.check_bounds(table)?;
        let progress = &table.own().progress;
        if self.work.stages.is_empty() {
            self.stage = self.work.steps;
            progress.staged.set(self.base + self.work.steps);
        }
        if self.work.reads.is_empty() {
            self.read = self.work.steps;
            progress.consumed.set(self.base + self.work.steps);
        }
        if !self.work.shares {
            self.copy = self.work.steps;
            progress.reduced.set(self.base + self.work.steps);
        }
        table.publish();
        Ok(())
    }

    /// Goes one step further, if that can be.
    fn step(&mut self, table: &Table) -> Result<Look> {
        let progress = &table.own().progress;
        let least = |word: fn(&Header) -> u64| {
            table.others().map(|(_, it)| word(it.header())).min().unwrap_or(u64::MAX)
        };
        let steps = self.work.steps;
        if self.copy < self.read && self.copy < steps {
            let reduced = least(|it| it.progress.reduced.get());
            if reduced > self.base + self.copy {
                self.copy_results(table, self.copy);
                self.copy += 1;
                progress.consumed.set(self.base + self.copy);
                table.publish();
                return Ok(Look::Moved);
            }
        }
        let consumed = least(|it| it.progress.consumed.get());
        let has_room = |step: u64| self.base + step < consumed + WINDOW;
        if self.read < steps
            && (!self.work.shares || has_room(self.read))
            && self.stage > self.read.min(steps - 1)
            && self.staged(table) > self.base + self.read
        {
            self.read_step(table, self.read);
            self.read += 1;
            let told = if self.work.shares { &progress.reduced } else { &progress.consumed };
            told.set(self.base + self.read);
            table.publish();
            return Ok(Look::Moved);
        }
        if self.stage < steps && has_room(self.stage) {
            self.stage_step(table, self.stage);
            self.stage += 1;
            progress.staged.set(self.base + self.stage);
            table.publish();
            return Ok(Look::Moved);
        }
        let is_done = self.stage == steps && self.read == steps && self.copy == steps;
        if !is_done || self.is_shown(table) && consumed < self.base + steps {
            return Ok(Look::Waits);
        }
        self.base += steps;
        // What was read of others' own memory is as it should be only if none of them got it back
        // meanwhile: who gives it back has said before that the group is broken, see `Table::fail`.
        fence(Ordering::Acquire);
        match table.failure() {
            Some(error) if self.is_direct() => Err(error.clone()),
            _ => Ok(Look::Over),
        }
    }

    /// How many steps all have staged that this rank reads from, over all calls.
    fn staged(&self, table: &Table) -> u64 {
        let staged = |it: &Region| {
            let is_staged = self.sources.get(it.rank) == Some(&Place::Staged);
            let peer = table.peers.get(it.rank).filter(|_| is_staged && it.rank != table.rank)?;
            Some(peer.header().progress.staged.get())
        };
        self.work.reads.iter().filter_map(staged).min().unwrap_or(u64::MAX)
    }

    /// Whether others read this rank's own memory.
    fn is_shown(&self, table: &Table) -> bool {
        let heap = |list: &[Place]| matches!(list.get(table.rank), Some(Place::Heap(_)));
        heap(&self.sources) || self.work.shares && heap(&self.targets)
    }

    /// Whether the own memory of any other rank may be read.
    fn is_direct(&self) -> bool {
        let heap = |it: &Place| matches!(it, Place::Heap(_));
        self.sources.iter().chain(&self.targets).any(heap)
    }

    /// The ranks that the call waits for.
    pub(crate) fn absent(&self, table: &Table) -> Vec<usize> {
        let behind = |word: fn(&Header) -> u64, than: u64| {
            let others = table.others().filter(move |(_, it)| word(it.header()) <= than);
            others.map(|(rank, _)| rank).collect::<Vec<_>>()
        };
        let arrived = |it: &Peer| self.call_of(it.header()).number.get() >= self.calls;
        let absent: Vec<usize> =
            table.others().filter(|(_, it)| !arrived(it)).map(|(rank, _)| rank).collect();
        if !self.begun || !absent.is_empty() {
            return absent;
        }
        if self.copy < self.read {
            return behind(|it| it.progress.reduced.get(), self.base + self.copy);
        }
        if self.read < self.work.steps && self.staged(table) <= self.base + self.read {
            let reads = |rank: usize| self.work.reads.iter().any(|it| it.rank == rank);
            let mut ranks = behind(|it| it.progress.staged.get(), self.base + self.read);
            ranks.retain(|it| reads(*it));
            return ranks;
        }
        let next = if self.stage < self.work.steps { self.stage } else { self.work.steps - 1 };
        let least = (self.base + next).saturating_sub(if next == self.stage { WINDOW } else { 0 });
        behind(|it| it.progress.consumed.get(), least)
    }

    /// The call in words.
    pub(crate) fn describe(&self) -> String {
        format!("{} (call {})", self.signature, self.calls)
    }
}

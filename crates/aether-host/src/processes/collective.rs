//! One collective call of one rank: it shows what it asks for, compares it with what the others show, and
//! then goes through the steps of the work.

use std::sync::atomic::{Ordering, fence};

use aether_collective::{OpName, Signature};
use aether_core::{DType, Error, ErrorKind, Result, Stores};
use smallvec::SmallVec;

use super::header::Header;
use super::member::Look;
use super::participant::Peer;
use super::pod::{self, Place};
use super::shape::{INLINE, WINDOW};
use super::table::Table;
use super::work::{Region, Work};
use crate::kernels::Kernel;
use crate::resource::HostRange;
use crate::trouble::differing;

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
    /// All have arrived and agree, and the work is planned.
    begun: bool,
    /// The steps of all calls before.
    base: u64,
    /// The next step to stage, to read (or reduce) and to copy the results of, from 0.
    stage: u64,
    read: u64,
    copy: u64,
}

/// A source that is not larger is part of the call's own line.
const TINY: usize = 8;

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

    fn copy_inline(&self, table: &Table, slot: usize, src: HostRange) -> Place {
        let from = src.address.as_ptr().cast_const();
        if src.bytes <= TINY {
            let mut bytes = [0u8; TINY];
            // SAFETY: the driver's contract: a source is valid for reads of its bytes, which are no
            // more than `TINY`; without bytes nothing is read.
            unsafe { std::ptr::copy_nonoverlapping(from, bytes.as_mut_ptr(), src.bytes) };
            table.own().calls[slot].tiny.set(u64::from_ne_bytes(bytes));
            return Place::Tiny;
        }
        let to = table.base().wrapping_add(table.shape.inline + slot * INLINE);
        // SAFETY: the source is valid for its bytes, which are no more than the place has; the place is
        // this rank's, and nobody reads it: all others are at the call before or behind it, and they
        // read the source of a call only until they end it.
        unsafe { std::ptr::copy_nonoverlapping(from, to, src.bytes) };
        Place::Inline
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
            self.read_all(table);
            return Ok(Look::Over);
        }
        self.step(table)
    }

    fn all_have_arrived(&self, table: &Table) -> bool {
        table.others().all(|(_, peer)| self.call_of(peer.header()).number.get() >= self.calls)
    }

    fn call_of<'h>(&self, header: &'h Header) -> &'h super::header::Call {
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

    /// Compares what all ask for. All compare the same words, and come to the same.
    fn compare(&self, table: &Table) -> Result<()> {
        let own = self.call_of(table.own());
        let words = |it: &super::header::Call| (it.what.peek(), it.count.peek(), it.digest.peek());
        let mine = words(own);
        if table.others().any(|(_, it)| words(self.call_of(it.header())) != mine) {
            let signature = |rank: usize| {
                let peer = table.peers.get(rank)?;
                let (what, count, digest) = words(self.call_of(peer.header()));
                pod::signature(what, count, digest)
            };
            let all: Vec<Signature> = (0..table.ranks).filter_map(signature).collect();
            let differ = differing(self.calls, &all, |ranks| table.names_of(ranks));
            return Err(differ.unwrap_or_else(|| {
                let reason = "a rank shows a call that is none";
                Error::new(ErrorKind::Backend, self.signature.operation.name(), reason)
            }));
        }
        if self.counts.is_empty() {
            return Ok(());
        }
        // Memory is laid out by the lists themselves, and equal digests prove nothing. Everybody
        // compares with the list of rank 0.
        let Some(first) = table.peers.first() else { return Ok(()) };
        let listed = self.listed(table, first);
        let others: Vec<usize> = (0..table.ranks)
            .filter(|rank| {
                table.peers.get(*rank).is_some_and(|it| self.listed(table, it) != listed)
            })
            .collect();
        if others.is_empty() {
            return Ok(());
        }
        let reason = format!(
            "the ranks disagree on call {}: the lists of counts of {} differ from that of {}",
            self.calls,
            table.names_of(&others),
            table.name_of(0)
        );
        let ranks = [vec![0], others].concat();
        Err(Error::new(ErrorKind::RankMismatch, self.signature.operation.name(), reason)
            .about_ranks(ranks))
    }

    /// The counts that the rank lists.
    fn listed<'p>(&self, table: &Table, peer: &'p Peer) -> &'p [u64] {
        let room = table.shape.ranks * table.shape.ranks;
        let slot = ((self.calls + 1) % 2) as usize;
        let listed = (self.call_of(peer.header()).listed.peek() as usize).min(room);
        let at = peer.map.base().wrapping_add(table.shape.counts + slot * room * 8);
        // SAFETY: the list lies within the segment, aligned (`Shape`), was written before the call's
        // number, which this rank has seen, and is not written again before this rank arrives at its
        // next call. Every bit pattern is a number.
        unsafe { std::slice::from_raw_parts(at.cast_const().cast(), listed) }
    }

    /// Refuses what would be read beyond the end of a heap: never, unless a rank shows nonsense.
    fn check_bounds(&self, table: &Table) -> Result<()> {
        let reads = self.work.reads.iter().map(|it| (it, self.sources.get(it.rank)));
        let results = self.work.reads.iter().filter(|_| self.work.shares);
        let results = results.map(|it| (it, self.targets.get(it.rank)));
        for (region, place) in reads.chain(results) {
            let Some(Place::Heap(offset)) = place else { continue };
            let heap = table.peers.get(region.rank).and_then(|it| it.heap.as_ref());
            let end = (*offset as usize).checked_add(region.from + region.bytes);
            if region.rank != table.rank
                && heap.zip(end).is_none_or(|(heap, end)| end > heap.bytes())
            {
                let reason = format!("{} shows memory that it has not", table.name_of(region.rank));
                let name = self.signature.operation.name();
                return Err(
                    Error::new(ErrorKind::OutOfBounds, name, reason).about_ranks([region.rank])
                );
            }
        }
        Ok(())
    }

    /// Where the step's piece of a region can be read.
    fn piece_of(&self, table: &Table, region: &Region, step: u64) -> *const u8 {
        let offset = step as usize * self.work.piece;
        let Some(peer) = table.peers.get(region.rank) else { return std::ptr::null() };
        if region.rank == table.rank {
            let src = self.src.map_or(std::ptr::null_mut(), |it| it.address.as_ptr());
            return src.cast_const().wrapping_add(region.from + offset);
        }
        let base = peer.map.base().cast_const();
        match self.sources.get(region.rank) {
            Some(Place::Heap(at)) => {
                let heap = peer.heap.as_ref().map_or(std::ptr::null_mut(), |it| it.base());
                heap.cast_const().wrapping_add(*at as usize + region.from + offset)
            }
            Some(Place::Staged) => base.wrapping_add(
                table.shape.staging
                    + self.slot(step) * table.shape.slot
                    + region.lane * self.work.piece,
            ),
            Some(Place::Tiny) => {
                let call = self.call_of(peer.header());
                (&raw const call.tiny).cast::<u8>().wrapping_add(region.from + offset)
            }
            _ => {
                let slot = ((self.calls + 1) % 2) as usize;
                base.wrapping_add(table.shape.inline + slot * INLINE + region.from + offset)
            }
        }
    }

    fn slot(&self, step: u64) -> usize {
        ((self.base + step) % WINDOW) as usize
    }

    /// How much of the region is in the step.
    fn length(&self, region: &Region, step: u64) -> usize {
        let start = step as usize * self.work.piece;
        region.bytes.saturating_sub(start).min(self.work.piece)
    }

    /// Reads what came with the calls.
    fn read_all(&self, table: &Table) {
        self.read_step(table, 0);
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

    /// Puts a step of the own source where others can read it.
    fn stage_step(&self, table: &Table, step: u64) {
        let Some(src) = self.src else { return };
        let at = table.shape.staging + self.slot(step) * table.shape.slot;
        for region in &self.work.stages {
            let bytes = self.length(region, step);
            let from = region.from + step as usize * self.work.piece;
            let from = src.address.as_ptr().cast_const().wrapping_add(from);
            let to = table.base().wrapping_add(at + region.lane * self.work.piece);
            // SAFETY: the region is a part of the source, which is valid for reads as long as the call;
            // the lane is a part of the step's place in this rank's staging area, which nobody reads:
            // all have consumed the step that was there before.
            unsafe { std::ptr::copy_nonoverlapping(from, to, bytes) };
        }
    }

    /// Reads a step of all sources: reduces it, or copies it.
    fn read_step(&self, table: &Table, step: u64) {
        let (Some(dst), Some(first)) = (self.dst, self.work.reads.first()) else { return };
        let dst = dst.address.as_ptr().wrapping_add(step as usize * self.work.piece);
        let Some(kernel) = self.kernel else {
            for region in &self.work.reads {
                let (from, to) = (self.piece_of(table, region, step), dst.wrapping_add(region.to));
                let bytes = self.length(region, step);
                if bytes > 0 && !std::ptr::eq(from, to) {
                    // SAFETY: the region's piece is readable (see `piece_of`) and was published; the
                    // destination is valid for writes, lies in this rank's memory and overlaps no
                    // source but in place, which is left out.
                    unsafe { std::ptr::copy_nonoverlapping(from, to, bytes) };
                }
            }
            return;
        };
        let bytes = self.length(first, step);
        let (start, bytes) = match self.work.shares {
            true => share(bytes, table.rank, table.ranks),
            false => (0, bytes),
        };
        if bytes == 0 {
            return;
        }
        let sources: SmallVec<[*const u8; 16]> = self
            .work
            .reads
            .iter()
            .map(|it| self.piece_of(table, it, step).wrapping_add(start))
            .collect();
        let mut targets: SmallVec<[*mut u8; 2]> = SmallVec::new();
        targets.push(dst.wrapping_add(first.to + start));
        if self.work.shares && !matches!(self.targets.get(table.rank), Some(Place::Heap(_))) {
            targets.push(table.base().wrapping_add(self.result_at(table, step)));
        }
        let count = bytes / self.signature.dtype.size();
        // SAFETY: the sources are readable and were published; the destination is this rank's part of
        // its own memory, and is a source only in place, exactly; the place of results is read by
        // nobody before `reduced` says so. All are aligned: buffers by the driver's contract, the
        // segment's parts to cache lines, and parts of pieces begin at whole lines.
        unsafe { kernel.reduce(&sources, &targets, count, table.ranks, Stores::Ordinary) };
    }

    fn result_at(&self, table: &Table, step: u64) -> usize {
        table.shape.results + self.slot(step) * table.shape.result
    }

    /// Copies what the others have reduced of a step.
    fn copy_results(&self, table: &Table, step: u64) {
        let (Some(dst), Some(first)) = (self.dst, self.work.reads.first()) else { return };
        let offset = step as usize * self.work.piece;
        for (rank, peer) in table.others() {
            let (start, bytes) = share(self.length(first, step), rank, table.ranks);
            if bytes == 0 {
                continue;
            }
            let from = match self.targets.get(rank) {
                Some(Place::Heap(at)) => {
                    let heap = peer.heap.as_ref().map_or(std::ptr::null_mut(), |it| it.base());
                    heap.wrapping_add(*at as usize + offset + start)
                }
                _ => peer.map.base().wrapping_add(self.result_at(table, step)),
            };
            let to = dst.address.as_ptr().wrapping_add(offset + start);
            // SAFETY: the rank has said by `reduced` that its part is there, in its result area or in
            // its heap, within which it lies (`check_bounds`); the destination is this rank's own.
            unsafe { std::ptr::copy_nonoverlapping(from.cast_const(), to, bytes) };
        }
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

/// Which part of a piece a rank reduces: where it begins, and how long it is. Whole cache lines.
fn share(bytes: usize, rank: usize, ranks: usize) -> (usize, usize) {
    let part = bytes.div_ceil(ranks).next_multiple_of(64);
    let start = (rank * part).min(bytes);
    (start, part.min(bytes - start))
}

//! Which work touches which bytes of one allocation.
//!
//! Records of writes don't overlap each other (but for [rows of which it would take too
//! many](Extent::without)): a later write trims what it covers off the earlier
//! records, reads and writes alike, because it is ordered behind them, so its end implies theirs. A
//! write that failed stays, and so does its error for every byte, until a later write covers it.
//!
//! An access whose end can't be proved stays for good: its memory is never freed, and whatever
//! conflicts with it gets its error.

use std::sync::Arc;

use crate::extent::{Extent, Pieces};
use crate::stream::{Completion, Status};
use crate::task::{Dependencies, Dependency};
use crate::{Result, Stream};

/// How many records an allocation has before all of them are looked through.
const MANY: usize = 64;

/// The record of one allocation.
#[derive(Debug, Default)]
pub(crate) struct Hazards {
    records: Vec<Record>,
}

#[derive(Debug, Clone)]
struct Record {
    extent: Extent,
    writes: bool,
    work: Completion,
}

impl Record {
    /// Two accesses conflict if they have a byte in common and one of them writes.
    fn conflicts(&self, extent: &Extent, writes: bool) -> bool {
        (writes || self.writes) && self.extent.overlaps(extent)
    }

    fn is_unproved(&self) -> bool {
        self.work.queue.is_unproved(self.work.ticket)
    }
}

impl Hazards {
    /// Collects what an access by work on `stream` has to be ordered behind.
    ///
    /// # Errors
    /// The access reads bytes whose last write failed, or conflicts with work that may never let go
    /// of the memory: that failure.
    pub(crate) fn collect(
        &mut self,
        extent: &Extent,
        writes: bool,
        stream: &Stream,
        into: &mut Dependencies,
    ) -> Result<()> {
        self.settle(extent, writes);
        for record in self.records.iter().filter(|it| it.conflicts(extent, writes)) {
            let reads = record.writes && !writes;
            let work = &record.work;
            match work.queue.status(work.ticket) {
                Status::Failed(error) if reads || record.is_unproved() => return Err(error),
                Status::Pending => {}
                Status::Done | Status::Failed(_) => {
                    work.acquire();
                    continue;
                }
            }
            // A stream is in order by itself; only a failure has to be looked at again.
            if Arc::ptr_eq(&work.queue, &stream.queue) && !reads {
                continue;
            }
            match into.iter_mut().find(|it| Arc::ptr_eq(&it.on.queue, &work.queue)) {
                Some(known) if !reads && !known.reads => {
                    known.on.ticket = known.on.ticket.max(work.ticket);
                }
                _ => into.push(Dependency::new(work.clone(), reads)),
            }
        }
        Ok(())
    }

    /// Records an access that was enqueued.
    pub(crate) fn record(&mut self, extent: Extent, writes: bool, work: &Completion) {
        if writes {
            self.trim(&extent);
        } else if let Some(same) = self.records.iter_mut().find(|it| {
            !it.writes && it.extent == extent && Arc::ptr_eq(&it.work.queue, &work.queue)
        }) {
            // The later of two reads on one stream ends last.
            same.work.ticket = same.work.ticket.max(work.ticket);
            return;
        }
        self.records.push(Record { extent, writes, work: work.clone() });
    }

    /// Some pending work that a host access conflicts with.
    ///
    /// # Errors
    /// Nothing is pending, and the last write of some byte failed, or the access conflicts with work
    /// that may never let go of the memory: that failure.
    pub(crate) fn pending(&mut self, extent: &Extent, writes: bool) -> Result<Option<Completion>> {
        self.settle(extent, writes);
        let mut failure = Ok(None);
        for record in self.records.iter().filter(|it| it.conflicts(extent, writes)) {
            match record.work.queue.status(record.work.ticket) {
                Status::Pending => return Ok(Some(record.work.clone())),
                Status::Failed(error) if record.writes || record.is_unproved() => {
                    failure = Err(error);
                }
                _ => record.work.acquire(),
            }
        }
        failure
    }

    /// Whether the last write of some byte is known to have failed.
    ///
    /// # Errors
    /// That failure.
    pub(crate) fn failure(&self, extent: &Extent) -> Result<()> {
        for record in self.records.iter().filter(|it| it.conflicts(extent, false)) {
            if let Status::Failed(error) = record.work.queue.status(record.work.ticket) {
                return Err(error);
            }
        }
        Ok(())
    }

    /// All work that is still on record, for whoever frees the memory.
    pub(crate) fn into_work(self) -> Vec<Completion> {
        self.records.into_iter().map(|it| it.work).collect()
    }

    /// Drops records that tell nothing any more: of the conflicting ones those that have ended, bar
    /// failed writes. The host goes on because it saw their end. The others are left for an access
    /// that conflicts with them, unless they have become many.
    ///
    /// True if no conflicting record is left.
    pub(crate) fn settle(&mut self, extent: &Extent, writes: bool) -> bool {
        let many = self.records.len() > MANY;
        self.records.retain(|it| {
            if !many && !it.conflicts(extent, writes) {
                return true;
            }
            match it.work.queue.status(it.work.ticket) {
                Status::Pending => true,
                Status::Failed(_) if it.writes => true,
                _ if it.is_unproved() => true,
                _ => {
                    it.work.acquire();
                    false
                }
            }
        });
        !self.records.iter().any(|it| it.conflicts(extent, writes))
    }

    /// Whether nothing is on record.
    pub(crate) fn is_empty(&self) -> bool {
        self.records.is_empty()
    }

    fn trim(&mut self, extent: &Extent) {
        // From the end, so that what comes to a freed place, or is appended, has been looked at.
        for at in (0..self.records.len()).rev() {
            let overlaps = |it: &&Record| it.extent.overlaps(extent) && !it.is_unproved();
            if self.records.get(at).filter(overlaps).is_none() {
                continue;
            }
            let old = self.records.swap_remove(at);
            let mut left = Pieces::new();
            old.extent.without(extent, &mut left);
            self.records.extend(left.into_iter().map(|extent| Record { extent, ..old.clone() }));
        }
    }
}

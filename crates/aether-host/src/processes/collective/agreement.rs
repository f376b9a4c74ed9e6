//! Whether all ranks ask for the same, and show what can be read.

use aether_collective::Signature;
use aether_core::{Error, ErrorKind, Result};

use super::super::header::Call;
use super::super::participant::Peer;
use super::super::pod::{self, Place};
use super::super::table::Table;
use super::Collective;
use crate::trouble::differing;

impl Collective {
    /// Compares what all ask for. All compare the same words, and come to the same.
    pub(super) fn compare(&self, table: &Table) -> Result<()> {
        let own = self.call_of(table.own());
        let words = |it: &Call| (it.what.peek(), it.count.peek(), it.digest.peek());
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

    /// Refuses what would be read beyond the end of a heap: never, unless a rank shows nonsense.
    pub(super) fn check_bounds(&self, table: &Table) -> Result<()> {
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
}

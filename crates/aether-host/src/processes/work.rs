//! What one rank does in a call: which parts of whose sources it reads, which of its own it stages, and in
//! how many steps.

use aether_collective::{OpName, Signature};

use super::pod::Place;
use super::shape::Shape;

/// A part of a source that goes to one place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Region {
    /// Whose source.
    pub(crate) rank: usize,
    /// Its place among the regions of that source that are staged side by side.
    pub(crate) lane: usize,
    /// Where it begins in the source, in bytes.
    pub(crate) from: usize,
    /// Where it goes in the destination, in bytes.
    pub(crate) to: usize,
    pub(crate) bytes: usize,
}

/// What one rank does in a call.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Work {
    /// What it reads. Of a reduction all go to one place, by rank.
    pub(crate) reads: Vec<Region>,
    /// What it stages of its own source.
    pub(crate) stages: Vec<Region>,
    /// Every rank reduces a part of each piece, and copies the others' results.
    pub(crate) shares: bool,
    /// How much of each region is one step, in bytes: a multiple of a cache line.
    pub(crate) piece: usize,
    /// How many steps the call has, the same for all ranks. None where all sources came with the calls.
    pub(crate) steps: u64,
}

/// The least that is a step, so that what it costs to wait is little beside it.
const LEAST_PIECE: usize = 32 << 10;
/// A step of what is reached directly: nobody waits for it, so it only bounds what a deadline waits for.
const DIRECT_PIECE: usize = 1 << 20;
/// A step of a shared reduction of what is reached directly: small enough to be copied from a cache.
const DIRECT_SHARED: usize = 512 << 10;
/// In so many steps at least what is large is done, so that some ranks stage while others read.
const STEPS: usize = 4;

impl Work {
    /// Plans the part of `rank`. `counts` are those of a vector call; `source` says where a rank's is.
    pub(crate) fn plan(
        &mut self,
        shape: &Shape,
        rank: usize,
        signature: &Signature,
        counts: &[u64],
        source: impl Fn(usize) -> Place,
    ) {
        let ranks = shape.ranks;
        self.reads.clear();
        self.stages.clear();
        let parts = Parts { ranks, signature, counts };
        let mut longest = 0;
        let (mut any_staged, mut any_direct) = (false, false);
        for from in 0..ranks {
            let place = source(from);
            for to in 0..ranks {
                let Some(region) = parts.region(from, to) else { continue };
                if to == rank {
                    self.reads.push(region);
                }
                longest = longest.max(region.bytes);
                if region.bytes == 0
                    || matches!(place, Place::Inline | Place::Tiny | Place::Nowhere)
                {
                    continue;
                }
                any_staged |= place == Place::Staged;
                any_direct |= place != Place::Staged;
                // The own part needs no stage, but where all of a source is one region.
                let staged = self.stages.last().is_some_and(|it| it.lane == region.lane);
                if from == rank && place == Place::Staged && to != rank && !staged {
                    self.stages.push(region);
                }
            }
        }
        self.shares = signature.operation == OpName::AllReduce && (any_staged || any_direct);
        self.piece = match (any_staged, any_direct) {
            (true, _) => {
                let most = shape.slot / parts.lanes() / 64 * 64;
                longest.div_ceil(STEPS).max(LEAST_PIECE).min(most.max(64))
            }
            (false, true) if self.shares => DIRECT_SHARED.min(shape.slot / 64 * 64),
            (false, true) => DIRECT_PIECE,
            (false, false) => longest.max(1),
        };
        self.piece = self.piece.next_multiple_of(64);
        self.steps = match any_staged || any_direct {
            true => longest.div_ceil(self.piece) as u64,
            false => 0,
        };
    }
}

/// From where to where a call moves memory.
struct Parts<'a> {
    ranks: usize,
    signature: &'a Signature,
    counts: &'a [u64],
}

impl Parts<'_> {
    /// How many regions of one source are staged side by side.
    fn lanes(&self) -> usize {
        match self.signature.operation {
            OpName::AllToAll
            | OpName::AllToAllV
            | OpName::ReduceScatter
            | OpName::ReduceScatterV
            | OpName::Scatter => self.ranks,
            _ => 1,
        }
    }

    /// What rank `to` reads of the source of rank `from`.
    fn region(&self, from: usize, to: usize) -> Option<Region> {
        let size = self.signature.dtype.size();
        let bytes = self.signature.count as usize * size;
        let root = self.signature.root.unwrap_or(0);
        let count = |at: usize| self.counts.get(at).map_or(0, |&it| it as usize * size);
        let before = |end: usize| (0..end).map(count).sum::<usize>();
        let region =
            |lane, start, to, bytes| Some(Region { rank: from, lane, from: start, to, bytes });
        match self.signature.operation {
            OpName::AllReduce => region(0, 0, 0, bytes),
            OpName::Reduce if to == root => region(0, 0, 0, bytes),
            OpName::Broadcast if from == root => region(0, 0, 0, bytes),
            OpName::AllGather => region(0, 0, from * bytes, bytes),
            OpName::AllGatherV => region(0, 0, before(from), count(from)),
            OpName::ReduceScatter => region(to, to * bytes, 0, bytes),
            OpName::ReduceScatterV => region(to, before(to), 0, count(to)),
            OpName::AllToAll => region(to, to * bytes, from * bytes, bytes),
            OpName::AllToAllV => {
                let row = from * self.ranks;
                let sent = (row..row + to).map(count).sum();
                let received = (0..from).map(|it| count(it * self.ranks + to)).sum();
                region(to, sent, received, count(row + to))
            }
            OpName::Gather if to == root => region(0, 0, from * bytes, bytes),
            OpName::Scatter if from == root => region(to, to * bytes, 0, bytes),
            _ => None,
        }
    }
}

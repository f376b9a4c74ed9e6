//! Where everything lies in a rank's segment. Every rank computes it from the number of ranks alone.

use super::header::{Call, Header, Lane};

/// The offsets and sizes of the parts of a segment, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Shape {
    pub(crate) ranks: usize,
    /// The ends of messages: to each rank, then from each rank.
    pub(crate) lanes: usize,
    /// The lists of counts of two calls, each with room for a square of the ranks.
    pub(crate) counts: usize,
    /// The sources of two calls that are copied on arrival.
    pub(crate) inline: usize,
    /// The pieces of sources that are staged.
    pub(crate) staging: usize,
    /// The size of the place of one step.
    pub(crate) slot: usize,
    /// The results of steps, for others to copy.
    pub(crate) results: usize,
    /// The size of the result of one step.
    pub(crate) result: usize,
    /// The pieces of messages to each rank.
    pub(crate) mail: usize,
    /// The size of the ring of one lane.
    pub(crate) ring: usize,
    /// All of it.
    pub(crate) bytes: usize,
}

/// The most ranks of a group that spreads over processes.
pub(crate) const MOST_RANKS: usize = 128;
/// A source that is not larger is copied on arrival.
pub(crate) const INLINE: usize = 8 << 10;
/// How many steps a rank can be ahead of the slowest.
pub(crate) const WINDOW: u64 = 4;
/// The most memory of a group through which others' memory goes, in bytes.
const BUDGET: usize = 64 << 20;
/// The most of it that a rank needs.
const SHARE: usize = 8 << 20;
/// The most that a step or the ring of a lane needs.
const MOST_SLOT: usize = 512 << 10;
const MOST_RING: usize = 256 << 10;
const PAGE: usize = 4 << 10;

impl Shape {
    /// The shape of the segments of so many ranks.
    pub(crate) fn new(ranks: usize) -> Self {
        let ranks = ranks.max(1);
        let share = (BUDGET / ranks).min(SHARE);
        let window = WINDOW as usize;
        // A third for messages, a third each for sources and results, which are smaller.
        let ring = (share / 3 / ranks).min(MOST_RING) / 64 * 64;
        let slot = (share / 3 / window).min(MOST_SLOT) / 64 * 64;
        let result = slot.div_ceil(ranks).next_multiple_of(64) + 64;
        let lanes = size_of::<Header>().next_multiple_of(64);
        let counts = lanes + 2 * ranks * size_of::<Lane>();
        let inline = counts + 2 * ranks * ranks * 8;
        let inline = inline.next_multiple_of(64);
        let staging = (inline + 2 * INLINE).next_multiple_of(PAGE);
        let results = staging + window * slot;
        let mail = results + window * result;
        let bytes = (mail + ranks * ring).next_multiple_of(PAGE);
        Self { ranks, lanes, counts, inline, staging, slot, results, result, mail, ring, bytes }
    }
}

const _: () = assert!(align_of::<Call>() == 64 && align_of::<Lane>() == 64);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_groups_segments_stay_within_the_budget_and_hold_what_they_must() {
        for ranks in 1..=MOST_RANKS {
            let shape = Shape::new(ranks);
            assert!((shape.bytes - shape.staging) * ranks <= BUDGET + ranks * PAGE, "{shape:?}");
            assert!(shape.slot >= 64 * ranks, "a line of a step for each rank: {shape:?}");
            assert!(shape.ring >= 64, "{shape:?}");
            assert!(shape.result * ranks >= shape.slot, "{shape:?}");
            assert!([shape.lanes, shape.counts, shape.inline].iter().all(|it| it % 64 == 0));
        }
    }
}

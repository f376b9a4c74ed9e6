//! Who last touched which bytes of one address space.
//!
//! The space is cut into segments that don't overlap. A segment knows the last write of its bytes and,
//! for each stream, the last read since. That is enough: a later write was ordered behind everything
//! that it replaces, or has been reported.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use super::clock::Clock;
use super::report::Access;

/// An access by work on a stream: the slot of the stream, the number of the issue, and what it was.
#[derive(Clone, Debug)]
pub(super) struct Mark {
    pub(super) slot: usize,
    pub(super) issue: u64,
    pub(super) access: Arc<Access>,
}

impl Mark {
    fn is_known(&self, to: &Clock) -> bool {
        to.at(self.slot) >= self.issue
    }

    fn same(&self, other: &Self) -> bool {
        (self.slot, self.issue) == (other.slot, other.issue)
    }
}

#[derive(Clone, Debug)]
struct Segment {
    end: usize,
    write: Option<Mark>,
    reads: Vec<Mark>,
}

impl Segment {
    fn is_empty(&self) -> bool {
        self.write.is_none() && self.reads.is_empty()
    }

    fn same(&self, other: &Self) -> bool {
        let both = |one: &Mark, two: &Mark| one.same(two);
        let writes = match (&self.write, &other.write) {
            (None, None) => true,
            (Some(one), Some(two)) => both(one, two),
            _ => false,
        };
        writes
            && self.reads.len() == other.reads.len()
            && self.reads.iter().zip(&other.reads).all(|(one, two)| both(one, two))
    }

    fn forget_known(&mut self, to: &Clock) {
        self.write.take_if(|it| it.is_known(to));
        self.reads.retain(|it| !it.is_known(to));
    }
}

/// The segments of one address space.
#[derive(Debug)]
pub(super) struct Shadow {
    segments: BTreeMap<usize, Segment>,
    /// At how many segments all of them are gone through.
    sweep_at: usize,
}

/// The least number of segments at which all of them are gone through.
const FEW: usize = 256;

impl Default for Shadow {
    fn default() -> Self {
        Self { segments: BTreeMap::new(), sweep_at: FEW }
    }
}

impl Shadow {
    /// The accesses that one of this range conflicts with and that `knows` does not know to have
    /// ended. Each is given once.
    pub(super) fn conflicts(&self, range: &Range<usize>, writes: bool, knows: &Clock) -> Vec<Mark> {
        let mut found: Vec<Mark> = Vec::new();
        for (_, segment) in self.overlapping(range) {
            let reads = segment.reads.iter().filter(|_| writes);
            for mark in segment.write.iter().chain(reads) {
                if !mark.is_known(knows) && !found.iter().any(|it| it.same(mark)) {
                    found.push(mark.clone());
                }
            }
        }
        found
    }

    /// Enters an access. What the host knows to have ended is forgotten on the way: whatever is
    /// issued later is ordered behind it.
    pub(super) fn enter(&mut self, range: Range<usize>, writes: bool, mark: &Mark, host: &Clock) {
        if range.is_empty() {
            return;
        }
        if writes {
            self.clear(&range);
            let written = Segment { end: range.end, write: Some(mark.clone()), reads: Vec::new() };
            self.segments.insert(range.start, written);
        } else {
            self.enter_read(&range, mark);
        }
        self.tidy(&range, host);
        if self.segments.len() > self.sweep_at {
            self.tidy(&(0..usize::MAX), host);
            self.sweep_at = FEW.max(2 * self.segments.len());
        }
    }

    /// Forgets everything about the range.
    pub(super) fn clear(&mut self, range: &Range<usize>) {
        self.cut(range.start);
        self.cut(range.end);
        let inside: Vec<usize> = self.segments.range(range.clone()).map(|it| *it.0).collect();
        for start in inside {
            self.segments.remove(&start);
        }
    }

    /// How many segments there are.
    pub(super) fn len(&self) -> usize {
        self.segments.len()
    }

    fn enter_read(&mut self, range: &Range<usize>, mark: &Mark) {
        self.cut(range.start);
        self.cut(range.end);
        let mut gaps = Vec::new();
        let mut at = range.start;
        for (&start, segment) in self.segments.range_mut(range.clone()) {
            if at < start {
                gaps.push(at..start);
            }
            at = segment.end;
            match segment.reads.iter_mut().find(|it| it.slot == mark.slot) {
                // The later of two reads on one stream ends last.
                Some(earlier) => *earlier = mark.clone(),
                None => segment.reads.push(mark.clone()),
            }
        }
        if at < range.end {
            gaps.push(at..range.end);
        }
        for gap in gaps {
            let read = Segment { end: gap.end, write: None, reads: vec![mark.clone()] };
            self.segments.insert(gap.start, read);
        }
    }

    /// Sees to it that no segment reaches over the address.
    fn cut(&mut self, at: usize) {
        let Some((_, segment)) = self.segments.range_mut(..at).next_back() else { return };
        if segment.end <= at {
            return;
        }
        let rest = segment.clone();
        segment.end = at;
        self.segments.insert(at, rest);
    }

    /// Forgets what the host knows, drops segments that are empty then, and joins neighbours that
    /// say the same, in the range and at its edges.
    fn tidy(&mut self, range: &Range<usize>, host: &Clock) {
        let before = self.segments.range(..range.start).next_back().map_or(range.start, |it| *it.0);
        let starts: Vec<usize> =
            self.segments.range(before..=range.end).map(|(&start, _)| start).collect();
        let mut last: Option<(usize, Segment)> = None;
        for start in starts {
            let Some(mut segment) = self.segments.remove(&start) else { continue };
            segment.forget_known(host);
            if segment.is_empty() {
                continue;
            }
            match &mut last {
                Some((_, left)) if left.end == start && left.same(&segment) => {
                    left.end = segment.end;
                }
                _ => {
                    if let Some((at, left)) = last.replace((start, segment)) {
                        self.segments.insert(at, left);
                    }
                }
            }
        }
        if let Some((at, left)) = last {
            self.segments.insert(at, left);
        }
    }

    fn overlapping(&self, range: &Range<usize>) -> impl Iterator<Item = (&usize, &Segment)> {
        let first = self.segments.range(..range.start).next_back();
        let first = first.filter(|(_, it)| it.end > range.start && !range.is_empty());
        first.into_iter().chain(self.segments.range(range.clone()))
    }
}

#[cfg(test)]
mod tests {
    use aether_core::{Address, DeviceId, DeviceKind, Region};

    use super::super::report::{By, What};
    use super::*;

    fn mark(slot: usize, issue: u64) -> Mark {
        let device = DeviceId::new(DeviceKind::CPU, 0);
        let region = Region { device, address: Address::from_raw(0), bytes: 0 };
        let access = Access { what: What::Work, by: By::Host, region, writes: false };
        Mark { slot, issue, access: Arc::new(access) }
    }

    fn found(shadow: &Shadow, range: Range<usize>, writes: bool) -> Vec<(usize, u64)> {
        let found = shadow.conflicts(&range, writes, &Clock::default());
        found.iter().map(|it| (it.slot, it.issue)).collect()
    }

    #[test]
    fn a_write_replaces_what_it_covers_and_leaves_the_rest() {
        let mut shadow = Shadow::default();
        shadow.enter(0..100, true, &mark(0, 1), &Clock::default());
        shadow.enter(40..60, true, &mark(1, 1), &Clock::default());
        assert_eq!(found(&shadow, 0..40, false), [(0, 1)]);
        assert_eq!(found(&shadow, 40..60, false), [(1, 1)]);
        assert_eq!(found(&shadow, 60..100, false), [(0, 1)]);
        assert_eq!(found(&shadow, 39..41, false), [(0, 1), (1, 1)]);
        assert_eq!(found(&shadow, 100..200, true), []);
    }

    #[test]
    fn every_reader_is_remembered_and_readers_do_not_conflict() {
        let mut shadow = Shadow::default();
        shadow.enter(0..50, false, &mark(0, 1), &Clock::default());
        shadow.enter(25..75, false, &mark(1, 4), &Clock::default());
        assert_eq!(found(&shadow, 0..100, false), []);
        assert_eq!(found(&shadow, 30..31, true), [(0, 1), (1, 4)]);
        assert_eq!(found(&shadow, 0..25, true), [(0, 1)]);
        assert_eq!(found(&shadow, 50..100, true), [(1, 4)]);
    }

    #[test]
    fn a_later_read_of_the_same_stream_stands_for_the_earlier_one() {
        let mut shadow = Shadow::default();
        for issue in 1..1000 {
            shadow.enter(0..50, false, &mark(0, issue), &Clock::default());
        }
        assert_eq!(found(&shadow, 0..50, true), [(0, 999)]);
        assert_eq!(shadow.len(), 1);
    }

    #[test]
    fn what_the_host_knows_is_forgotten_so_that_long_runs_stay_small() {
        let mut shadow = Shadow::default();
        let mut host = Clock::default();
        for issue in 1..100_000_u64 {
            let start = (issue as usize * 7919) % 1_000_000;
            shadow.enter(start..start + 3, true, &mark(0, issue), &host);
            host.advance(0, issue.saturating_sub(10));
        }
        assert!(shadow.len() <= 2 * FEW, "{} segments", shadow.len());
    }

    #[test]
    fn neighbours_that_say_the_same_become_one() {
        let mut shadow = Shadow::default();
        shadow.enter(0..10, true, &mark(0, 1), &Clock::default());
        shadow.enter(10..20, true, &mark(0, 1), &Clock::default());
        shadow.enter(5..15, false, &mark(1, 1), &Clock::default());
        assert_eq!(shadow.len(), 3);
        let mut host = Clock::default();
        host.advance(1, 1);
        shadow.enter(30..31, false, &mark(2, 1), &host);
        shadow.tidy(&(0..20), &host);
        assert_eq!(shadow.len(), 2);
    }
}

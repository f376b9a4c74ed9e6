//! Ranges of a space that are free: taken, and given back.

use std::collections::BTreeMap;

/// The free ranges of a space, by where they begin.
#[derive(Debug)]
pub(crate) struct Ranges(BTreeMap<usize, usize>);

impl Ranges {
    /// A space of this size, all of it free.
    pub(crate) fn new(size: usize) -> Self {
        Self(BTreeMap::from([(0, size)]))
    }

    /// Takes `size` bytes, never zero, from the lowest free range that has them at this alignment, a
    /// power of two.
    pub(crate) fn take(&mut self, size: usize, alignment: usize) -> Option<usize> {
        let fits = |(&start, &length): (&usize, &usize)| {
            let at = start.checked_next_multiple_of(alignment)?;
            let end = at.checked_add(size)?;
            (end <= start + length).then_some((start, length, at))
        };
        let (start, length, at) = self.0.iter().find_map(fits)?;
        self.0.remove(&start);
        if at > start {
            self.0.insert(start, at - start);
        }
        if at + size < start + length {
            self.0.insert(at + size, start + length - at - size);
        }
        Some(at)
    }

    /// Gives back what was taken.
    pub(crate) fn give(&mut self, at: usize, size: usize) {
        let (mut start, mut length) = (at, size);
        if let Some((&before, &its)) = self.0.range(..at).next_back()
            && before + its == at
        {
            self.0.remove(&before);
            (start, length) = (before, its + size);
        }
        if let Some(its) = self.0.remove(&(at + size)) {
            length += its;
        }
        self.0.insert(start, length);
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    #[test]
    fn what_is_taken_is_aligned_apart_and_comes_back_whole() {
        let mut ranges = Ranges::new(1 << 16);
        let sizes = [1, 256, 300, 5000, 64, 4096, 77];
        let mut taken: Vec<(usize, usize)> = Vec::new();
        for round in 0..200usize {
            let (size, alignment) = (sizes[round % 7], 64 << (round % 5));
            if let Some(at) = ranges.take(size, alignment) {
                assert_eq!(at % alignment, 0);
                assert!(taken.iter().all(|&(other, its)| at + size <= other || other + its <= at));
                taken.push((at, size));
            }
            if round % 3 == 0 && !taken.is_empty() {
                let (at, size) = taken.swap_remove(round % taken.len());
                ranges.give(at, size);
            }
        }
        for (at, size) in taken {
            ranges.give(at, size);
        }
        assert_eq!(ranges.0, BTreeMap::from([(0, 1 << 16)]));
    }

    #[test]
    fn a_space_that_is_full_gives_nothing_until_something_comes_back() {
        let mut ranges = Ranges::new(1024);
        assert_eq!(ranges.take(1025, 1), None);
        assert_eq!(ranges.take(1024, 256), Some(0));
        assert_eq!(ranges.take(1, 1), None);
        ranges.give(0, 1024);
        assert_eq!(ranges.take(usize::MAX, 256), None);
        assert_eq!(ranges.take(10, 256), Some(0));
    }
}

//! Which bytes of an allocation an access touches: one range, or rows at a fixed distance.

use std::ops::Range;

use smallvec::SmallVec;

/// Rows of equal length at a fixed distance; a range is one row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Extent {
    /// Where the first row begins and the last one ends, in bytes.
    start: usize,
    end: usize,
    /// The length of a row.
    row: usize,
    /// From the start of a row to the start of the next: more than a row, or there is one row.
    pitch: usize,
}

/// What is left of an extent that lost bytes.
pub(crate) type Pieces = SmallVec<[Extent; 4]>;

/// Of how many rows an extent is taken apart into them, where that takes every row for itself.
const FEW_ROWS: usize = 64;

impl From<Range<usize>> for Extent {
    fn from(Range { start, end }: Range<usize>) -> Self {
        let row = end.saturating_sub(start);
        Self { start, end: start + row, row, pitch: row }
    }
}

impl Extent {
    /// So many rows, the first of which begins at `start`. A pitch is no shorter than a row.
    pub(crate) fn rows(start: usize, count: usize, row: usize, pitch: usize) -> Self {
        match count {
            0 | 1 => Self::from(start..start + count * row),
            _ if row == 0 || row == pitch => Self::from(start..start + count * row),
            _ => Self { start, end: start + (count - 1) * pitch + row, row, pitch },
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.row == 0
    }

    fn is_range(&self) -> bool {
        self.row == self.end - self.start
    }

    fn count(&self) -> usize {
        if self.is_range() { 1 } else { (self.end - self.start - self.row) / self.pitch + 1 }
    }

    /// Whether both have a byte in common. It costs a few divisions, but for rows at two different
    /// distances: those of the extent that has fewer are looked at one by one.
    pub(crate) fn overlaps(&self, other: &Self) -> bool {
        if self.start >= other.end || other.start >= self.end {
            return false;
        }
        match (self.is_range(), other.is_range()) {
            (true, true) => !self.is_empty() && !other.is_empty(),
            (true, false) => !other.met_by(&(self.start..self.end)).is_empty(),
            (false, true) => !self.met_by(&(other.start..other.end)).is_empty(),
            (false, false) if self.pitch == other.pitch => {
                self.alignments(other).into_iter().flatten().next().is_some()
            }
            (false, false) => {
                let (few, many) =
                    if self.count() <= other.count() { (self, other) } else { (other, self) };
                (0..few.count()).any(|at| !many.met_by(&few.row_at(at)).is_empty())
            }
        }
    }

    /// Appends what is left of it without the bytes of `cut`.
    ///
    /// Where both have rows, at two different distances, and this has many, it is left whole: who asks
    /// for its bytes then learns of work that is over, and misses none.
    pub(crate) fn without(&self, cut: &Self, into: &mut Pieces) {
        if !self.overlaps(cut) {
            return into.extend((!self.is_empty()).then_some(*self));
        }
        match (self.is_range(), cut.is_range()) {
            (_, true) => {
                self.within(&(self.start..cut.start), into);
                self.within(&(cut.end..self.end), into);
            }
            (true, false) => {
                self.within(&(self.start..cut.start), into);
                let between = cut.pitch - cut.row;
                Self::rows(cut.start + cut.row, cut.count() - 1, between, cut.pitch)
                    .within(&(self.start..self.end), into);
                self.within(&(cut.end..self.end), into);
            }
            (false, false) if self.pitch == cut.pitch => {
                if let Some((rows, columns)) = self.alignments(cut).into_iter().flatten().next() {
                    // A row of one may meet two of the other: each piece is looked at again.
                    for piece in self.without_columns(&rows, &columns) {
                        piece.without(cut, into);
                    }
                }
            }
            (false, false) if self.count() <= FEW_ROWS => {
                for at in 0..self.count() {
                    Self::from(self.row_at(at)).without(cut, into);
                }
            }
            (false, false) => into.push(*self),
        }
    }

    fn row_at(&self, at: usize) -> Range<usize> {
        let start = self.start + at * self.pitch;
        start..start + self.row
    }

    /// Which rows have a byte in the range.
    fn met_by(&self, range: &Range<usize>) -> Range<usize> {
        if self.is_empty() || range.start >= range.end {
            return 0..0;
        }
        let first = match range.start.checked_sub(self.start + self.row) {
            Some(past) => past / self.pitch + 1,
            None => 0,
        };
        let before = match range.end.checked_sub(self.start + 1) {
            Some(past) => (past / self.pitch + 1).min(self.count()),
            None => 0,
        };
        first..before.max(first)
    }

    /// Appends the part of it that lies within the range.
    fn within(&self, range: &Range<usize>, into: &mut Pieces) {
        let mut rows = self.met_by(range);
        let mut clip = |row: usize| {
            let whole = self.row_at(row);
            let part = whole.start.max(range.start)..whole.end.min(range.end);
            let is_part = part != whole;
            if is_part {
                into.push(part.into());
            }
            is_part
        };
        if !rows.is_empty() && clip(rows.start) {
            rows.start += 1;
        }
        if !rows.is_empty() && clip(rows.end - 1) {
            rows.end -= 1;
        }
        if !rows.is_empty() {
            let start = self.start + rows.start * self.pitch;
            into.push(Self::rows(start, rows.len(), self.row, self.pitch));
        }
    }

    /// Where rows of `other`, which have the same distance, meet rows of this: which rows of this, and
    /// which bytes of each. A row is no longer than the distance, so it meets two at most.
    fn alignments(&self, other: &Self) -> [Option<(Range<usize>, Range<usize>)>; 2] {
        let (pitch, count, others) = (self.pitch, self.count(), other.count());
        let met = |first: usize, others: usize, columns: Range<usize>| {
            let rows = first..first.saturating_add(others).min(count);
            let columns = columns.start..columns.end.min(self.row);
            (!rows.is_empty() && !columns.is_empty()).then_some((rows, columns))
        };
        match other.start.checked_sub(self.start) {
            Some(ahead) => {
                let (first, at) = (ahead / pitch, ahead % pitch);
                // What is longer than the rest of the distance goes on in the next row.
                let carried = (at + other.row).saturating_sub(pitch);
                [met(first, others, at..at + other.row), met(first + 1, others, 0..carried)]
            }
            None => {
                let behind = self.start - other.start;
                let (skipped, at) = (behind / pitch, behind % pitch);
                let left = others.saturating_sub(skipped);
                let next = pitch - at;
                [
                    met(0, left, 0..other.row.saturating_sub(at)),
                    met(0, left.saturating_sub(1), next..next + other.row),
                ]
            }
        }
    }

    /// What is left without some bytes of some rows.
    fn without_columns(&self, rows: &Range<usize>, columns: &Range<usize>) -> Pieces {
        let part = |rows: Range<usize>, columns: Range<usize>| {
            let start = self.start + rows.start * self.pitch + columns.start;
            Self::rows(start, rows.len(), columns.len(), self.pitch)
        };
        let parts = [
            part(0..rows.start, 0..self.row),
            part(rows.clone(), 0..columns.start),
            part(rows.clone(), columns.end..self.row),
            part(rows.end..self.count(), 0..self.row),
        ];
        parts.into_iter().filter(|it| !it.is_empty()).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn bytes(extent: &Extent) -> BTreeSet<usize> {
        (0..extent.count()).flat_map(|row| extent.row_at(row)).collect()
    }

    /// Extents of all shapes that fit into a few bytes.
    fn all() -> Vec<Extent> {
        let mut all = vec![Extent::from(3..3)];
        for start in 0..11 {
            for pitch in 1..6 {
                for row in 1..=pitch {
                    all.extend((1..5).map(|count| Extent::rows(start, count, row, pitch)));
                }
            }
        }
        all
    }

    #[test]
    #[cfg_attr(miri, ignore = "many pairs, and safe arithmetic alone")]
    fn extents_overlap_exactly_if_they_have_a_byte_in_common() {
        let all: Vec<_> = all().into_iter().map(|it| (it, bytes(&it))).collect();
        for (one, of_one) in &all {
            for (two, of_two) in &all {
                assert_eq!(one.overlaps(two), !of_one.is_disjoint(of_two), "{one:?} {two:?}");
            }
        }
    }

    #[test]
    #[cfg_attr(miri, ignore = "many pairs, and safe arithmetic alone")]
    fn what_is_left_are_the_other_bytes_each_once() {
        let all: Vec<_> = all().into_iter().map(|it| (it, bytes(&it))).collect();
        for (one, of_one) in &all {
            for (cut, of_cut) in &all {
                let mut pieces = Pieces::new();
                one.without(cut, &mut pieces);
                let mut left: Vec<_> = pieces.iter().flat_map(bytes).collect();
                left.sort_unstable();
                let expected: Vec<_> = of_one.difference(of_cut).copied().collect();
                assert_eq!(left, expected, "{one:?} without {cut:?}");
                assert!(pieces.iter().all(|it| !it.is_empty()));
            }
        }
    }

    #[test]
    fn columns_of_a_matrix_leave_few_pieces_however_many_rows_it_has() {
        let matrix = Extent::from(0..1_000_000);
        let mut left = Pieces::new();
        matrix.without(&Extent::rows(20, 10_000, 30, 100), &mut left);
        let mut rest = Pieces::new();
        left.iter().for_each(|it| it.without(&Extent::rows(50, 10_000, 50, 100), &mut rest));
        assert!(rest.len() <= 4, "{rest:?}");
        assert_eq!(rest.iter().map(|it| it.count() * it.row).sum::<usize>(), 200_000);
    }

    #[test]
    fn many_rows_that_lose_bytes_at_another_distance_stay_whole() {
        let many = Extent::rows(0, FEW_ROWS + 1, 1, 3);
        let mut left = Pieces::new();
        many.without(&Extent::rows(0, 2, 1, 2), &mut left);
        assert_eq!(left.as_slice(), [many]);
    }
}

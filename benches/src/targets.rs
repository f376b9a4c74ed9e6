//! What is aimed at: the one table of it, and whether a row holds to it.

use crate::aether::{Set, Threads};
use crate::cell::Op;
use crate::peers::{Buffers, Library};
use crate::results::{Row, Series};
use crate::statistics::median;

const KIB: usize = 1 << 10;
const MIB: usize = 1 << 20;

/// Every target of the collectives. A row has to hold to each that it falls under.
#[rustfmt::skip]
pub static TARGETS: &[Target] = &[
    Target { ranks: &[2], ..Target::threads(16 * MIB, usize::MAX, Bound::times(1.15, Against::Limit)) },
    Target { ranks: &[4], ..Target::threads(16 * MIB, usize::MAX, Bound::times(1.2, Against::Limit)) },
    Target { ranks: &[8], ..Target::threads(16 * MIB, usize::MAX, Bound::times(1.3, Against::Limit)) },
    Target { ranks: &[2], ..Target::threads(512 * KIB, 8 * MIB, Bound::times(1.4, Against::Limit)) },
    Target { ranks: &[4], ..Target::threads(512 * KIB, 8 * MIB, Bound::times(1.5, Against::Limit)) },
    Target { ranks: &[2, 4], ..Target::threads(512 * KIB, 8 * MIB, Bound::times(1.1, Against::EachPeer)) },
    Target { ranks: &[2], ..Target::threads(KIB + 1, 512 * KIB - 1, Bound { plus: 0.5, ..Bound::times(1.4, Against::Limit) }) },
    Target { ranks: &[4], ..Target::threads(KIB + 1, 512 * KIB - 1, Bound { plus: 2.0, ..Bound::times(1.5, Against::Limit) }) },
    Target { ranks: &[2, 4], ..Target::threads(KIB + 1, 512 * KIB - 1, Bound::times(1.1, Against::EachPeer)) },
    Target { ranks: &[2], ..Target::threads(0, KIB, Bound { floor: 0.25, ..Bound::times(1.0, OPEN_MPI) }) },
    Target { ranks: &[4], ..Target::threads(0, KIB, Bound { floor: 1.5, ..Bound::times(1.0, OPEN_MPI) }) },
    Target { ranks: &[4], op: Some(Op::AllReduce), ..Target::threads(0, KIB, Bound::times(0.6, OPEN_MPI)) },
    Target { who: HEAP, ranks: &[2], ..Target::threads(512 * KIB, usize::MAX, Bound::times(1.35, THREADS)) },
    Target { who: HEAP, ranks: &[4], ..Target::threads(512 * KIB, usize::MAX, Bound::times(1.6, THREADS)) },
    Target { who: ORDINARY, ranks: &[2, 4], ..Target::threads(0, usize::MAX, Bound::times(1.0, OPEN_MPI)) },
    // No slower than threads, but for the noise of a median.
    Target { who: Set::NAME, ..Target::threads(0, usize::MAX, Bound::times(1.05, THREADS)) },
];

const HEAP: &str = Buffers::Heap.name();
const ORDINARY: &str = Buffers::Ordinary.name();
const OPEN_MPI: Against = Against::Series(Library::OpenMpi.name());
const THREADS: Against = Against::Series(Threads::NAME);

/// What a contender's time may be, in some of the cells.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Target {
    /// The contender.
    pub who: &'static str,
    /// The numbers of ranks; any if there is none.
    pub ranks: &'static [usize],
    /// The operation; any if there is none.
    pub op: Option<Op>,
    /// The sizes, first and last.
    pub bytes: (usize, usize),
    /// The most.
    pub bound: Bound,
}

/// At most `factor` times the other's time plus so much, or `floor` where that is more.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Bound {
    /// Whose time.
    pub against: Against,
    /// How many times.
    pub factor: f64,
    /// Microseconds.
    pub plus: f64,
    /// Microseconds.
    pub floor: f64,
}

/// Whose time a bound is made of.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Against {
    /// The better kind of stores.
    Limit,
    /// The contender of this name.
    Series(&'static str),
    /// Each other library that took the cell.
    EachPeer,
}

/// How a row stands to one target.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Verdict {
    /// The target.
    pub target: &'static Target,
    /// Whose time it was compared with.
    pub against: &'static str,
    /// The median over the turns of the time in terms of what is allowed.
    pub used: f64,
    /// The median over the turns of the time in terms of the other's.
    pub ratio: f64,
}

impl Target {
    const fn threads(from: usize, to: usize, bound: Bound) -> Self {
        Self { who: Threads::NAME, ranks: &[], op: None, bytes: (from, to), bound }
    }

    /// Whether the row is one of its cells.
    pub fn covers(&self, row: &Row) -> bool {
        let cell = &row.cell;
        (self.ranks.is_empty() || self.ranks.contains(&cell.ranks))
            && self.op.is_none_or(|op| op == cell.op)
            && (self.bytes.0..=self.bytes.1).contains(&cell.bytes)
    }
}

impl Bound {
    const fn times(factor: f64, against: Against) -> Self {
        Self { against, factor, plus: 0.0, floor: 0.0 }
    }

    /// What is allowed where the other took so long, in microseconds.
    pub fn allowed(&self, other: f64) -> f64 {
        (self.factor * other + self.plus).max(self.floor)
    }

    /// The most in words, with the other's name.
    pub fn in_words(&self, other: &str) -> String {
        let mut words = match self.factor {
            1.0 => format!("{other}'s time"),
            factor => format!("{factor} of {other}"),
        };
        if self.plus > 0.0 {
            words += &format!(" plus {} µs", self.plus);
        }
        if self.floor > 0.0 {
            words += &format!(", or {} µs where that is more", self.floor);
        }
        words
    }
}

impl Against {
    /// In words, where it isn't known which one.
    pub fn in_words(self) -> &'static str {
        match self {
            Self::Limit => "the limit",
            Self::Series(name) => name,
            Self::EachPeer => "any peer",
        }
    }
}

impl Verdict {
    /// Whether the target is met.
    pub fn holds(&self) -> bool {
        self.used <= 1.0
    }
}

/// How the row stands to every target that covers it and whose contenders took it.
pub fn verdicts(row: &Row) -> Vec<Verdict> {
    TARGETS
        .iter()
        .filter(|target| target.covers(row))
        .flat_map(|target| judge(target, row))
        .collect()
}

fn judge(target: &'static Target, row: &Row) -> Vec<Verdict> {
    let Some(own) = row.of(target.who) else { return Vec::new() };
    let others: Vec<(&'static str, Option<&Series>)> = match target.bound.against {
        Against::Limit => vec![(Against::Limit.in_words(), row.limit())],
        Against::Series(name) => vec![(name, row.of(name))],
        Against::EachPeer => Library::ALL.iter().map(|it| (it.name(), row.of(it.name()))).collect(),
    };
    let verdict = |(against, other): (&'static str, Option<&Series>)| {
        let other = other?;
        let pairs = own.micros.iter().zip(&other.micros);
        let used: Vec<f64> = pairs.map(|(own, other)| own / target.bound.allowed(*other)).collect();
        Some(Verdict { target, against, used: median(&used)?, ratio: own.ratio_to(other)? })
    };
    others.into_iter().filter_map(verdict).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cell::Cell;
    use crate::limit::Stores;

    /// A row in which every contender had three turns of these times.
    fn row(ranks: usize, bytes: usize, series: &[(&str, [f64; 3])]) -> Row {
        let cell = Cell { op: Op::AllReduce, ranks, bytes };
        let one = |(name, micros): &(&str, [f64; 3])| Series {
            name: (*name).into(),
            micros: micros.to_vec(),
        };
        Row { cell, series: series.iter().map(one).collect() }
    }

    fn held(row: &Row) -> Vec<(&'static str, bool)> {
        verdicts(row).iter().map(|it| (it.against, it.holds())).collect()
    }

    const LIMIT: &str = Stores::Ordinary.name();

    #[test]
    fn large_sizes_are_held_against_the_limit_alone() {
        let large = |ranks, times| {
            row(
                ranks,
                32 * MIB,
                &[(LIMIT, [100.0, 200.0, 100.0]), ("aether", times), ("MPICH", [1.0; 3])],
            )
        };
        for (ranks, factor) in [(2, 1.15), (4, 1.2), (8, 1.3)] {
            let at = |factor: f64| large(ranks, [100.0 * factor, 200.0 * factor, 1.0]);
            assert_eq!(held(&at(factor - 0.01)), [("the limit", true)]);
            assert_eq!(held(&at(factor + 0.01)), [("the limit", false)]);
        }
    }

    #[test]
    fn middle_sizes_are_held_against_the_limit_and_each_peer() {
        let middle = row(
            2,
            MIB,
            &[
                (LIMIT, [10.0; 3]),
                ("aether", [13.9; 3]),
                ("Open MPI", [12.0; 3]),
                ("burn-collective", [13.0; 3]),
            ],
        );
        let expected = [("the limit", true), ("Open MPI", false), ("burn-collective", true)];
        assert_eq!(held(&middle), expected);
    }

    #[test]
    fn small_sizes_have_a_floor_and_sizes_between_an_allowance() {
        let small = |own| row(2, 16, &[("aether", [own; 3]), ("Open MPI", [0.1; 3])]);
        assert_eq!(held(&small(0.24)), [("Open MPI", true)]);
        assert_eq!(held(&small(0.26)), [("Open MPI", false)]);
        let between = |own| row(4, 16 * KIB, &[("aether", [own; 3]), (LIMIT, [1.0; 3])]);
        assert_eq!(held(&between(3.49)), [("the limit", true)]);
        assert_eq!(held(&between(3.51)), [("the limit", false)]);
    }

    #[test]
    fn a_small_all_reduce_of_4_ranks_has_to_beat_open_mpi() {
        let small = row(4, 32, &[("aether", [4.0; 3]), ("Open MPI", [5.0; 3])]);
        assert_eq!(held(&small), [("Open MPI", true), ("Open MPI", false)]);
    }

    #[test]
    fn one_caller_is_held_against_threads_in_the_same_turns() {
        let drifting = row(8, 64, &[("aether", [1.0, 10.0, 1.0]), (Set::NAME, [1.0, 10.4, 1.0])]);
        assert_eq!(held(&drifting), [("aether", true)]);
        let slower = row(8, 64, &[("aether", [1.0, 10.0, 1.0]), (Set::NAME, [1.1, 11.0, 1.1])]);
        let verdict = verdicts(&slower)[0];
        assert!(!verdict.holds() && (verdict.ratio - 1.1).abs() < 1e-9);
    }

    #[test]
    fn processes_are_held_against_threads_and_against_open_mpi() {
        let row = |heap: f64, ordinary: f64| {
            let threads = ("aether", [100.0; 3]);
            row(
                8,
                MIB,
                &[threads, (HEAP, [heap; 3]), (ORDINARY, [ordinary; 3]), ("Open MPI", [200.0; 3])],
            )
        };
        let with = |ranks, heap, ordinary| {
            let mut row = row(heap, ordinary);
            row.cell.ranks = ranks;
            let all = verdicts(&row);
            let of = |who| all.iter().find(|it| it.target.who == who).map(Verdict::holds);
            (of(HEAP), of(ORDINARY))
        };
        assert_eq!(with(2, 134.0, 199.0), (Some(true), Some(true)));
        assert_eq!(with(2, 136.0, 201.0), (Some(false), Some(false)));
        assert_eq!(with(4, 159.0, 199.0), (Some(true), Some(true)));
        assert_eq!(with(8, 134.0, 199.0), (None, None));
    }

    #[test]
    fn what_was_not_measured_has_no_verdict() {
        assert_eq!(held(&row(2, 32 * MIB, &[("aether", [1.0; 3])])), []);
        assert_eq!(held(&row(2, 32 * MIB, &[(LIMIT, [1.0; 3])])), []);
        assert_eq!(held(&row(3, 32 * MIB, &[("aether", [1.0; 3]), (LIMIT, [1.0; 3])])), []);
    }

    #[test]
    fn a_bound_reads_as_it_counts() {
        let bound = Bound { plus: 0.5, ..Bound::times(1.4, Against::Limit) };
        assert_eq!(bound.in_words("the limit"), "1.4 of the limit plus 0.5 µs");
        let bound = Bound { floor: 0.25, ..Bound::times(1.0, OPEN_MPI) };
        assert_eq!(bound.in_words("Open MPI"), "Open MPI's time, or 0.25 µs where that is more");
    }
}

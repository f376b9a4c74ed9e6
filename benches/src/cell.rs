//! What is measured: one operation, between so many ranks, of so many bytes.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::failure::Failure;

/// The collectives of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Op {
    /// Every rank gets the sum of all.
    AllReduce,
    /// Every rank gets all parts.
    AllGather,
    /// Every rank gets its part of the sum.
    ReduceScatter,
    /// Every rank gets what rank 0 has, which takes part in place.
    Broadcast,
    /// Every rank gets a part of each.
    AllToAll,
}

impl Op {
    /// All, in the order of the tables.
    pub const ALL: [Self; 5] =
        [Self::AllReduce, Self::AllGather, Self::ReduceScatter, Self::Broadcast, Self::AllToAll];

    /// The name, as it stands in tables and in commands.
    pub fn name(self) -> &'static str {
        match self {
            Self::AllReduce => "all_reduce",
            Self::AllGather => "all_gather",
            Self::ReduceScatter => "reduce_scatter",
            Self::Broadcast => "broadcast",
            Self::AllToAll => "all_to_all",
        }
    }
}

impl fmt::Display for Op {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Op {
    type Err = Failure;

    fn from_str(text: &str) -> Result<Self, Failure> {
        let found = Self::ALL.into_iter().find(|op| op.name() == text);
        found.ok_or_else(|| Failure::new(format!("no operation is called `{text}`")))
    }
}

/// One row of the table. Elements are f32.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Cell {
    /// The operation.
    pub op: Op,
    /// How many take part.
    pub ranks: usize,
    /// The size of the whole array, as nccl-tests counts it: what a rank of all_gather receives, and
    /// what a rank of any other operation gives.
    pub bytes: usize,
}

impl Cell {
    /// The elements of the whole array.
    pub fn elements(&self) -> usize {
        self.bytes / size_of::<f32>()
    }

    /// The elements that a rank gives.
    pub fn given(&self) -> usize {
        if self.op == Op::AllGather { self.elements() / self.ranks } else { self.elements() }
    }

    /// The elements that a rank gets.
    pub fn got(&self) -> usize {
        if self.op == Op::ReduceScatter { self.elements() / self.ranks } else { self.elements() }
    }
}

impl fmt::Display for Cell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ranks {} bytes {}", self.op, self.ranks, self.bytes)
    }
}

/// From 8 bytes a rank, two elements for each chunk, to `most`, each 8 times the one before.
pub fn sizes(ranks: usize, most: usize) -> impl Iterator<Item = usize> {
    std::iter::successors(Some(8 * ranks), |bytes| bytes.checked_mul(8))
        .take_while(move |bytes| *bytes <= most)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_begin_with_two_elements_for_each_chunk_and_end_at_the_most() {
        assert_eq!(sizes(2, 8192).collect::<Vec<_>>(), [16, 128, 1024, 8192]);
        assert_eq!(sizes(4, 8191).collect::<Vec<_>>(), [32, 256, 2048]);
        assert_eq!(sizes(8, 63).count(), 0);
    }

    #[test]
    fn only_all_gather_gives_a_part_and_only_reduce_scatter_gets_one() {
        for op in Op::ALL {
            let cell = Cell { op, ranks: 4, bytes: 256 };
            assert_eq!(cell.given(), if op == Op::AllGather { 16 } else { 64 }, "{op}");
            assert_eq!(cell.got(), if op == Op::ReduceScatter { 16 } else { 64 }, "{op}");
        }
    }

    #[test]
    fn an_operation_is_read_by_the_name_that_is_written() {
        for op in Op::ALL {
            assert_eq!(op.name().parse::<Op>().unwrap(), op);
        }
        assert!("reduce".parse::<Op>().is_err());
    }
}

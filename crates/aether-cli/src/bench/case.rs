//! One row's work: how large every buffer is, what it holds before, and what it must hold after.

use aether::{DType, ReduceOp};

use super::Op;
use super::pattern::Pattern;
use crate::cli::BenchArgs;
use crate::failure::{Failure, Result};

/// An operation at one size.
#[derive(Clone, Copy, Debug)]
pub(super) struct Case {
    pub(super) op: Op,
    pub(super) dtype: DType,
    pub(super) reduction: ReduceOp,
    pub(super) root: usize,
    pub(super) ranks: usize,
    pub(super) in_place: bool,
    pub(super) layout: Layout,
}

/// The sizes of the buffers, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Layout {
    /// The size that the row says: the larger one of source and destination.
    pub(super) bytes: usize,
    /// What every rank gives; of broadcast, replicate and scatter the root alone.
    pub(super) source: usize,
    /// What every rank gets.
    pub(super) destination: usize,
}

impl Case {
    /// The case for a size that is asked for, which is rounded down to whole elements, and to whole
    /// chunks of the ranks where the operation has them. nccl-tests does the same, but counts chunks
    /// in units of 16 bytes (`GetCollByteCount` in its src/all_gather.cu, say), which would round
    /// most small sizes down to nothing.
    pub(super) fn new(op: Op, args: &BenchArgs, size: u64) -> Result<Self> {
        let too_large =
            || Failure::new(format!("bench {op}: {size} bytes are too many to address"));
        let size = usize::try_from(size)
            .ok()
            .filter(|it| *it <= isize::MAX as usize)
            .ok_or_else(too_large)?;
        let BenchArgs { dtype, reduction, root, ranks, .. } = *args;
        let in_place = args.in_place && op.can_be_in_place();
        let layout = Layout::new(op, dtype.size(), ranks, size);
        Ok(Self { op, dtype, reduction, root, ranks, in_place, layout })
    }

    /// Where a rank's source begins in the memory that it shares with the destination, if in place.
    pub(super) fn source_offset(&self, rank: usize) -> usize {
        if self.op == Op::AllGather { rank * self.layout.source } else { 0 }
    }

    /// Where a rank's destination begins there.
    pub(super) fn destination_offset(&self, rank: usize) -> usize {
        if self.op == Op::ReduceScatter { rank * self.layout.destination } else { 0 }
    }

    /// Writes what `rank` gives in this run.
    pub(super) fn fill_source(&self, run: u64, rank: usize, out: &mut [u8]) {
        self.pattern(run).fill(rank, 0, out);
    }

    /// Writes what `rank` must get in this run.
    pub(super) fn fill_expected(&self, run: u64, rank: usize, out: &mut [u8]) {
        let pattern = self.pattern(run);
        let chunk = self.layout.destination / self.dtype.size();
        match self.op {
            Op::AllReduce => pattern.fill_reduced(0, out),
            Op::ReduceScatter => pattern.fill_reduced(rank * chunk, out),
            Op::AllGather => self.fill_chunks(out, |from, out| pattern.fill(from, 0, out)),
            Op::AllToAll => {
                let first = rank * (chunk / self.ranks);
                self.fill_chunks(out, |from, out| pattern.fill(from, first, out));
            }
            Op::Broadcast | Op::Replicate => pattern.fill(self.root, 0, out),
            Op::Scatter => pattern.fill(self.root, rank * chunk, out),
            Op::SendRecv => pattern.fill((rank + self.ranks - 1) % self.ranks, 0, out),
            Op::Memcpy => pattern.fill(rank, 0, out),
        }
    }

    fn pattern(&self, run: u64) -> Pattern {
        let reduction = self.op.reduces().then_some(self.reduction);
        Pattern { dtype: self.dtype, reduction, ranks: self.ranks, run }
    }

    fn fill_chunks(&self, out: &mut [u8], fill: impl Fn(usize, &mut [u8])) {
        let chunk = out.len() / self.ranks;
        if chunk > 0 {
            out.chunks_exact_mut(chunk).enumerate().for_each(|(from, out)| fill(from, out));
        }
    }
}

impl Layout {
    fn new(op: Op, element: usize, ranks: usize, size: usize) -> Self {
        let whole = size / element * element;
        let chunk = size / (element * ranks) * element;
        let all = chunk * ranks;
        let (source, destination) = match op {
            Op::AllReduce | Op::Broadcast | Op::Memcpy | Op::Replicate | Op::SendRecv => {
                (whole, whole)
            }
            Op::AllGather => (chunk, all),
            Op::ReduceScatter | Op::Scatter => (all, chunk),
            Op::AllToAll => (all, all),
        };
        Self { bytes: source.max(destination), source, destination }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layout(op: Op, size: usize) -> (usize, usize, usize) {
        let it = Layout::new(op, 4, 3, size);
        (it.bytes, it.source, it.destination)
    }

    #[test]
    fn sizes_are_rounded_down_to_whole_elements_and_chunks() {
        for op in [Op::AllReduce, Op::Broadcast, Op::Memcpy, Op::Replicate, Op::SendRecv] {
            assert_eq!(layout(op, 31), (28, 28, 28), "{op}");
        }
        assert_eq!(layout(Op::AllGather, 35), (24, 8, 24));
        assert_eq!(layout(Op::ReduceScatter, 35), (24, 24, 8));
        assert_eq!(layout(Op::Scatter, 35), (24, 24, 8));
        assert_eq!(layout(Op::AllToAll, 35), (24, 24, 24));
        assert_eq!(layout(Op::AllToAll, 36), (36, 36, 36));
        assert_eq!(layout(Op::AllGather, 11), (0, 0, 0));
    }

    #[test]
    fn in_place_a_rank_s_chunk_is_its_own_part_of_the_whole() {
        let case = |op| Case {
            op,
            dtype: DType::F32,
            reduction: ReduceOp::Sum,
            root: 0,
            ranks: 3,
            in_place: true,
            layout: Layout::new(op, 4, 3, 36),
        };
        for (op, source, destination) in
            [(Op::AllGather, 24, 0), (Op::ReduceScatter, 0, 24), (Op::AllReduce, 0, 0)]
        {
            let offsets = (case(op).source_offset(2), case(op).destination_offset(2));
            assert_eq!(offsets, (source, destination), "{op}");
        }
    }
}

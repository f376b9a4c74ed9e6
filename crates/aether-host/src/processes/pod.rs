//! Calls as words, which mean the same in every process of one version.

use aether_collective::{OpName, ReduceOp, Signature};
use aether_core::DType;

/// The operations, by number.
const OPERATIONS: [OpName; 13] = [
    OpName::AllGather,
    OpName::AllGatherV,
    OpName::AllReduce,
    OpName::AllToAll,
    OpName::AllToAllV,
    OpName::Barrier,
    OpName::Broadcast,
    OpName::Gather,
    OpName::Messages,
    OpName::Reduce,
    OpName::ReduceScatter,
    OpName::ReduceScatterV,
    OpName::Scatter,
];

/// The operation, the element type, the reduction and the root as one word.
pub(crate) fn what(signature: &Signature) -> u64 {
    let root = signature.root.map_or(0, |it| it as u64 + 1);
    let op = signature.op.and_then(|op| position(&ReduceOp::ALL, &op)).map_or(0, |it| it + 1);
    let operation = position(&OPERATIONS, &signature.operation).unwrap_or(u64::from(u8::MAX));
    operation | dtype(signature.dtype) << 8 | op << 16 | root << 24
}

/// The element type as a number.
pub(crate) fn dtype(it: DType) -> u64 {
    position(&DType::ALL, &it).unwrap_or(u64::from(u8::MAX))
}

/// The element type of a number.
pub(crate) fn dtype_of(number: u64) -> Option<DType> {
    DType::ALL.get(number as usize).copied()
}

/// The signature that was made words of; nothing if they come from elsewhere.
pub(crate) fn signature(what: u64, count: u64, digest: u64) -> Option<Signature> {
    let operation = *OPERATIONS.get((what & 0xff) as usize)?;
    let dtype = dtype_of(what >> 8 & 0xff)?;
    let mut signature = Signature::new(operation, dtype, count);
    if let Some(op) = (what >> 16 & 0xff).checked_sub(1) {
        signature = signature.with_op(*ReduceOp::ALL.get(op as usize)?);
    }
    if let Some(root) = (what >> 24).checked_sub(1) {
        signature = signature.with_root(root as usize);
    }
    signature.counts = digest;
    Some(signature)
}

fn position<T: PartialEq>(list: &[T], it: &T) -> Option<u64> {
    list.iter().position(|other| other == it).map(|it| it as u64)
}

/// Where a source, or a destination, is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// There is none, or it is no one else's business.
    Nowhere,
    /// In the call's own line.
    Tiny,
    /// Copied beside the call.
    Inline,
    /// In pieces, in the staging area.
    Staged,
    /// In the heap of its process, at this offset.
    Heap(u64),
}

impl Place {
    pub(crate) fn to_word(self) -> u64 {
        match self {
            Self::Nowhere => 0,
            Self::Inline => 1,
            Self::Staged => 2,
            Self::Heap(offset) => offset << 3 | 3,
            Self::Tiny => 4,
        }
    }

    pub(crate) fn of_word(word: u64) -> Self {
        match word & 7 {
            1 => Self::Inline,
            2 => Self::Staged,
            3 => Self::Heap(word >> 3),
            4 => Self::Tiny,
            _ => Self::Nowhere,
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    #[test]
    fn signatures_cross_as_words() {
        for operation in OPERATIONS {
            for dtype in DType::ALL {
                for op in ReduceOp::ALL.into_iter().map(Some).chain([None]) {
                    for root in [None, Some(0), Some(127)] {
                        let mut it = Signature::new(operation, dtype, 1 << 40);
                        it.op = op;
                        it.root = root;
                        it.counts = 9;
                        assert_eq!(signature(what(&it), it.count, it.counts).unwrap(), it);
                    }
                }
            }
        }
        assert_eq!(signature(u64::MAX, 0, 0), None);
    }

    #[test]
    fn places_cross_as_words() {
        let heaps = [Place::Heap(0), Place::Heap(4096)];
        let others = [Place::Nowhere, Place::Inline, Place::Staged, Place::Tiny];
        for it in heaps.into_iter().chain(others) {
            assert_eq!(Place::of_word(it.to_word()), it);
        }
    }
}

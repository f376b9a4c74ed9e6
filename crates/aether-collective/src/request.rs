//! The untyped calls: what one rank asks for, with spans of memory.

use std::fmt;

use aether_core::{DType, Span, SpanMut};
use smallvec::SmallVec;

use crate::ReduceOp;

/// One call of one rank, with untyped spans. What language bindings and tensors of other libraries
/// use; the typed methods of a group are thin over it.
///
/// Counts are in elements. Where a buffer is optional, `None` is the in-place form (all_reduce,
/// all_gather, broadcast at the root) or a rank that has none (gather, scatter, reduce away from the
/// root; broadcast away from the root).
#[derive(Debug)]
#[non_exhaustive]
#[allow(missing_docs, reason = "every field is a buffer, a root, a peer, counts or a reduction")]
pub enum Request<'a> {
    /// Every rank gets the reduction of all sources.
    AllReduce { src: Option<Span<'a>>, dst: SpanMut<'a>, op: ReduceOp },
    /// Every rank gets all sources in rank order.
    AllGather { src: Option<Span<'a>>, dst: SpanMut<'a> },
    /// As `AllGather`, with a count for each rank.
    AllGatherV { src: Option<Span<'a>>, dst: SpanMut<'a>, counts: &'a [u64] },
    /// Rank r gets chunk r of the reduction of all sources.
    ReduceScatter { src: Span<'a>, dst: SpanMut<'a>, op: ReduceOp },
    /// As `ReduceScatter`, into this rank's chunk of the buffer; the other chunks stay as they are.
    ReduceScatterInPlace { buffer: SpanMut<'a>, op: ReduceOp },
    /// As `ReduceScatter`, with a count for each rank.
    ReduceScatterV { src: Span<'a>, dst: SpanMut<'a>, counts: &'a [u64], op: ReduceOp },
    /// Every rank gets the root's source.
    Broadcast { src: Option<Span<'a>>, dst: SpanMut<'a>, root: usize },
    /// Chunk r goes to rank r, and comes from there.
    AllToAll { src: Span<'a>, dst: SpanMut<'a> },
    /// As `AllToAll`; rank i sends `counts[i * ranks + j]` elements to rank j.
    AllToAllV { src: Span<'a>, dst: SpanMut<'a>, counts: &'a [u64] },
    /// The root gets all sources in rank order.
    Gather { src: Span<'a>, dst: Option<SpanMut<'a>>, root: usize },
    /// Rank r gets chunk r of the root's source.
    Scatter { src: Option<Span<'a>>, dst: SpanMut<'a>, root: usize },
    /// The root gets the reduction of all sources.
    Reduce { src: Span<'a>, dst: Option<SpanMut<'a>>, op: ReduceOp, root: usize },
    /// Nobody goes on before everybody has come.
    Barrier,
    /// Sends and receives, none of which waits for another: one operation.
    Batch(SmallVec<[Message<'a>; 2]>),
}

/// One message of a batch.
#[derive(Debug)]
#[non_exhaustive]
#[allow(missing_docs, reason = "the buffer, and the rank at the other end")]
pub enum Message<'a> {
    /// To `peer`.
    Send { src: Span<'a>, peer: usize },
    /// From `peer`.
    Recv { dst: SpanMut<'a>, peer: usize },
}

/// The name of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
#[allow(missing_docs, reason = "the operations' own names")]
pub enum OpName {
    AllGather,
    AllGatherV,
    AllReduce,
    AllToAll,
    AllToAllV,
    Barrier,
    Broadcast,
    Gather,
    Messages,
    Reduce,
    ReduceScatter,
    ReduceScatterV,
    Scatter,
}

impl OpName {
    /// The name as it stands in messages: `all_reduce`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::AllGather => "all_gather",
            Self::AllGatherV => "all_gather_v",
            Self::AllReduce => "all_reduce",
            Self::AllToAll => "all_to_all",
            Self::AllToAllV => "all_to_all_v",
            Self::Barrier => "barrier",
            Self::Broadcast => "broadcast",
            Self::Gather => "gather",
            Self::Messages => "send/recv",
            Self::Reduce => "reduce",
            Self::ReduceScatter => "reduce_scatter",
            Self::ReduceScatterV => "reduce_scatter_v",
            Self::Scatter => "scatter",
        }
    }
}

impl fmt::Display for OpName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// What all ranks of a call have to agree on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Signature {
    /// The operation.
    pub operation: OpName,
    /// The element type.
    pub dtype: DType,
    /// How many elements, counted as the driver's method counts them; 0 where ranks differ by design.
    pub count: u64,
    /// The reduction, if it reduces.
    pub op: Option<ReduceOp>,
    /// The root, if there is one.
    pub root: Option<usize>,
    /// A digest of the counts of all ranks, for the vector variants.
    pub counts: u64,
}

impl Signature {
    /// The signature of an operation on elements, without reduction, root and counts.
    pub const fn new(operation: OpName, dtype: DType, count: u64) -> Self {
        Self { operation, dtype, count, op: None, root: None, counts: 0 }
    }

    /// The signature of an operation that reduces so.
    #[must_use]
    pub const fn with_op(self, op: ReduceOp) -> Self {
        Self { op: Some(op), ..self }
    }

    /// The signature of an operation with this root.
    #[must_use]
    pub const fn with_root(self, root: usize) -> Self {
        Self { root: Some(root), ..self }
    }

    /// The signature of a vector variant with these counts of all ranks.
    #[must_use]
    pub fn with_counts(self, counts: &[u64]) -> Self {
        Self { counts: Self::digest(counts), ..self }
    }

    /// The digest of a list of counts that [`Signature::counts`] carries. FNV-1a, 64 bits.
    pub fn digest(counts: &[u64]) -> u64 {
        let bytes = counts.iter().flat_map(|it| it.to_le_bytes());
        bytes.fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
        })
    }
}

impl fmt::Display for Signature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.operation.name())?;
        if self.operation == OpName::Barrier {
            return Ok(());
        }
        if let Some(op) = self.op {
            write!(f, "({op})")?;
        }
        write!(f, " of {} {}", self.count, self.dtype)?;
        if let Some(root) = self.root {
            write!(f, " with root {root}")?;
        }
        if self.counts != 0 {
            write!(f, " with counts #{:016x}", self.counts)?;
        }
        Ok(())
    }
}

impl Request<'_> {
    /// Which operation it is.
    pub fn operation(&self) -> OpName {
        match self {
            Self::AllReduce { .. } => OpName::AllReduce,
            Self::AllGather { .. } => OpName::AllGather,
            Self::AllGatherV { .. } => OpName::AllGatherV,
            Self::ReduceScatter { .. } | Self::ReduceScatterInPlace { .. } => OpName::ReduceScatter,
            Self::ReduceScatterV { .. } => OpName::ReduceScatterV,
            Self::Broadcast { .. } => OpName::Broadcast,
            Self::AllToAll { .. } => OpName::AllToAll,
            Self::AllToAllV { .. } => OpName::AllToAllV,
            Self::Gather { .. } => OpName::Gather,
            Self::Scatter { .. } => OpName::Scatter,
            Self::Reduce { .. } => OpName::Reduce,
            Self::Barrier => OpName::Barrier,
            Self::Batch(_) => OpName::Messages,
        }
    }
}

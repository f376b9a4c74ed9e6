//! The collectives as the cases speak of them: what each rank brings, and what each has to get.

use aether_collective::{ReduceOp, Request};
use aether_core::{DType, Span, SpanMut};

use super::reference;

/// A collective with everything that all ranks have to agree on but the count and the type.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the operations' own names, with their counts, reduction and root")]
pub enum Operation {
    AllGather,
    AllGatherV(Vec<u64>),
    AllReduce(ReduceOp),
    AllToAll,
    /// Rank i sends `counts[i * ranks + j]` elements to rank j.
    AllToAllV(Vec<u64>),
    Broadcast(usize),
    Gather(usize),
    Reduce(ReduceOp, usize),
    ReduceScatter(ReduceOp),
    ReduceScatterV(Vec<u64>, ReduceOp),
    Scatter(usize),
}

use Operation::*;

impl Operation {
    /// Every operation whose chunks are alike, with this reduction and root.
    pub fn alike(op: ReduceOp, root: usize) -> Vec<Self> {
        let reduced = [AllReduce(op), Reduce(op, root), ReduceScatter(op)];
        reduced.into_iter().chain(Self::moves(root)).collect()
    }

    /// Those of them that only move.
    pub fn moves(root: usize) -> Vec<Self> {
        vec![AllGather, AllToAll, Broadcast(root), Gather(root), Scatter(root)]
    }

    /// Every operation that takes a count for each rank.
    pub fn vector(op: ReduceOp, ranks: usize) -> Vec<Self> {
        let each: Vec<u64> = (0..ranks as u64).map(|rank| (rank * 5 + 3) % 7).collect();
        let pairs: Vec<u64> = (0..(ranks * ranks) as u64).map(|pair| pair * 3 % 5).collect();
        vec![AllGatherV(each.clone()), AllToAllV(pairs), ReduceScatterV(each, op)]
    }

    /// How many elements the source of a rank has; none if the rank brings none. `count` is what a
    /// chunk has, and unused where there are counts.
    pub fn source(&self, rank: usize, ranks: usize, count: usize) -> Option<usize> {
        match self {
            AllGather | AllReduce(_) | Gather(_) | Reduce(..) => Some(count),
            AllToAll | ReduceScatter(_) => Some(ranks * count),
            Broadcast(root) => (rank == *root).then_some(count),
            Scatter(root) => (rank == *root).then_some(ranks * count),
            AllGatherV(counts) => counts.get(rank).map(|&it| it as usize),
            ReduceScatterV(counts, _) => Some(total(counts.iter())),
            AllToAllV(counts) => Some(total(counts.iter().skip(rank * ranks).take(ranks))),
        }
    }

    /// How many elements the destination of a rank has; none if the rank gets nothing.
    pub fn destination(&self, rank: usize, ranks: usize, count: usize) -> Option<usize> {
        match self {
            AllReduce(_) | ReduceScatter(_) | Broadcast(_) | Scatter(_) => Some(count),
            AllGather | AllToAll => Some(ranks * count),
            Gather(root) => (rank == *root).then_some(ranks * count),
            Reduce(_, root) => (rank == *root).then_some(count),
            AllGatherV(counts) => Some(total(counts.iter())),
            ReduceScatterV(counts, _) => counts.get(rank).map(|&it| it as usize),
            AllToAllV(counts) => Some(total(counts.iter().skip(rank).step_by(ranks))),
        }
    }

    /// What each rank has to get, by rank, from what all ranks bring.
    pub fn expected(&self, dtype: DType, sources: &[Vec<u8>]) -> Vec<Option<Vec<u8>>> {
        let ranks = sources.len();
        let source = |rank: usize| sources.get(rank).map_or(&[][..], Vec::as_slice);
        let chunk = |of: &[u8], at: usize| -> Vec<u8> {
            let bytes = of.len() / ranks;
            of.iter().copied().skip(at * bytes).take(bytes).collect()
        };
        let part = |of: &[u8], counts: &mut dyn Iterator<Item = u64>, at: usize| -> Vec<u8> {
            let sizes: Vec<usize> = counts.map(|it| it as usize * dtype.size()).collect();
            let start: usize = sizes.iter().take(at).sum();
            let bytes = sizes.get(at).copied().unwrap_or(0);
            of.iter().copied().skip(start).take(bytes).collect()
        };
        let at_root = |root: usize, result: Vec<u8>| {
            (0..ranks).map(|rank| (rank == root).then(|| result.clone())).collect()
        };
        let each = |of: &dyn Fn(usize) -> Vec<u8>| (0..ranks).map(|rank| Some(of(rank))).collect();
        match self {
            AllGather | AllGatherV(_) => each(&|_| sources.concat()),
            AllReduce(op) => {
                let result = reference::reduce(dtype, *op, sources);
                each(&|_| result.clone())
            }
            Reduce(op, root) => at_root(*root, reference::reduce(dtype, *op, sources)),
            ReduceScatter(op) => {
                let result = reference::reduce(dtype, *op, sources);
                each(&|rank| chunk(&result, rank))
            }
            ReduceScatterV(counts, op) => {
                let result = reference::reduce(dtype, *op, sources);
                each(&|rank| part(&result, &mut counts.iter().copied(), rank))
            }
            AllToAll => {
                each(&|rank| (0..ranks).flat_map(|from| chunk(source(from), rank)).collect())
            }
            AllToAllV(counts) => each(&|rank| {
                let sent = |from: usize| counts.iter().copied().skip(from * ranks).take(ranks);
                (0..ranks).flat_map(|from| part(source(from), &mut sent(from), rank)).collect()
            }),
            Broadcast(root) => each(&|_| source(*root).to_vec()),
            Gather(root) => at_root(*root, sources.concat()),
            Scatter(root) => each(&|rank| chunk(source(*root), rank)),
        }
    }

    /// One rank's call. None if it lacks a buffer that every rank has.
    pub fn request<'a>(
        &'a self,
        src: Option<Span<'a>>,
        dst: Option<SpanMut<'a>>,
    ) -> Option<Request<'a>> {
        Some(match *self {
            AllGather => Request::AllGather { src, dst: dst? },
            AllGatherV(ref counts) => Request::AllGatherV { src, dst: dst?, counts },
            AllReduce(op) => Request::AllReduce { src, dst: dst?, op },
            AllToAll => Request::AllToAll { src: src?, dst: dst? },
            AllToAllV(ref counts) => Request::AllToAllV { src: src?, dst: dst?, counts },
            Broadcast(root) => Request::Broadcast { src, dst: dst?, root },
            Gather(root) => Request::Gather { src: src?, dst, root },
            Reduce(op, root) => Request::Reduce { src: src?, dst, op, root },
            ReduceScatter(op) => Request::ReduceScatter { src: src?, dst: dst?, op },
            ReduceScatterV(ref counts, op) => {
                Request::ReduceScatterV { src: src?, dst: dst?, counts, op }
            }
            Scatter(root) => Request::Scatter { src, dst: dst?, root },
        })
    }

    /// How it reduces, if it does.
    pub fn reduction(&self) -> Option<ReduceOp> {
        match self {
            AllReduce(op) | Reduce(op, _) | ReduceScatter(op) | ReduceScatterV(_, op) => Some(*op),
            _ => None,
        }
    }
}

fn total<'a>(counts: impl Iterator<Item = &'a u64>) -> usize {
    counts.map(|&it| it as usize).sum()
}

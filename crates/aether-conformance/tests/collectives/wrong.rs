//! Wrong results: what a defect leaves in a destination instead of what belongs there.

use aether_collective::ReduceOp;
use aether_conformance::collectives::operation::Operation;
use aether_conformance::collectives::reference::{
    bytes, canonical_nan, decode, elements, encode, is_float, reduce, reduce_one,
};
use aether_core::DType;

use crate::board::Brought;
use crate::defect::Defect::{self, *};

/// A call that has ended well on one rank.
pub(crate) struct Ended<'a> {
    pub(crate) operation: &'a Operation,
    pub(crate) dtype: DType,
    pub(crate) rank: usize,
    /// What every rank brought.
    pub(crate) brought: &'a [Brought],
    /// What the rank's destination holds now, which is right.
    pub(crate) right: &'a [u8],
    /// The source lies in the destination, or the other way round.
    pub(crate) in_place: bool,
    /// Where the destination begins.
    pub(crate) address: usize,
    /// The number of the rank's call, from 0.
    pub(crate) call: u64,
    pub(crate) checked: bool,
}

impl Ended<'_> {
    /// What the defect leaves in the destination; nothing if it leaves what is right.
    pub(crate) fn wrong(&self, defect: Defect) -> Option<Vec<u8>> {
        let moved = self.operation.reduction().is_none();
        let Some(op) = self.operation.reduction() else {
            return self.wrongly_moved(defect).or_else(|| self.wrong_anyhow(defect, moved));
        };
        let ranks = self.brought.len();
        let turned = |by: usize| {
            let mut sources = self.sources();
            sources.rotate_left(by);
            self.with(sources)
        };
        let reversed = || {
            let mut sources = self.sources();
            sources.reverse();
            self.with(sources)
        };
        let float = is_float(self.dtype);
        let narrow = float && self.dtype.size() < 4;
        match defect {
            StartsAtItself => turned(self.rank),
            Reversed => reversed(),
            SecondRunReversed if self.call % 2 == 1 => reversed(),
            LargeReversed if self.right.len() > 64 << 10 => reversed(),
            MisalignedReversed if !self.address.is_multiple_of(16) => reversed(),
            CheckedModeReverses if self.checked => reversed(),
            LastRankReverses if self.rank + 1 == ranks => reversed(),
            EveryHopRounded if narrow && op == ReduceOp::Sum => {
                let hop = |one: Vec<u8>, two: Vec<u8>| reduce(self.dtype, op, &[one, two]);
                self.part_of(self.sources().into_iter().reduce(hop)?)
            }
            Truncates if self.dtype == DType::BF16 && op == ReduceOp::Sum => self.each(|ranks| {
                let sum: f32 = ranks.iter().map(|&it| decode(self.dtype, it)).sum();
                u64::from(sum.to_bits() >> 16)
            }),
            FlushesSubnormals if float => self.changed(|bits| {
                let sign = bits & 1 << (8 * self.dtype.size() - 1);
                if is_subnormal(self.dtype, bits) { sign } else { bits }
            }),
            EighthsSaturate => match self.dtype {
                DType::F8E4M3 => self.changed(|bits| if bits == 0x7f { 0x7e } else { bits }),
                DType::F8E5M2 => self.changed(|bits| if bits == 0x7c { 0x7b } else { bits }),
                _ => None,
            },
            SinglesSummedInDouble if self.dtype == DType::F32 && op == ReduceOp::Sum => {
                self.each(|ranks| {
                    let sum: f64 =
                        ranks.iter().map(|&it| f64::from(f32::from_bits(it as u32))).sum();
                    u64::from((sum as f32).to_bits())
                })
            }
            DoublesSummedInSingle if self.dtype == DType::F64 && op == ReduceOp::Sum => {
                self.each(|ranks| {
                    let sum: f32 = ranks.iter().map(|&it| f64::from_bits(it) as f32).sum();
                    f64::from(sum).to_bits()
                })
            }
            IntegersSaturate if self.dtype == DType::I8 && op == ReduceOp::Sum => {
                self.each(|ranks| {
                    let add = |one: i8, &two: &u64| one.saturating_add(two as u8 as i8);
                    u64::from(ranks.iter().fold(0, add) as u8)
                })
            }
            SignIgnored if self.dtype == DType::I32 && op == ReduceOp::Max => {
                self.each(|ranks| ranks.iter().copied().max().unwrap_or(0))
            }
            MeanByElementCount if self.dtype == DType::F32 && op == ReduceOp::Mean => {
                let count = self.right.len() / 4;
                self.each(|ranks| {
                    let sum = reduce_one(self.dtype, ReduceOp::Sum, ranks);
                    u64::from((decode(self.dtype, sum) / count as f32).to_bits())
                })
            }
            MeanByReciprocal if self.dtype == DType::F32 && op == ReduceOp::Mean => {
                let factor = 1.0 / ranks as f32;
                self.each(|ranks| {
                    let sum = reduce_one(self.dtype, ReduceOp::Sum, ranks);
                    encode(self.dtype, decode(self.dtype, sum) * factor)
                })
            }
            MeanOfWrappedSum if self.dtype == DType::I32 && op == ReduceOp::Mean => {
                self.each(|ranks| {
                    let sum = ranks.iter().fold(0i32, |sum, &it| sum.wrapping_add(it as i32));
                    (sum / ranks.len() as i32) as u64
                })
            }
            MeanFloors if self.dtype == DType::I32 && op == ReduceOp::Mean => self.each(|ranks| {
                let sum: i64 = ranks.iter().map(|&it| i64::from(it as i32)).sum();
                sum.div_euclid(ranks.len() as i64) as u64
            }),
            DropsNan if float => self.without_nan(op, 0),
            DropsNanInTheTail if float => {
                let count = self.right.len() / self.dtype.size();
                self.without_nan(op, count - count % 8)
            }
            KeepsNanPayload if float => self.each(|ranks| {
                let nan = ranks.iter().copied().find(|&it| is_nan(self.dtype, it));
                nan.unwrap_or_else(|| reduce_one(self.dtype, op, ranks))
            }),
            CopyThroughOneRankMadeCanonical if float && ranks == 1 => self.with_canonical_nan(),
            EqualZeros if float && matches!(op, ReduceOp::Min | ReduceOp::Max) => {
                self.each(|ranks| {
                    let right = reduce_one(self.dtype, op, ranks);
                    let zero = |bits: u64| bits << (65 - 8 * self.dtype.size()) == 0;
                    // Of equal ones the first stays.
                    let first = ranks.iter().copied().find(|&it| zero(it));
                    first.filter(|_| zero(right)).unwrap_or(right)
                })
            }
            ReduceLeavesOutTheRoot => {
                let Operation::Reduce(_, root) = self.operation else { return None };
                let mut sources = self.sources();
                sources.remove(*root);
                Some(reduce(self.dtype, op, &sources))
            }
            ReduceScatterTakesTheNextChunk => {
                let Operation::ReduceScatter(_) = self.operation else { return None };
                let all = self.operation.expected(self.dtype, &self.sources());
                all.get((self.rank + 1) % ranks).cloned().flatten()
            }
            ReduceScatterVMultiplies => {
                let Operation::ReduceScatterV(counts, _) = self.operation else { return None };
                let start = self.rank * *counts.get(self.rank)? as usize * self.dtype.size();
                let mut all = reduce(self.dtype, op, &self.sources());
                all.extend(std::iter::repeat_n(0, self.right.len() + start));
                all.get(start..start + self.right.len()).map(<[u8]>::to_vec)
            }
            InPlaceAllReduceCountsItselfTwice if self.in_place => {
                let Operation::AllReduce(_) = self.operation else { return None };
                let mut sources = self.sources();
                sources.push(sources.get(self.rank)?.clone());
                Some(reduce(self.dtype, op, &sources))
            }
            _ => self.wrong_anyhow(defect, moved),
        }
    }

    fn wrongly_moved(&self, defect: Defect) -> Option<Vec<u8>> {
        let ranks = self.brought.len();
        let chunk = |of: &[u8], at: usize| -> Vec<u8> {
            let bytes = of.len() / ranks;
            of.iter().copied().skip(at * bytes).take(bytes).collect()
        };
        let mut sources = self.sources();
        match (defect, self.operation) {
            (AllGatherStartsAtItself, Operation::AllGather) => {
                sources.rotate_left(self.rank);
                Some(sources.concat())
            }
            (AllGatherVTakesEvenCounts, Operation::AllGatherV(_)) => {
                let even = self.right.len() / ranks;
                let mut all = vec![0; self.right.len()];
                for (rank, source) in sources.iter().enumerate() {
                    for (to, from) in all.iter_mut().skip(rank * even).zip(source) {
                        *to = *from;
                    }
                }
                Some(all)
            }
            (AllToAllTakesOwnChunks, Operation::AllToAll) => {
                let own = sources.iter().enumerate();
                Some(own.flat_map(|(from, source)| chunk(source, from)).collect())
            }
            (AllToAllVReversesSenders, Operation::AllToAllV(_)) => {
                let mut turned = self.right.to_vec();
                turned.rotate_left(self.right.len().min(self.dtype.size()));
                Some(turned)
            }
            (BroadcastIgnoresRoot, Operation::Broadcast(root)) if *root != 0 => {
                self.brought.first().map(|it| it.before.clone())
            }
            (GatherReversed, Operation::Gather(_)) => {
                sources.reverse();
                Some(sources.concat())
            }
            (ScatterTakesTheNextChunk, Operation::Scatter(root)) => {
                Some(chunk(sources.get(*root)?, (self.rank + 1) % ranks))
            }
            (InPlaceBroadcastClearsTheRoot, Operation::Broadcast(root)) => {
                let clears = self.in_place && *root == self.rank;
                clears.then(|| vec![0; self.right.len()])
            }
            (InPlaceGatherShifts, Operation::AllGather | Operation::AllGatherV(_)) => {
                let mut turned = self.right.to_vec();
                turned.rotate_left(self.right.len() / ranks);
                self.in_place.then_some(turned)
            }
            (BoolInverted, _) if self.dtype == DType::Bool => self.changed(|bits| bits ^ 1),
            (MovedNanMadeCanonical, _) if is_float(self.dtype) => self.with_canonical_nan(),
            _ => None,
        }
    }

    /// Defects that don't care what the call was.
    fn wrong_anyhow(&self, defect: Defect, moved: bool) -> Option<Vec<u8>> {
        let size = self.dtype.size();
        let count = self.right.len() / size;
        let before = self.brought.get(self.rank).map(|it| it.before.as_slice())?;
        let unwritten_from = |at: usize| {
            let (head, tail) = (self.right.get(..at * size)?, before.get(at * size..)?);
            Some([head, tail].concat())
        };
        match defect {
            LastElementUnwritten => unwritten_from(count.checked_sub(1)?),
            TailUnwritten => unwritten_from(count - count % 4),
            RemainderUnwritten => unwritten_from(count - count % self.brought.len()),
            MisalignedShifts if !moved && !self.address.is_multiple_of(16) => {
                let mut turned = self.right.to_vec();
                turned.rotate_left(size.min(self.right.len()));
                Some(turned)
            }
            _ => None,
        }
    }

    fn sources(&self) -> Vec<Vec<u8>> {
        self.brought.iter().map(|it| it.source.clone()).collect()
    }

    /// The result from other sources.
    fn with(&self, sources: Vec<Vec<u8>>) -> Option<Vec<u8>> {
        self.operation.expected(self.dtype, &sources).get(self.rank).cloned().flatten()
    }

    /// This rank's part of a whole reduction, for the operations that give all of it.
    fn part_of(&self, whole: Vec<u8>) -> Option<Vec<u8>> {
        matches!(self.operation, Operation::AllReduce(_)).then_some(whole)
    }

    /// The result from the ranks' elements, for the operations that give all of it.
    fn each(&self, element: impl Fn(&[u64]) -> u64) -> Option<Vec<u8>> {
        let columns: Vec<Vec<u64>> =
            self.brought.iter().map(|it| elements(self.dtype, &it.source)).collect();
        let count = columns.iter().map(Vec::len).min().unwrap_or(0);
        let ranks = |at| columns.iter().filter_map(|it| it.get(at).copied()).collect::<Vec<_>>();
        let whole = (0..count).map(|at| element(&ranks(at)));
        self.part_of(bytes(self.dtype, whole))
    }

    /// The right result with every element changed.
    fn changed(&self, change: impl Fn(u64) -> u64) -> Option<Vec<u8>> {
        Some(bytes(self.dtype, elements(self.dtype, self.right).into_iter().map(change)))
    }

    fn with_canonical_nan(&self) -> Option<Vec<u8>> {
        let nan = canonical_nan(self.dtype);
        self.changed(|bits| if is_nan(self.dtype, bits) { nan } else { bits })
    }

    /// The minimum or maximum of what is a number, from the element `from` on.
    fn without_nan(&self, op: ReduceOp, from: usize) -> Option<Vec<u8>> {
        if !matches!(op, ReduceOp::Min | ReduceOp::Max) {
            return None;
        }
        let numbers = self.each(|ranks| {
            let numbers: Vec<u64> =
                ranks.iter().copied().filter(|&it| !is_nan(self.dtype, it)).collect();
            reduce_one(self.dtype, op, if numbers.is_empty() { ranks } else { &numbers })
        })?;
        let at = from * self.dtype.size();
        Some([self.right.get(..at)?, numbers.get(at..)?].concat())
    }
}

fn is_nan(dtype: DType, bits: u64) -> bool {
    if dtype == DType::F64 { f64::from_bits(bits).is_nan() } else { decode(dtype, bits).is_nan() }
}

fn is_subnormal(dtype: DType, bits: u64) -> bool {
    let fraction = match dtype {
        DType::BF16 => 7,
        DType::F16 => 10,
        DType::F8E4M3 => 3,
        DType::F8E5M2 => 2,
        DType::F32 => 23,
        _ => 52,
    };
    let magnitude = bits & !(1 << (8 * dtype.size() - 1));
    magnitude != 0 && magnitude >> fraction == 0
}

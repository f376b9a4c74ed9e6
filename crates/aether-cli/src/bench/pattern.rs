//! Test data that depends on rank and position, so that no offset, no rank and no stale byte can be
//! taken for another.

use aether::{DType, ReduceOp};

use super::number;

/// The values that reductions use are at most this large, which is enough to tell places apart.
const LARGEST: u64 = 1 << 20;

/// The data of all ranks for one run.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pattern {
    pub(super) dtype: DType,
    /// Absent where elements are only moved: then they are any bits at all.
    pub(super) reduction: Option<ReduceOp>,
    pub(super) ranks: usize,
    /// Another run, other data: what an earlier run left is wrong.
    pub(super) run: u64,
}

impl Pattern {
    /// Writes the elements of `rank` from element `first` on.
    pub(super) fn fill(&self, rank: usize, first: usize, out: &mut [u8]) {
        let size = self.dtype.size();
        if self.reduction.is_none() {
            return self.fill_bytes(rank, first * size, out);
        }
        for (at, element) in out.chunks_exact_mut(size).enumerate() {
            store(element, self.element(rank, first + at));
        }
    }

    /// Writes what the reduction over all ranks gives, from element `first` on.
    pub(super) fn fill_reduced(&self, first: usize, out: &mut [u8]) {
        let op = self.reduction.unwrap_or(ReduceOp::Sum);
        let mut elements = vec![0; self.ranks];
        for (at, element) in out.chunks_exact_mut(self.dtype.size()).enumerate() {
            for (rank, it) in elements.iter_mut().enumerate() {
                *it = self.element(rank, first + at);
            }
            store(element, number::reduce(self.dtype, op, &elements));
        }
    }

    fn fill_bytes(&self, rank: usize, first: usize, out: &mut [u8]) {
        let mask = if self.dtype == DType::Bool { 1 } else { u8::MAX };
        let mut at = first;
        let mut rest = out;
        while !rest.is_empty() {
            let block = self.mix(rank as u64, (at / 8) as u64).to_le_bytes();
            let block = &block[at % 8..];
            let (part, next) = rest.split_at_mut(block.len().min(rest.len()));
            for (out, byte) in part.iter_mut().zip(block) {
                *out = byte & mask;
            }
            at += part.len();
            rest = next;
        }
    }

    fn element(&self, rank: usize, index: usize) -> u64 {
        number::from_integer(self.dtype, self.value(rank, index))
    }

    /// A small integer. Where the type allows it, all partial results are integers that the type
    /// holds exactly, so that the order of a sum changes nothing, and a backend whose order is its
    /// own can be checked as well.
    fn value(&self, rank: usize, index: usize) -> i64 {
        let here = self.mix(rank as u64, index as u64);
        let place = self.mix(u64::MAX, index as u64);
        let (ranks, rank) = (self.ranks as u64, rank as u64);
        let signed = number::is_signed(self.dtype);
        let limit = number::exact_limit(self.dtype);
        let product = self.reduction == Some(ReduceOp::Prod);
        // Where even ones would add up to too much, or twos multiply to it, only some ranks have
        // more than nothing at a place.
        let active = ranks.min(if product { limit.ilog2().into() } else { limit });
        let is_active = (rank + place % ranks) % ranks < active;
        if product {
            let magnitude = if is_active && here & 2 == 2 { 2 } else { 1 };
            return if signed && here & 1 == 1 { -magnitude } else { magnitude };
        }
        if !is_active {
            return 0;
        }
        let most = (limit / active).min(LARGEST);
        if signed {
            (here % (2 * most + 1)) as i64 - most as i64
        } else {
            (here % (most + 1)) as i64
        }
    }

    /// A hash of run, rank and place: the output function of splitmix64 (Steele, Lea and Flood,
    /// 2014) over odd multiples of each.
    fn mix(&self, rank: u64, place: u64) -> u64 {
        let mut it = place
            .wrapping_mul(0x9e37_79b9_7f4a_7c15)
            .wrapping_add(rank.wrapping_mul(0xd1b5_4a32_d192_ed03))
            .wrapping_add(self.run.wrapping_mul(0x8cb9_2ba7_2f3d_8dd7));
        it = (it ^ (it >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        it = (it ^ (it >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        it ^ (it >> 31)
    }
}

/// How many elements of `size` bytes are not the expected bits; those that are missing are wrong.
pub(super) fn wrong(expected: &[u8], actual: &[u8], size: usize) -> u64 {
    if expected == actual {
        return 0;
    }
    let missing = expected.len().abs_diff(actual.len()).div_ceil(size);
    let pairs = expected.chunks(size).zip(actual.chunks(size));
    (pairs.filter(|(expected, actual)| expected != actual).count() + missing) as u64
}

fn store(element: &mut [u8], bits: u64) {
    for (out, byte) in element.iter_mut().zip(bits.to_le_bytes()) {
        *out = byte;
    }
}

/// The bits of every element.
#[cfg(test)]
pub(super) fn elements(bytes: &[u8], size: usize) -> impl Iterator<Item = u64> {
    bytes
        .chunks_exact(size)
        .map(|it| it.iter().rev().fold(0, |bits, byte| (bits << 8) | u64::from(*byte)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filled(pattern: Pattern, rank: usize, first: usize, count: usize) -> Vec<u8> {
        let mut out = vec![0; count * pattern.dtype.size()];
        pattern.fill(rank, first, &mut out);
        out
    }

    fn patterns() -> impl Iterator<Item = Pattern> {
        let reductions = || ReduceOp::ALL.into_iter().map(Some).chain([None]);
        DType::ALL
            .into_iter()
            .flat_map(move |dtype| reductions().map(move |it| (dtype, it)))
            .filter(|(dtype, reduction)| *dtype != DType::Bool || reduction.is_none())
            .flat_map(|(dtype, reduction)| {
                [1, 4, 9, 64].map(|ranks| Pattern { dtype, reduction, ranks, run: 3 })
            })
    }

    #[test]
    fn a_part_that_is_filled_alone_is_that_part_of_the_whole() {
        for pattern in patterns() {
            let size = pattern.dtype.size();
            let whole = filled(pattern, 0, 0, 40);
            for (first, count) in [(0, 40), (1, 39), (3, 5), (13, 1), (40, 0)] {
                let part = &whole[first * size..][..count * size];
                assert_eq!(filled(pattern, 0, first, count), part, "{pattern:?} {first}");
            }
        }
    }

    #[test]
    fn neighbours_ranks_and_runs_have_other_data() {
        for pattern in patterns() {
            let data = filled(pattern, 0, 0, 200);
            assert_ne!(data, filled(pattern, 0, 1, 200), "{pattern:?}");
            let other_run = Pattern { run: 4, ..pattern };
            assert_ne!(data, filled(other_run, 0, 0, 200), "{pattern:?}");
            if pattern.ranks > 1 {
                assert_ne!(data, filled(pattern, 1, 0, 200), "{pattern:?}");
            }
        }
    }

    #[test]
    fn sums_and_products_are_exact_in_any_order() {
        for pattern in patterns() {
            let Some(op) = pattern.reduction else { continue };
            let limit = number::exact_limit(pattern.dtype);
            for index in 0..300 {
                let values = (0..pattern.ranks).map(|it| pattern.value(it, index));
                let most: i64 = match op {
                    ReduceOp::Prod => values.map(i64::abs).product(),
                    _ => values.map(i64::abs).sum(),
                };
                assert!(most as u64 <= limit, "{pattern:?} {index}: {most}");
            }
        }
    }

    #[test]
    fn the_reduced_data_are_the_reduction_of_the_data() {
        let pattern =
            Pattern { dtype: DType::I32, reduction: Some(ReduceOp::Sum), ranks: 3, run: 1 };
        let mut reduced = vec![0; 80];
        pattern.fill_reduced(5, &mut reduced);
        let ranks = [0, 1, 2].map(|it| filled(pattern, it, 5, 20));
        for (at, sum) in elements(&reduced, 4).enumerate() {
            let expected = ranks.iter().fold(0_i32, |sum, it| {
                let bits = elements(it, 4).nth(at).unwrap_or_default();
                sum.wrapping_add(bits as i32)
            });
            assert_eq!(sum as i32, expected, "{at}");
        }
    }

    #[test]
    fn a_bool_is_0_or_1_and_both_occur() {
        let pattern = Pattern { dtype: DType::Bool, reduction: None, ranks: 2, run: 1 };
        let mut data = filled(pattern, 1, 0, 100);
        data.sort_unstable();
        data.dedup();
        assert_eq!(data, [0, 1]);
    }

    #[test]
    fn wrong_counts_elements_and_not_bytes() {
        let expected = [1, 2, 3, 4, 5, 6, 7, 8];
        assert_eq!(wrong(&expected, &expected, 4), 0);
        assert_eq!(wrong(&expected, &[0, 0, 0, 0, 5, 6, 7, 8], 4), 1);
        assert_eq!(wrong(&expected, &[1, 2, 3, 4, 5, 6, 7, 9], 4), 1);
        assert_eq!(wrong(&expected, &[1, 2, 3, 0, 0, 6, 7, 8], 2), 2);
        assert_eq!(wrong(&expected, &[1, 2, 3, 4], 4), 1);
        assert_eq!(wrong(&[], &expected, 4), 2);
    }
}

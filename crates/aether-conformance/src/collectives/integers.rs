//! Integers: sums and products wrap, means are exact.

use aether_collective::ReduceOp;
use aether_core::DType;

use super::bench::{Bench, Step, Stop};
use super::buffer::of_bits;
use super::calls::{brought, verify};
use super::operation::Operation;
use super::reference;
use crate::suite::Random;

super::theme! {
    "integers":
    sums_and_products_wrap,
    means_are_exact_and_truncated_toward_zero,
    minima_and_maxima_know_the_sign,
}

/// Bits around the extremes of the type and around zero, in every combination over the ranks.
fn extremes(dtype: DType, count: usize, rank: usize) -> Vec<u8> {
    let top = 1u64 << (8 * dtype.size() - 1);
    let values = [top - 1, top, top + 1, u64::MAX, u64::MAX - 1, 0, 1, 2, 3, top / 2, u64::MAX / 3];
    let mut random = Random::new(rank as u64 + 31);
    let pick = |at: usize| match at % 3 {
        // Every rank at the same extreme: what overflows, overflows here.
        0 => values[at / 3 % values.len()],
        1 => values[random.below(values.len())],
        _ => random.next_u64(),
    };
    of_bits(dtype, &(0..count).map(pick).collect::<Vec<_>>())
}

fn check(bench: &Bench<'_>, op: ReduceOp) -> Step {
    let integer = |it: &DType| !reference::is_float(*it);
    let types: Vec<DType> = bench.reducible(op).into_iter().filter(integer).collect();
    if types.is_empty() {
        return Err(Stop::Skipped(format!("the driver reduces no integer by {op}")));
    }
    for ranks in [2, 3, 4, 5] {
        bench.both(ranks, |team, devices| {
            for &dtype in &types {
                for operation in [Operation::AllReduce(op), Operation::ReduceScatter(op)] {
                    let sources =
                        brought(&operation, ranks, 66, |count, rank| extremes(dtype, count, rank));
                    verify(team, devices, &operation, dtype, &sources, |_| 0)?;
                }
            }
            Ok(())
        })?;
    }
    Ok(())
}

fn sums_and_products_wrap(bench: &Bench<'_>) -> Step {
    check(bench, ReduceOp::Sum)?;
    check(bench, ReduceOp::Prod)
}

fn means_are_exact_and_truncated_toward_zero(bench: &Bench<'_>) -> Step {
    check(bench, ReduceOp::Mean)
}

fn minima_and_maxima_know_the_sign(bench: &Bench<'_>) -> Step {
    check(bench, ReduceOp::Min)?;
    check(bench, ReduceOp::Max)
}

//! Reductions go in rank order, for every element.

use aether_collective::ReduceOp;
use aether_core::DType;

use super::bench::{Bench, Step, expect};
use super::buffer::{numbers, of_bits};
use super::calls::{brought, verify};
use super::operation::Operation;
use super::reference;

super::theme! {
    "order":
    sums_go_in_rank_order,
    products_and_means_go_in_rank_order,
    large_sums_go_in_rank_order,
    every_reducing_operation_goes_in_rank_order,
}

/// What one rank brings, so that every order but 0, 1, 2, ... gives other bits.
fn telling(dtype: DType, ranks: usize, count: usize) -> Vec<Vec<u8>> {
    // The first number to which 1 can't be added.
    let large = if dtype == DType::F64 { 9_007_199_254_740_992.0 } else { 16_777_216.0 };
    let value = |rank: usize, at: usize| {
        let sign = if at.is_multiple_of(2) { 1.0 } else { -1.0 };
        // The large ones cancel, and what is added before they have is lost.
        sign * match rank {
            0 => large,
            1 => 1.0 + (at % 5) as f64 / 4.0,
            2 => -large,
            _ => 0.3 * rank as f64,
        }
    };
    let bits = |rank, at| match dtype {
        DType::F64 => value(rank, at).to_bits(),
        _ => u64::from((value(rank, at) as f32).to_bits()),
    };
    let bring = |rank| of_bits(dtype, &(0..count).map(|at| bits(rank, at)).collect::<Vec<_>>());
    (0..ranks).map(bring).collect()
}

fn sums_go_in_rank_order(bench: &Bench<'_>) -> Step {
    for dtype in [DType::F32, DType::F64] {
        bench.needs(dtype, ReduceOp::Sum)?;
        for ranks in [3, 4, 5] {
            let sources = telling(dtype, ranks, 67);
            // The data would be no test if another order gave the same.
            let wanted = reference::reduce(dtype, ReduceOp::Sum, &sources);
            let mut turned = sources.clone();
            for _ in 1..ranks {
                turned.rotate_left(1);
                let other = reference::reduce(dtype, ReduceOp::Sum, &turned);
                expect(other != wanted, || "the data tells no order".to_owned())?;
            }
            bench.both(ranks, |team, devices| {
                let operation = Operation::AllReduce(ReduceOp::Sum);
                verify(team, devices, &operation, dtype, &sources, |_| 0)
            })?;
        }
    }
    Ok(())
}

fn products_and_means_go_in_rank_order(bench: &Bench<'_>) -> Step {
    for op in [ReduceOp::Prod, ReduceOp::Mean] {
        for dtype in bench.floats(op) {
            bench.both(5, |team, devices| {
                let operation = Operation::AllReduce(op);
                let sources =
                    brought(&operation, 5, 131, |count, rank| numbers(dtype, count, rank, 7));
                verify(team, devices, &operation, dtype, &sources, |_| 0)
            })?;
        }
    }
    Ok(())
}

fn large_sums_go_in_rank_order(bench: &Bench<'_>) -> Step {
    bench.needs(DType::F32, ReduceOp::Sum)?;
    let sources = telling(DType::F32, 4, 120_007);
    bench.both(4, |team, devices| {
        let operation = Operation::AllReduce(ReduceOp::Sum);
        verify(team, devices, &operation, DType::F32, &sources, |_| 0)
    })
}

fn every_reducing_operation_goes_in_rank_order(bench: &Bench<'_>) -> Step {
    let (dtype, op) = (DType::F32, ReduceOp::Sum);
    bench.needs(dtype, op)?;
    bench.both(4, |team, devices| {
        for root in 0..4 {
            let operation = Operation::Reduce(op, root);
            verify(team, devices, &operation, dtype, &telling(dtype, 4, 31), |_| 0)?;
        }
        let operation = Operation::ReduceScatter(op);
        verify(team, devices, &operation, dtype, &telling(dtype, 4, 4 * 17), |_| 0)?;
        let operation = Operation::ReduceScatterV(vec![3, 0, 20, 8], op);
        verify(team, devices, &operation, dtype, &telling(dtype, 4, 31), |_| 0)
    })
}

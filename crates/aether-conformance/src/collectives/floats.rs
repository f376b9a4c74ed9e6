//! Floats: how they are accumulated and rounded, NaN, zeros, and what doesn't fit.

use aether_collective::ReduceOp;
use aether_core::DType;

use super::bench::{Bench, Step, Stop};
use super::buffer::{any_bits, numbers, of_bits};
use super::calls::{brought, perform, same, verify};
use super::operation::Operation;
use super::reference::{canonical_nan, encode};

super::theme! {
    "floats":
    narrow_floats_are_accumulated_in_f32_and_rounded_once,
    rounding_is_to_nearest_even,
    subnormals_are_kept,
    what_overflows_is_nan_in_e4m3_and_infinity_elsewhere,
    f32_and_f64_accumulate_in_their_own_type,
    means_are_one_division_by_the_number_of_ranks,
    nan_wins_in_min_and_max_at_every_position,
    nan_results_are_canonical,
    the_negative_zero_is_the_smaller,
}

/// Floats of at most 16 bits, with the first power of two above which 1 is less than half a step.
const NARROW: [(DType, f32); 4] =
    [(DType::BF16, 256.0), (DType::F16, 2048.0), (DType::F8E4M3, 16.0), (DType::F8E5M2, 8.0)];

/// Reduces one element a rank, repeated so that it stands in vector bodies and in tails, and expects
/// these bits.
fn gives(bench: &Bench<'_>, op: ReduceOp, dtype: DType, ranks: &[u64], wanted: u64) -> Step {
    bench.needs(dtype, op)?;
    let sources: Vec<Vec<u8>> = ranks.iter().map(|&it| of_bits(dtype, &[it; 37])).collect();
    bench.both(ranks.len(), |team, devices| {
        let found = perform(team, devices, &Operation::AllReduce(op), dtype, &sources, |_| 0)?;
        for found in found.iter().flatten() {
            same(dtype, found, &of_bits(dtype, &[wanted; 37]))
                .map_err(|it: Stop| it.during(format!("{op} of {ranks:x?} in {dtype}")))?;
        }
        Ok(())
    })
}

/// The bits of a value in a type.
fn bits(dtype: DType, value: f32) -> u64 {
    if dtype == DType::F64 { f64::from(value).to_bits() } else { encode(dtype, value) }
}

/// The narrow floats that the driver sums; skips the case if it sums none.
fn narrow(bench: &Bench<'_>) -> Step<Vec<(DType, f32)>> {
    let summed = bench.floats(ReduceOp::Sum);
    let narrow: Vec<_> = NARROW.into_iter().filter(|it| summed.contains(&it.0)).collect();
    match narrow.is_empty() {
        true => Err(Stop::Skipped("the driver reduces no float below 32 bits".to_owned())),
        false => Ok(narrow),
    }
}

fn narrow_floats_are_accumulated_in_f32_and_rounded_once(bench: &Bench<'_>) -> Step {
    for (dtype, large) in narrow(bench)? {
        // Rounded at every hop the ones would be lost.
        let ranks = [large, 1.0, 1.0].map(|it| bits(dtype, it));
        gives(bench, ReduceOp::Sum, dtype, &ranks, bits(dtype, large + 2.0))?;
        let ranks = [large, 1.0, 1.0, -large].map(|it| bits(dtype, it));
        gives(bench, ReduceOp::Sum, dtype, &ranks, bits(dtype, 2.0))?;
        gives(bench, ReduceOp::Mean, dtype, &ranks, bits(dtype, 0.5))?;
        let operation = Operation::AllReduce(ReduceOp::Sum);
        let sources = brought(&operation, 5, 300, |count, rank| numbers(dtype, count, rank, 8));
        bench.both(5, |team, devices| verify(team, devices, &operation, dtype, &sources, |_| 0))?;
    }
    Ok(())
}

fn rounding_is_to_nearest_even(bench: &Bench<'_>) -> Step {
    for (dtype, large) in narrow(bench)? {
        let sum = |one: f32, two: f32, wanted: f32| {
            let ranks = [one, two].map(|it| bits(dtype, it));
            gives(bench, ReduceOp::Sum, dtype, &ranks, bits(dtype, wanted))
        };
        sum(large, 1.0, large)?;
        sum(large + 2.0, 1.0, large + 4.0)?;
        sum(-large - 2.0, -1.0, -large - 4.0)?;
        sum(large, 1.5, large + 2.0)?;
    }
    Ok(())
}

fn subnormals_are_kept(bench: &Bench<'_>) -> Step {
    for op in [ReduceOp::Sum, ReduceOp::Min, ReduceOp::Max] {
        for dtype in bench.floats(op) {
            // The smallest of all, with its neighbours.
            for (one, two, sum) in [(1, 0, 1), (1, 1, 2), (2, 1, 3)] {
                let wanted = match op {
                    ReduceOp::Sum => sum,
                    ReduceOp::Min => two,
                    _ => one,
                };
                gives(bench, op, dtype, &[one, two], wanted)?;
            }
        }
    }
    for dtype in bench.floats(ReduceOp::Prod) {
        // Half of the smallest normal number.
        let normal: u64 = match dtype {
            DType::BF16 => 1 << 7,
            DType::F16 => 1 << 10,
            DType::F8E4M3 => 1 << 3,
            DType::F8E5M2 => 1 << 2,
            DType::F32 => 1 << 23,
            _ => 1 << 52,
        };
        let half = bits(dtype, 0.5);
        gives(bench, ReduceOp::Prod, dtype, &[normal, half], normal / 2)?;
        gives(bench, ReduceOp::Mean, dtype, &[normal, 0], normal / 2)?;
    }
    Ok(())
}

fn what_overflows_is_nan_in_e4m3_and_infinity_elsewhere(bench: &Bench<'_>) -> Step {
    for dtype in bench.floats(ReduceOp::Sum) {
        let (sign, largest, infinity) = match dtype {
            DType::BF16 => (1 << 15, 0x7f7f, 0x7f80),
            DType::F16 => (1 << 15, 0x7bff, 0x7c00),
            DType::F8E4M3 => (1 << 7, 0x7e, canonical_nan(dtype)),
            DType::F8E5M2 => (1 << 7, 0x7b, 0x7c),
            DType::F32 => (1 << 31, 0x7f7f_ffff, 0x7f80_0000),
            _ => (1 << 63, 0x7fef_ffff_ffff_ffff, 0x7ff0_0000_0000_0000),
        };
        gives(bench, ReduceOp::Sum, dtype, &[largest, largest], infinity)?;
        let minus = if dtype == DType::F8E4M3 { infinity } else { infinity | sign };
        gives(bench, ReduceOp::Sum, dtype, &[largest | sign, largest | sign], minus)?;
        // What doesn't overflow is the largest still.
        gives(bench, ReduceOp::Sum, dtype, &[largest, 1], largest)?;
        if dtype != DType::F8E4M3 {
            let nan = canonical_nan(dtype);
            gives(bench, ReduceOp::Sum, dtype, &[infinity, infinity | sign], nan)?;
        }
    }
    for (dtype, _) in narrow(bench)?.into_iter().filter(|it| it.0 != DType::BF16) {
        // Beyond the type on the way, and not in the end.
        let largest =
            if dtype == DType::F16 { 0x7bff } else { 0x7e - 3 * u64::from(dtype == DType::F8E5M2) };
        let minus = largest | 1 << (8 * dtype.size() - 1);
        gives(bench, ReduceOp::Sum, dtype, &[largest, largest, minus], largest)?;
        gives(bench, ReduceOp::Mean, dtype, &[largest, largest], largest)?;
    }
    Ok(())
}

fn f32_and_f64_accumulate_in_their_own_type(bench: &Bench<'_>) -> Step {
    let single = [16_777_216f32, 1.0, 1.0].map(|it| u64::from(it.to_bits()));
    gives(bench, ReduceOp::Sum, DType::F32, &single, single[0])?;
    let double = [9_007_199_254_740_992f64, 1.0, 1.0].map(f64::to_bits);
    gives(bench, ReduceOp::Sum, DType::F64, &double, double[0])?;
    // An f32 in between would lose the one.
    let double = [16_777_216f64, 1.0].map(f64::to_bits);
    gives(bench, ReduceOp::Sum, DType::F64, &double, 16_777_217f64.to_bits())
}

fn means_are_one_division_by_the_number_of_ranks(bench: &Bench<'_>) -> Step {
    for dtype in bench.floats(ReduceOp::Mean) {
        let of = |values: &[f32]| values.iter().map(|&it| bits(dtype, it)).collect::<Vec<_>>();
        gives(bench, ReduceOp::Mean, dtype, &of(&[1.0, 2.0, 6.0]), bits(dtype, 3.0))?;
        for ranks in [2, 3, 5] {
            for operation in [
                Operation::AllReduce(ReduceOp::Mean),
                Operation::Reduce(ReduceOp::Mean, 1),
                Operation::ReduceScatter(ReduceOp::Mean),
                Operation::ReduceScatterV(
                    (0..ranks as u64).map(|it| 7 * it).collect(),
                    ReduceOp::Mean,
                ),
            ] {
                let sources =
                    brought(&operation, ranks, 101, |count, rank| numbers(dtype, count, rank, 9));
                bench.both(ranks, |team, devices| {
                    verify(team, devices, &operation, dtype, &sources, |_| 0)
                })?;
            }
        }
    }
    Ok(())
}

fn nan_wins_in_min_and_max_at_every_position(bench: &Bench<'_>) -> Step {
    let ranks = 3;
    for op in [ReduceOp::Min, ReduceOp::Max] {
        for dtype in bench.floats(op) {
            bench.both(ranks, |team, devices| {
                for (holder, count) in (0..ranks).flat_map(|it| [(it, 67), (it, 33), (it, 5)]) {
                    let bring = |elements: usize, rank: usize| {
                        let plain = numbers(dtype, elements, rank, 10);
                        let mut all = super::reference::elements(dtype, &plain);
                        // Every position but each seventh, so that both kinds stand side by side.
                        for (at, it) in all.iter_mut().enumerate() {
                            if rank == holder && at % 7 != 3 {
                                *it = canonical_nan(dtype);
                            }
                        }
                        of_bits(dtype, &all)
                    };
                    let operation = Operation::AllReduce(op);
                    let sources = brought(&operation, ranks, count, bring);
                    let skew = |at: usize| (at + holder) % 4;
                    verify(team, devices, &operation, dtype, &sources, skew)
                        .map_err(|it: Stop| it.during(format!("NaN at rank {holder}")))?;
                }
                Ok(())
            })?;
        }
    }
    Ok(())
}

fn nan_results_are_canonical(bench: &Bench<'_>) -> Step {
    for op in ReduceOp::ALL {
        for dtype in bench.floats(op) {
            let nan = canonical_nan(dtype);
            let minus = nan | 1 << (8 * dtype.size() - 1);
            // e4m3 has no other payload.
            let payload = if dtype == DType::F8E4M3 { nan } else { nan | 1 };
            let one = bits(dtype, 1.0);
            for ranks in
                [[payload, one], [one, payload], [minus, one], [one, minus], [payload, minus]]
            {
                gives(bench, op, dtype, &ranks, nan)?;
            }
            let operation = Operation::AllReduce(op);
            let sources =
                brought(&operation, 4, 90, |count, rank| any_bits(dtype, count, rank, 11));
            bench.both(4, |team, devices| {
                verify(team, devices, &operation, dtype, &sources, |_| 0)
            })?;
        }
    }
    Ok(())
}

fn the_negative_zero_is_the_smaller(bench: &Bench<'_>) -> Step {
    for op in [ReduceOp::Min, ReduceOp::Max] {
        for dtype in bench.floats(op) {
            let (plus, minus) = (0, 1 << (8 * dtype.size() - 1));
            let wanted = if op == ReduceOp::Min { minus } else { plus };
            for ranks in [[plus, minus, plus], [minus, plus, plus], [minus, minus, plus]] {
                gives(bench, op, dtype, &ranks, wanted)?;
            }
        }
    }
    Ok(())
}

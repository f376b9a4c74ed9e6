//! The same bits on every rank and in every run.

use aether_collective::ReduceOp;
use aether_core::DType;

use super::bench::{Bench, Form, Step, Stop, expect};
use super::buffer::{any_bits, numbers};
use super::calls::{brought, perform, same, verify};
use super::operation::Operation;

super::theme! {
    "results":
    every_rank_has_the_same_bits,
    every_type_and_reduction_agrees_with_the_reference,
    runs_and_forms_give_the_same_bits,
    the_size_of_a_message_changes_no_bits,
    the_address_changes_no_bits,
    checked_mode_changes_no_bits,
}

fn every_rank_has_the_same_bits(bench: &Bench<'_>) -> Step {
    for ranks in 2..=5 {
        bench.both(ranks, |team, devices| {
            let mut operations: Vec<_> = ReduceOp::ALL.map(Operation::AllReduce).to_vec();
            operations.extend([Operation::AllGather, Operation::Broadcast(ranks - 1)]);
            for (at, operation) in operations.iter().enumerate() {
                for dtype in types_for(bench, operation) {
                    let sources = brought(operation, ranks, 67, |count, rank| {
                        any_bits(dtype, count, rank, at as u64)
                    });
                    let found = perform(team, devices, operation, dtype, &sources, |_| 0)?;
                    let first = found.first().cloned().flatten().unwrap_or_default();
                    for (rank, other) in found.iter().enumerate() {
                        let what = format!("{operation:?} of {dtype}: rank {rank} beside rank 0");
                        let other = other.as_deref().unwrap_or_default();
                        same(dtype, other, &first).map_err(|it| it.during(what))?;
                    }
                }
            }
            Ok(())
        })?;
    }
    Ok(())
}

fn every_type_and_reduction_agrees_with_the_reference(bench: &Bench<'_>) -> Step {
    for ranks in [2, 3, 5] {
        bench.both(ranks, |team, devices| {
            for op in ReduceOp::ALL {
                for dtype in bench.reducible(op) {
                    for operation in [Operation::AllReduce(op), Operation::ReduceScatter(op)] {
                        for salt in [1, 2] {
                            let sources =
                                brought(&operation, ranks, 29, |count, rank| match salt {
                                    1 => numbers(dtype, count, rank, salt),
                                    _ => any_bits(dtype, count, rank, salt),
                                });
                            verify(team, devices, &operation, dtype, &sources, |_| 0)?;
                        }
                    }
                }
            }
            Ok(())
        })?;
    }
    Ok(())
}

fn runs_and_forms_give_the_same_bits(bench: &Bench<'_>) -> Step {
    let dtype = DType::F32;
    bench.needs(dtype, ReduceOp::Sum)?;
    let operation = Operation::AllReduce(ReduceOp::Sum);
    let sources = brought(&operation, 4, 5000, |count, rank| numbers(dtype, count, rank, 3));
    let devices = bench.devices(4)?;
    let mut first: Option<Vec<u8>> = None;
    for run in 0..4 {
        for form in Form::ALL {
            let mut team = bench.team(form, &devices, &bench.config())?;
            for call in 0..3 {
                let found = perform(&mut team, &devices, &operation, dtype, &sources, |_| 0)?;
                for found in found.into_iter().flatten() {
                    match &first {
                        Some(first) => same(dtype, &found, first)
                            .map_err(|it| it.during(format!("run {run}, {form:?}, call {call}")))?,
                        None => first = Some(found),
                    }
                }
            }
            team.finish()?;
        }
    }
    Ok(())
}

/// A prefix of a reduction is the reduction of the prefixes.
fn the_size_of_a_message_changes_no_bits(bench: &Bench<'_>) -> Step {
    let dtype = DType::F32;
    bench.needs(dtype, ReduceOp::Sum)?;
    let operation = Operation::AllReduce(ReduceOp::Sum);
    // More than any driver moves in one piece.
    let most = 150_001;
    let whole = brought(&operation, 3, most, |count, rank| numbers(dtype, count, rank, 4));
    bench.both(3, |team, devices| {
        let all = perform(team, devices, &operation, dtype, &whole, |_| 0)?;
        let all = all.into_iter().flatten().next().unwrap_or_default();
        for count in [1, 2, 7, 64, 1000, 1023, 16_384, 70_000, most] {
            let bytes = count * dtype.size();
            let cut = |it: &Vec<u8>| it.iter().copied().take(bytes).collect::<Vec<u8>>();
            let parts: Vec<Vec<u8>> = whole.iter().map(cut).collect();
            let found = perform(team, devices, &operation, dtype, &parts, |_| 0)?;
            for found in found.iter().flatten() {
                let what = format!("{count} elements beside {most}");
                same(dtype, found, &cut(&all)).map_err(|it| it.during(what))?;
            }
        }
        Ok(())
    })
}

fn the_address_changes_no_bits(bench: &Bench<'_>) -> Step {
    let operation = Operation::AllReduce(ReduceOp::Sum);
    for dtype in bench.floats(ReduceOp::Sum) {
        let sources = brought(&operation, 3, 203, |count, rank| numbers(dtype, count, rank, 5));
        bench.both(3, |team, devices| {
            let mut first: Option<Vec<u8>> = None;
            for skew in 0..5 {
                let found =
                    perform(team, devices, &operation, dtype, &sources, |at| skew * (at + 1) % 7)?;
                for found in found.into_iter().flatten() {
                    match &first {
                        Some(first) => same(dtype, &found, first)
                            .map_err(|it| it.during(format!("{dtype}, {skew} elements off")))?,
                        None => first = Some(found),
                    }
                }
            }
            Ok(())
        })?;
    }
    Ok(())
}

fn checked_mode_changes_no_bits(bench: &Bench<'_>) -> Step {
    let devices = bench.devices(3)?;
    let config = bench.config().with_checked(true);
    let mut team = bench.team(Form::ThreadPerRank, &devices, &config)?;
    for operation in Operation::alike(ReduceOp::Sum, 1) {
        for dtype in types_for(bench, &operation) {
            let sources = brought(&operation, 3, 33, |count, rank| numbers(dtype, count, rank, 6));
            verify(&mut team, &devices, &operation, dtype, &sources, |_| 0)
                .map_err(|it: Stop| it.during("checked"))?;
        }
    }
    expect(team.callers().iter().all(|it| it.check().is_ok()), || {
        "a group in checked mode broke although all ranks agreed".to_owned()
    })?;
    team.finish()
}

/// The types on which the driver runs the operation.
fn types_for(bench: &Bench<'_>, operation: &Operation) -> Vec<DType> {
    operation.reduction().map_or_else(|| bench.types(), |op| bench.reducible(op))
}

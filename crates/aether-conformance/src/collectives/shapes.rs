//! Counts, addresses and numbers of ranks of every kind.

use aether_collective::{ReduceOp, Request};
use aether_core::{DType, ErrorKind};

use super::bench::{Bench, Form, Step, Stop, expect, expect_kind};
use super::buffer::{Buffer, any_bits, numbers};
use super::calls::{brought, verify};
use super::operation::Operation;

super::theme! {
    "shapes":
    zero_elements_take_part_and_touch_nothing,
    zero_elements_are_matched,
    zero_elements_wait_for_every_rank,
    one_rank_is_the_copy,
    odd_counts,
    any_address_that_is_a_multiple_of_the_element,
    all_reduce_and_broadcast_take_counts_that_ranks_do_not_divide,
    chunks_that_ranks_do_not_divide_are_refused,
    vector_variants_take_any_counts,
    large_messages,
    many_ranks,
}

fn zero_elements_take_part_and_touch_nothing(bench: &Bench<'_>) -> Step {
    for ranks in [1, 2, 3] {
        bench.both(ranks, |team, devices| {
            let mut operations = Operation::alike(ReduceOp::Sum, ranks - 1);
            let none = vec![0; ranks];
            operations.push(Operation::AllGatherV(none.clone()));
            operations.push(Operation::ReduceScatterV(none, ReduceOp::Sum));
            operations.push(Operation::AllToAllV(vec![0; ranks * ranks]));
            for operation in operations {
                let sources = vec![Vec::new(); ranks];
                verify(team, devices, &operation, DType::F32, &sources, |at| at % 3)?;
                // The group goes on in step.
                let next = Operation::AllReduce(ReduceOp::Sum);
                let sources =
                    brought(&next, ranks, 3, |count, rank| numbers(DType::F32, count, rank, 12));
                verify(team, devices, &next, DType::F32, &sources, |_| 0)?;
            }
            Ok(())
        })?;
    }
    Ok(())
}

fn zero_elements_are_matched(bench: &Bench<'_>) -> Step {
    let devices = bench.devices(2)?;
    let mut team = bench.team(Form::ThreadPerRank, &devices, &bench.hasty())?;
    let mut buffers = Vec::new();
    for device in &devices {
        buffers.push(Buffer::new(device, DType::F32, &[], 0)?);
    }
    let mut requests = Vec::new();
    for (rank, buffer) in buffers.iter_mut().enumerate() {
        let dst = buffer.span_mut()?;
        requests.push(match rank {
            0 => Request::AllReduce { src: None, dst, op: ReduceOp::Sum },
            _ => Request::Broadcast { src: None, dst, root: 0 },
        });
    }
    let outcomes = team.outcomes(requests, bench.patience())?;
    let told = outcomes.iter().filter(|it| it.is_err()).count();
    expect(told > 0, || "ranks that differ in a call of zero elements were not told".to_owned())?;
    for outcome in outcomes {
        if outcome.is_err() {
            expect_kind(outcome, ErrorKind::RankMismatch, "calls of zero elements that differ")?;
        }
    }
    Ok(())
}

fn zero_elements_wait_for_every_rank(bench: &Bench<'_>) -> Step {
    let devices = bench.devices(2)?;
    let mut team = bench.team(Form::ThreadPerRank, &devices, &bench.hasty())?;
    let mut buffer = Buffer::new(&devices[0], DType::F32, &[], 0)?;
    let dst = buffer.span_mut()?;
    let request = Request::AllReduce { src: None, dst, op: ReduceOp::Sum };
    // Only rank 0 makes the call.
    let outcome = team.outcomes(vec![request], bench.patience())?.pop().unwrap_or(Ok(()));
    let what = "a call of zero elements that the other rank doesn't make";
    let error = expect_kind(outcome, ErrorKind::DeadlineExceeded, what)?;
    expect(error.ranks() == [1], || format!("{what} names {:?}", error.ranks()))
}

fn one_rank_is_the_copy(bench: &Bench<'_>) -> Step {
    bench.both(1, |team, devices| {
        let operations = ReduceOp::ALL.into_iter().flat_map(|op| {
            let mut all = Operation::alike(op, 0);
            all.extend([Operation::AllGatherV(vec![41]), Operation::AllToAllV(vec![41])]);
            all.push(Operation::ReduceScatterV(vec![41], op));
            all
        });
        for operation in operations {
            let types = match operation.reduction() {
                Some(op) => bench.reducible(op),
                None => bench.types(),
            };
            for dtype in types {
                let sources = vec![any_bits(dtype, 41, 0, 13)];
                verify(team, devices, &operation, dtype, &sources, |at| at)?;
            }
        }
        Ok(())
    })
}

fn odd_counts(bench: &Bench<'_>) -> Step {
    let counts = [1, 2, 3, 5, 7, 8, 9, 15, 17, 31, 33, 63, 65, 127, 129, 1023];
    bench.both(3, |team, devices| {
        for operation in Operation::alike(ReduceOp::Sum, 2) {
            for dtype in [DType::F32, DType::U8, DType::F16] {
                let reduces = |op| bench.reducible(op).contains(&dtype);
                let runs = operation.reduction().map_or(bench.subject.knows(dtype), reduces);
                for &count in counts.iter().filter(|_| runs) {
                    let sources = brought(&operation, 3, count, |count, rank| {
                        numbers(dtype, count, rank, count as u64)
                    });
                    verify(team, devices, &operation, dtype, &sources, |_| 0)
                        .map_err(|it: Stop| it.during(format!("{count} elements")))?;
                }
            }
        }
        Ok(())
    })
}

fn any_address_that_is_a_multiple_of_the_element(bench: &Bench<'_>) -> Step {
    bench.both(3, |team, devices| {
        for operation in Operation::alike(ReduceOp::Sum, 0) {
            let types = match operation.reduction() {
                Some(op) => bench.reducible(op),
                None => bench.types(),
            };
            for dtype in types {
                for skew in 0..3 {
                    let sources =
                        brought(&operation, 3, 35, |count, rank| numbers(dtype, count, rank, 14));
                    let off = |at: usize| (at * 5 + skew * 3) % 8;
                    verify(team, devices, &operation, dtype, &sources, off)?;
                }
            }
        }
        Ok(())
    })
}

fn all_reduce_and_broadcast_take_counts_that_ranks_do_not_divide(bench: &Bench<'_>) -> Step {
    let dtype = DType::I32;
    bench.needs(dtype, ReduceOp::Sum)?;
    for ranks in 2..=5 {
        bench.both(ranks, |team, devices| {
            for count in (1..3 * ranks).filter(|it| !it.is_multiple_of(ranks)).chain([4999]) {
                for operation in [
                    Operation::AllReduce(ReduceOp::Sum),
                    Operation::Reduce(ReduceOp::Sum, ranks - 1),
                    Operation::Broadcast(0),
                ] {
                    let sources = brought(&operation, ranks, count, |count, rank| {
                        numbers(dtype, count, rank, 15)
                    });
                    verify(team, devices, &operation, dtype, &sources, |_| 0)
                        .map_err(|it: Stop| it.during(format!("{count} elements")))?;
                }
            }
            Ok(())
        })?;
    }
    Ok(())
}

fn chunks_that_ranks_do_not_divide_are_refused(bench: &Bench<'_>) -> Step {
    bench.both(3, |team, devices| {
        let dtype = DType::I32;
        for chunked in 0..3 {
            let mut src = Vec::new();
            let mut dst = Vec::new();
            for device in devices {
                // Ten elements are no three chunks.
                let (from, to) = [(3, 10), (10, 3), (10, 10)][chunked];
                src.push(Buffer::garbage(device, dtype, from, 0)?);
                dst.push(Buffer::garbage(device, dtype, to, 0)?);
            }
            let mut requests = Vec::new();
            for (src, dst) in src.iter().zip(&mut dst) {
                let (src, dst) = (src.span()?, dst.span_mut()?);
                requests.push(match chunked {
                    0 => Request::AllGather { src: Some(src), dst },
                    1 => Request::ReduceScatter { src, dst, op: ReduceOp::Sum },
                    _ => Request::AllToAll { src, dst },
                });
            }
            for outcome in team.run(requests) {
                expect_kind(outcome, ErrorKind::SizeMismatch, "ten elements for three ranks")?;
            }
        }
        Ok(())
    })
}

fn vector_variants_take_any_counts(bench: &Bench<'_>) -> Step {
    for ranks in [2, 3, 5] {
        bench.both(ranks, |team, devices| {
            let mut operations = Operation::vector(ReduceOp::Sum, ranks);
            // One rank has all, and one has none.
            let mut one_has_all = vec![0; ranks];
            one_has_all[ranks - 1] = 129;
            operations.push(Operation::AllGatherV(one_has_all.clone()));
            operations.push(Operation::ReduceScatterV(one_has_all, ReduceOp::Max));
            for operation in operations {
                for dtype in [DType::F32, DType::I64, DType::U8] {
                    let reduces = |op| bench.reducible(op).contains(&dtype);
                    if !operation.reduction().map_or(bench.subject.knows(dtype), reduces) {
                        continue;
                    }
                    let sources = brought(&operation, ranks, 0, |count, rank| {
                        numbers(dtype, count, rank, 16)
                    });
                    verify(team, devices, &operation, dtype, &sources, |at| at % 3)?;
                }
            }
            Ok(())
        })?;
    }
    Ok(())
}

fn large_messages(bench: &Bench<'_>) -> Step {
    let dtype = DType::I32;
    bench.needs(dtype, ReduceOp::Sum)?;
    bench.both(3, |team, devices| {
        for operation in Operation::alike(ReduceOp::Sum, 1) {
            let sources =
                brought(&operation, 3, 40_003, |count, rank| numbers(dtype, count, rank, 17));
            verify(team, devices, &operation, dtype, &sources, |at| at)?;
        }
        Ok(())
    })
}

fn many_ranks(bench: &Bench<'_>) -> Step {
    let dtype = DType::F32;
    bench.needs(dtype, ReduceOp::Sum)?;
    for ranks in [7, 9, 16] {
        bench.both(ranks, |team, devices| {
            for operation in Operation::alike(ReduceOp::Sum, ranks / 2) {
                let sources =
                    brought(&operation, ranks, 5, |count, rank| numbers(dtype, count, rank, 18));
                verify(team, devices, &operation, dtype, &sources, |_| 0)?;
            }
            Ok(())
        })?;
    }
    Ok(())
}

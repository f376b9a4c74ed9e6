//! What moves elements without reducing them.

use std::sync::atomic::{AtomicUsize, Ordering};

use aether_collective::{ReduceOp, Request};
use aether_core::{DType, ErrorKind};

use super::bench::{Bench, Form, Step, Stop, Team, expect, expect_kind};
use super::buffer::any_bits;
use super::calls::{brought, verify};
use super::operation::Operation;

super::theme! {
    "moves":
    all_gather,
    all_gather_v,
    all_to_all,
    all_to_all_v,
    broadcast_from_every_root,
    gather_to_every_root,
    scatter_from_every_root,
    reduce_to_every_root,
    reduce_scatter,
    reduce_scatter_v,
    every_type_keeps_its_bits,
    bool_is_moved,
    bool_is_never_reduced,
    a_barrier_waits_for_every_rank,
}

/// Runs operations with 2 to 5 ranks, in both forms.
fn check(bench: &Bench<'_>, operations: impl Fn(usize) -> Vec<Operation>) -> Step {
    let dtype = DType::I32;
    for ranks in 2..=5 {
        bench.both(ranks, |team, devices| {
            for operation in operations(ranks) {
                if let Some(op) = operation.reduction() {
                    bench.needs(dtype, op)?;
                }
                for count in [1, 37] {
                    let sources = brought(&operation, ranks, count, |count, rank| {
                        any_bits(dtype, count, rank, 19)
                    });
                    verify(team, devices, &operation, dtype, &sources, |_| 0)?;
                }
            }
            Ok(())
        })?;
    }
    Ok(())
}

fn all_gather(bench: &Bench<'_>) -> Step {
    check(bench, |_| vec![Operation::AllGather])
}

fn all_to_all(bench: &Bench<'_>) -> Step {
    check(bench, |_| vec![Operation::AllToAll])
}

fn broadcast_from_every_root(bench: &Bench<'_>) -> Step {
    check(bench, |ranks| (0..ranks).map(Operation::Broadcast).collect())
}

fn gather_to_every_root(bench: &Bench<'_>) -> Step {
    check(bench, |ranks| (0..ranks).map(Operation::Gather).collect())
}

fn scatter_from_every_root(bench: &Bench<'_>) -> Step {
    check(bench, |ranks| (0..ranks).map(Operation::Scatter).collect())
}

fn reduce_to_every_root(bench: &Bench<'_>) -> Step {
    check(bench, |ranks| (0..ranks).map(|root| Operation::Reduce(ReduceOp::Sum, root)).collect())
}

fn reduce_scatter(bench: &Bench<'_>) -> Step {
    check(bench, |_| vec![Operation::ReduceScatter(ReduceOp::Sum)])
}

/// Counts that differ from rank to rank.
fn uneven(ranks: usize) -> Vec<u64> {
    (0..ranks as u64).map(|rank| 2 * rank + 1).collect()
}

fn all_gather_v(bench: &Bench<'_>) -> Step {
    check(bench, |ranks| vec![Operation::AllGatherV(uneven(ranks))])
}

fn all_to_all_v(bench: &Bench<'_>) -> Step {
    check(bench, |ranks| vec![Operation::AllToAllV(uneven(ranks * ranks))])
}

fn reduce_scatter_v(bench: &Bench<'_>) -> Step {
    check(bench, |ranks| vec![Operation::ReduceScatterV(uneven(ranks), ReduceOp::Sum)])
}

/// Every operation that moves, for 3 ranks.
fn all_moves() -> Vec<Operation> {
    let vector = Operation::vector(ReduceOp::Sum, 3);
    let moves = vector.into_iter().filter(|it| it.reduction().is_none());
    Operation::moves(1).into_iter().chain(moves).collect()
}

fn every_type_keeps_its_bits(bench: &Bench<'_>) -> Step {
    bench.both(3, |team, devices| {
        for dtype in bench.types() {
            for operation in all_moves() {
                let sources =
                    brought(&operation, 3, 45, |count, rank| any_bits(dtype, count, rank, 20));
                verify(team, devices, &operation, dtype, &sources, |_| 0)?;
            }
        }
        Ok(())
    })
}

fn bool_is_moved(bench: &Bench<'_>) -> Step {
    if !bench.subject.knows(DType::Bool) {
        return Err(Stop::Skipped("the driver does not know bool".to_owned()));
    }
    bench.both(3, |team, devices| {
        for operation in all_moves() {
            let sources =
                brought(&operation, 3, 45, |count, rank| any_bits(DType::Bool, count, rank, 21));
            verify(team, devices, &operation, DType::Bool, &sources, |at| at)?;
        }
        Ok(())
    })
}

fn bool_is_never_reduced(bench: &Bench<'_>) -> Step {
    bench.both(2, |team, devices| {
        for op in ReduceOp::ALL {
            expect(!bench.subject.reduces(DType::Bool, op), || {
                format!("the driver says that it reduces bool by {op}")
            })?;
            let reducing = Operation::alike(op, 0).into_iter();
            for operation in reducing.filter(|it| it.reduction().is_some()) {
                let sources =
                    brought(&operation, 2, 4, |count, rank| any_bits(DType::Bool, count, rank, 22));
                let mut buffers = super::calls::Buffers::new(
                    &operation,
                    devices,
                    DType::Bool,
                    &sources,
                    4,
                    |_| 0,
                )?;
                for outcome in team.run(buffers.requests(&operation)?) {
                    expect_kind(outcome, ErrorKind::Unsupported, "a reduction of bool")?;
                }
            }
        }
        Ok(())
    })
}

fn a_barrier_waits_for_every_rank(bench: &Bench<'_>) -> Step {
    bench
        .both(3, |team, _| team.all(vec![Request::Barrier, Request::Barrier, Request::Barrier]))?;
    let devices = bench.devices(3)?;
    let team = bench.team(Form::ThreadPerRank, &devices, &bench.config())?;
    let Team::Many(mut members) = team else { return Ok(()) };
    let came = AtomicUsize::new(0);
    let outcomes: Vec<Result<bool, Stop>> = std::thread::scope(|scope| {
        let came = &came;
        let run = |(rank, member): (usize, super::member::Member)| {
            scope.spawn(move || {
                let mut member = member;
                let mut all_came = true;
                for round in 1..=50 {
                    if (round + rank) % 3 == 0 {
                        std::thread::yield_now();
                    }
                    came.fetch_add(1, Ordering::AcqRel);
                    member.run(vec![Request::Barrier])?;
                    all_came &= came.load(Ordering::Acquire) >= 3 * round;
                    // Nobody comes to the next round before everybody has looked.
                    member.run(vec![Request::Barrier])?;
                }
                Ok(all_came)
            })
        };
        let threads: Vec<_> = members.drain(..).enumerate().map(run).collect();
        let joined = threads.into_iter().map(|it| it.join());
        joined.map(|it| it.unwrap_or_else(|_| Err(Stop::failed("a rank panicked")))).collect()
    });
    for outcome in outcomes {
        expect(outcome?, || "a rank left a barrier before another had come".to_owned())?;
    }
    // A rank that comes alone doesn't get through.
    let mut team = bench.team(Form::ThreadPerRank, &devices, &bench.hasty())?;
    let outcome = team.outcomes(vec![Request::Barrier], bench.patience())?.pop().unwrap_or(Ok(()));
    let what = "a barrier to which one rank came";
    expect_kind(outcome, ErrorKind::DeadlineExceeded, what).map(drop)
}

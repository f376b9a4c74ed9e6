//! Ranks that are gone.

use std::time::{Duration, Instant};

use aether_collective::{GroupConfig, Message, ReduceOp, Request};
use aether_core::{DType, ErrorKind, Result};

use super::bench::{Bench, Form, Step, Stop, expect, expect_kind};
use super::buffer::{Buffer, numbers};
use super::calls::{brought, verify};
use super::member::{Call, Ended, all_well, ends};
use super::operation::Operation;

super::theme! {
    "departure":
    a_rank_that_leaves_is_missed_at_once,
    a_rank_that_left_before_the_call_is_missed_at_once,
    a_rank_that_panics_is_missed_at_once,
    a_peer_that_left_is_missed_at_once,
    leaving_after_the_last_call_is_no_failure,
}

const TYPE: DType = DType::F32;

/// A deadline that is far away, and how much sooner the others have to know.
fn far(bench: &Bench<'_>) -> (GroupConfig, Duration) {
    let soon = bench.patience() / 4;
    (bench.config().with_deadline(soon * 8), soon)
}

/// Every work fails soon, because rank `gone` is gone.
fn missed(works: &[Result<Call>], gone: usize, soon: Duration, what: &str) -> Step {
    let mut told = 0;
    for Ended { who, outcome } in ends(works, soon)? {
        let what = format!("{who}: {what}");
        let error = match outcome {
            // A call that was made when another had already been told.
            Err(error) if error.kind() == ErrorKind::GroupBroken => error,
            other => {
                told += 1;
                expect_kind(other, ErrorKind::RankDied, &what)?
            }
        };
        expect(error.ranks() == [gone], || {
            format!("{what}: {:?} are named: {error}", error.ranks())
        })?;
    }
    expect(told > 0, || format!("{what}: nobody was told"))
}

fn a_rank_that_leaves_is_missed_at_once(bench: &Bench<'_>) -> Step {
    bench.needs(TYPE, ReduceOp::Sum)?;
    let devices = bench.devices(3)?;
    let (config, soon) = far(bench);
    let mut members = bench.members(&devices, &config)?;
    let mut buffers = Vec::new();
    for device in &devices {
        buffers.push(Buffer::garbage(device, TYPE, 6, 0)?);
    }
    let leaves = members.pop();
    let mut works = Vec::new();
    for (member, buffer) in members.iter_mut().zip(&mut buffers) {
        let dst = buffer.span_mut()?;
        works.push(member.submit(vec![Request::AllReduce { src: None, dst, op: ReduceOp::Sum }]));
    }
    drop(leaves);
    missed(&works, 2, soon, "a call during which rank 2 left")
}

fn a_rank_that_left_before_the_call_is_missed_at_once(bench: &Bench<'_>) -> Step {
    let devices = bench.devices(3)?;
    let (config, soon) = far(bench);
    let mut members = bench.members(&devices, &config)?;
    drop(members.remove(0));
    let works: Vec<_> = members.iter_mut().map(|it| it.submit(vec![Request::Barrier])).collect();
    missed(&works, 0, soon, "a call before which rank 0 left")
}

fn a_rank_that_panics_is_missed_at_once(bench: &Bench<'_>) -> Step {
    let devices = bench.devices(3)?;
    let (config, soon) = far(bench);
    let mut members = bench.members(&devices, &config)?;
    let panics = members.remove(1);
    let since = Instant::now();
    let works: Vec<_> = std::thread::scope(|scope| {
        let thread = scope.spawn(move || {
            let _member = panics;
            // A panic that prints nothing.
            std::panic::resume_unwind(Box::new("a rank's thread panics"));
        });
        let works = members.iter_mut().map(|it| it.submit(vec![Request::Barrier])).collect();
        // The panic is the case's own.
        drop(thread.join());
        works
    });
    missed(&works, 1, soon, "a call during which the thread of rank 1 panicked")?;
    let took = since.elapsed();
    expect(took < soon * 2, || format!("the others knew only after {took:?}"))
}

fn a_peer_that_left_is_missed_at_once(bench: &Bench<'_>) -> Step {
    let devices = bench.devices(3)?;
    for sends in [true, false] {
        let (config, soon) = far(bench);
        let mut members = bench.members(&devices, &config)?;
        let mut buffer = Buffer::garbage(&devices[0], TYPE, 6, 0)?;
        let message = match sends {
            true => Message::Send { src: buffer.span()?, peer: 2 },
            false => Message::Recv { dst: buffer.span_mut()?, peer: 2 },
        };
        let work = members[0].submit(vec![Request::Batch([message].into_iter().collect())]);
        drop(members.pop());
        missed(&[work], 2, soon, "a message whose other end left")?;
    }
    Ok(())
}

fn leaving_after_the_last_call_is_no_failure(bench: &Bench<'_>) -> Step {
    let devices = bench.devices(3)?;
    let mut members = bench.members(&devices, &bench.config())?;
    let works: Vec<_> = members.iter_mut().map(|it| it.submit(vec![Request::Barrier])).collect();
    all_well(&works, bench.patience())?;
    // One after the other, while the rest of the group is still there.
    while let Some(member) = members.pop() {
        let who = member.to_string();
        let finishes = |error| Stop::from(error).during(format!("{who} finishes"));
        member.finish().map_err(finishes)?;
        for member in &members {
            let what = format!("{member}, after {who} has finished");
            member.check().map_err(|error| Stop::from(error).during(what))?;
        }
    }
    // Messages between those that are left go on as well.
    let mut members = bench.members(&devices, &bench.config())?;
    let leaves = members.pop().ok_or_else(|| Stop::failed("no member"))?;
    leaves.finish()?;
    let source = Buffer::new(&devices[0], TYPE, &numbers(TYPE, 9, 0, 38), 0)?;
    let mut target = Buffer::garbage(&devices[1], TYPE, 9, 0)?;
    let sent = Message::Send { src: source.span()?, peer: 1 };
    let received = Message::Recv { dst: target.span_mut()?, peer: 0 };
    let works = [(0, sent), (1, received)].map(|(rank, message)| {
        members[rank].submit(vec![Request::Batch([message].into_iter().collect())])
    });
    all_well(&works, bench.patience())?;
    // And a group of the same devices forms again.
    drop(members);
    let mut team = bench.team(Form::ThreadPerRank, &devices, &bench.config())?;
    let operation = Operation::AllGather;
    let sources = brought(&operation, 3, 5, |count, rank| numbers(TYPE, count, rank, 39));
    verify(&mut team, &devices, &operation, TYPE, &sources, |_| 0)
}

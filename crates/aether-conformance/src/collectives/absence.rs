//! Ranks that never come.

use std::time::{Duration, Instant};

use aether_collective::{Message, ReduceOp, Request};
use aether_core::{DType, ErrorKind};

use super::bench::{Bench, Step, expect, expect_kind};
use super::buffer::{Buffer, numbers};
use super::calls::{Buffers, brought};
use super::member::{Ended, all_fail, ends};
use super::operation::Operation;

super::theme! {
    "absence":
    every_waiting_rank_is_told_who_is_absent,
    every_operation_has_the_deadline,
    the_error_comes_at_the_deadline_and_not_before,
    an_absent_peer_is_named,
    an_absent_rank_is_named_to_who_joins,
}

const TYPE: DType = DType::F32;

fn every_waiting_rank_is_told_who_is_absent(bench: &Bench<'_>) -> Step {
    bench.needs(TYPE, ReduceOp::Sum)?;
    let devices = bench.devices(4)?;
    for absent in [vec![1], vec![0, 3], vec![0, 1, 2]] {
        let mut members = bench.members(&devices, &bench.hasty())?;
        let mut buffers = Vec::new();
        for device in &devices {
            buffers.push(Buffer::garbage(device, TYPE, 6, 0)?);
        }
        let mut works = Vec::new();
        for (rank, (member, buffer)) in members.iter_mut().zip(&mut buffers).enumerate() {
            if !absent.contains(&rank) {
                let dst = buffer.span_mut()?;
                let request = Request::AllReduce { src: None, dst, op: ReduceOp::Sum };
                works.push(member.submit(vec![request]));
            }
        }
        let what = format!("a call to which ranks {absent:?} did not come");
        for Ended { who, outcome } in ends(&works, bench.patience())? {
            let what = format!("{who}: {what}");
            let error = expect_kind(outcome, ErrorKind::DeadlineExceeded, &what)?;
            let mut named = error.ranks().to_vec();
            named.sort_unstable();
            expect(named == absent, || format!("{what}: {named:?} are named: {error}"))?;
        }
        members.iter().try_for_each(|it| it.expect_broken(&what))?;
    }
    Ok(())
}

fn every_operation_has_the_deadline(bench: &Bench<'_>) -> Step {
    bench.needs(TYPE, ReduceOp::Sum)?;
    let devices = bench.devices(3)?;
    let mut operations = Operation::alike(ReduceOp::Sum, 0);
    operations.extend(Operation::vector(ReduceOp::Sum, 3));
    // All of them wait side by side, each in a group of its own.
    let mut waiting = Vec::new();
    for operation in &operations {
        let mut members = bench.members(&devices, &bench.hasty())?;
        let sources = brought(operation, 3, 4, |count, rank| numbers(TYPE, count, rank, 37));
        let mut buffers = Buffers::new(operation, &devices, TYPE, &sources, 4, |_| 0)?;
        // Rank 0 is away; the others may have nothing to wait for, as a gather's senders.
        let requests = buffers.requests(operation)?.into_iter().enumerate().skip(1);
        let works: Vec<_> = requests.map(|(rank, it)| members[rank].submit(vec![it])).collect();
        waiting.push((operation, members, buffers, works));
    }
    for (operation, members, _, works) in &waiting {
        let told = ends(works, bench.patience())?;
        let failed = told.iter().filter(|it| it.outcome.is_err()).count();
        let readers = (1..3).filter(|&it| operation.destination(it, 3, 4).is_some()).count();
        expect(failed >= readers, || {
            format!("{operation:?}: only {failed} of {readers} ranks that wait for rank 0 failed")
        })?;
        for Ended { who, outcome } in told.into_iter().filter(|it| it.outcome.is_err()) {
            let what = format!("{who}: {operation:?} without rank 0");
            expect_kind(outcome, ErrorKind::DeadlineExceeded, &what)?;
        }
        expect(members.len() == 3, || "the members are held until here".to_owned())?;
    }
    Ok(())
}

fn the_error_comes_at_the_deadline_and_not_before(bench: &Bench<'_>) -> Step {
    let devices = bench.devices(2)?;
    let deadline = bench.subject.deadline();
    let mut members = bench.members(&devices, &bench.hasty())?;
    let since = Instant::now();
    let work = members[0].submit(vec![Request::Barrier]);
    let what = "a barrier to which rank 1 did not come";
    all_fail(&[work], bench.patience(), ErrorKind::DeadlineExceeded, what)?;
    let took = since.elapsed();
    // The clock may have run for a moment before the call was ready.
    let early = deadline.mul_f64(0.9);
    expect(took >= early, || {
        format!("rank 0's error came after {took:?}, before the deadline of {deadline:?}")
    })?;
    let late = deadline * 4 + Duration::from_secs(2);
    expect(took <= late, || {
        format!("rank 0's error came only after {took:?}, with a deadline of {deadline:?}")
    })
}

fn an_absent_peer_is_named(bench: &Bench<'_>) -> Step {
    let devices = bench.devices(3)?;
    for sends in [true, false] {
        let mut members = bench.members(&devices, &bench.hasty())?;
        let mut buffer = Buffer::garbage(&devices[0], TYPE, 6, 0)?;
        let message = match sends {
            true => Message::Send { src: buffer.span()?, peer: 2 },
            false => Message::Recv { dst: buffer.span_mut()?, peer: 2 },
        };
        let work = members[0].submit(vec![Request::Batch([message].into_iter().collect())]);
        let what = match sends {
            true => "a send to rank 2, which never receives",
            false => "a receive from rank 2, which never sends",
        };
        for error in all_fail(&[work], bench.patience(), ErrorKind::DeadlineExceeded, what)? {
            expect(error.ranks() == [2], || {
                format!("rank 0: {what}: {:?} are named: {error}", error.ranks())
            })?;
        }
    }
    Ok(())
}

fn an_absent_rank_is_named_to_who_joins(bench: &Bench<'_>) -> Step {
    let devices = bench.devices(3)?;
    let config = bench.config().with_deadline(bench.subject.deadline());
    let since = Instant::now();
    let joined: Vec<_> = std::thread::scope(|scope| {
        let join = |at: usize| {
            let (devices, config) = (&devices, &config);
            scope.spawn(move || bench.subject.join(devices, &devices[at], config).map(|_| ()))
        };
        // Rank 1 is away.
        let threads = [join(0), join(2)];
        threads.into_iter().map(|it| it.join()).collect()
    });
    let took = since.elapsed();
    expect(took < bench.patience(), || format!("joining took {took:?}"))?;
    for (rank, outcome) in [0, 2].into_iter().zip(joined) {
        let outcome = outcome.map_err(|_| super::Stop::failed("a thread that joined panicked"))?;
        let what = format!("rank {rank} joins a group to which rank 1 does not come");
        let error = expect_kind(outcome, ErrorKind::DeadlineExceeded, &what)?;
        expect(error.ranks() == [1], || format!("{what}: {:?} are named: {error}", error.ranks()))?;
    }
    // The place is free again.
    let mut team = bench.team(super::bench::Form::ThreadPerRank, &devices, &config)?;
    team.all((0..3).map(|_| Request::Barrier).collect())
}

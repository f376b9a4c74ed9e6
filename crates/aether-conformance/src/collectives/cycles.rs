//! Calls that wait for each other.

use aether_collective::{Message, Request};
use aether_core::{DType, Device, ErrorKind, Result};

use super::bench::{Bench, Step, Stop, expect, expect_kind};
use super::buffer::Buffer;
use super::member::{Call, Ended, ends, outcomes};

super::theme! {
    "cycles":
    crossed_sends_outside_of_a_batch,
    receives_around_a_ring,
    two_groups_in_opposite_order,
}

const TYPE: DType = DType::F32;

fn one(message: Message<'_>) -> Vec<Request<'_>> {
    vec![Request::Batch([message].into_iter().collect())]
}

fn buffers(devices: &[Device]) -> Step<Vec<Buffer>> {
    devices.iter().map(|it| Buffer::garbage(it, TYPE, 6, 0)).collect()
}

/// Every work ends with an error that names the circle, or the failure that it was to the group.
fn told(bench: &Bench<'_>, works: &[Result<Call>], ranks: &[usize], what: &str) -> Step {
    let mut circles = 0;
    for Ended { who, outcome } in ends(works, bench.patience())? {
        let what = format!("{who}: {what}");
        if let Err(error) = &outcome
            && error.kind() == ErrorKind::GroupBroken
        {
            continue;
        }
        let error = expect_kind(outcome, ErrorKind::Cycle, &what)?;
        let named = ranks.iter().all(|it| error.ranks().contains(it));
        expect(named, || format!("{what}: ranks {:?} are named: {error}", error.ranks()))?;
        circles += 1;
    }
    expect(circles > 0, || format!("{what}: no error names the circle"))
}

/// Both send first, and receive when the send has ended.
fn crossed_sends_outside_of_a_batch(bench: &Bench<'_>) -> Step {
    let devices = bench.devices(2)?;
    let mut members = bench.members(&devices, &bench.hasty())?;
    let (sources, mut targets) = (buffers(&devices)?, buffers(&devices)?);
    let mut works = Vec::new();
    for (rank, source) in sources.iter().enumerate() {
        let message = Message::Send { src: source.span()?, peer: 1 - rank };
        works.push(members[rank].submit(one(message)));
    }
    for (rank, target) in targets.iter_mut().enumerate() {
        let message = Message::Recv { dst: target.span_mut()?, peer: 1 - rank };
        works.push(members[rank].submit(one(message)));
    }
    told(bench, &works, &[0, 1], "two ranks that send to each other first")
}

fn receives_around_a_ring(bench: &Bench<'_>) -> Step {
    let devices = bench.devices(3)?;
    let mut members = bench.members(&devices, &bench.hasty())?;
    let mut targets = buffers(&devices)?;
    let mut works = Vec::new();
    for (rank, target) in targets.iter_mut().enumerate() {
        let message = Message::Recv { dst: target.span_mut()?, peer: (rank + 1) % 3 };
        works.push(members[rank].submit(one(message)));
    }
    told(bench, &works, &[0, 1, 2], "three ranks that receive from the next first")
}

/// A thread a rank, each of which would go on in the other group and waits in its first.
fn two_groups_in_opposite_order(bench: &Bench<'_>) -> Step {
    let devices = bench.devices(2)?;
    let configs = [bench.hasty(), bench.hasty()];
    let waits = |rank: usize| -> Step<_> {
        let mut groups = Vec::new();
        for config in &configs {
            groups.push(bench.member(&devices, rank, config)?);
        }
        let work = groups[rank].submit(vec![Request::Barrier]);
        // Nobody leaves before both have been told.
        Ok((outcomes(std::slice::from_ref(&work), bench.patience()), work, groups))
    };
    let waited: Vec<_> = std::thread::scope(|scope| {
        let threads = [0, 1].map(|rank| scope.spawn(move || waits(rank)));
        threads.into_iter().map(std::thread::ScopedJoinHandle::join).collect()
    });
    let mut works = Vec::new();
    let mut kept = Vec::new();
    for it in waited {
        let (outcome, work, groups) = it.map_err(|_| Stop::failed("a rank panicked"))??;
        outcome?;
        works.push(work);
        kept.push(groups);
    }
    told(bench, &works, &[0, 1], "two groups in opposite order")
}

//! Send and recv.

use std::time::{Duration, Instant};

use aether_collective::{Message, Request};
use aether_core::{DType, ErrorKind, fill};

use super::bench::{Bench, Form, Step, Stop, expect, expect_kind};
use super::buffer::{Buffer, any_bits};
use super::calls::same;
use super::member::{Ended, all_well, ends};

super::theme! {
    "messages":
    match_in_order_per_pair,
    match_in_order_within_a_batch,
    go_both_ways_in_one_batch,
    go_around_a_ring,
    go_from_everybody_to_everybody,
    to_itself_are_copies,
    of_zero_elements_are_matched_too,
    end_for_the_sender_when_the_receiver_took_the_data,
    end_for_the_receiver_with_the_data,
    of_sizes_that_differ_are_told_to_both,
    of_types_that_differ_are_told_to_both,
}

const TYPE: DType = DType::I32;

fn send<'a>(buffer: &'a Buffer, peer: usize) -> Step<Message<'a>> {
    Ok(Message::Send { src: buffer.span()?, peer })
}

fn recv<'a>(buffer: &'a mut Buffer, peer: usize) -> Step<Message<'a>> {
    Ok(Message::Recv { dst: buffer.span_mut()?, peer })
}

fn batch<'a>(messages: impl IntoIterator<Item = Message<'a>>) -> Request<'a> {
    Request::Batch(messages.into_iter().collect())
}

/// The message from one rank to another.
fn letter(from: usize, to: usize, count: usize) -> Vec<u8> {
    any_bits(TYPE, count, 10 * from + to, 30)
}

fn match_in_order_per_pair(bench: &Bench<'_>) -> Step {
    let devices = bench.devices(3)?;
    let mut members = bench.members(&devices, &bench.config())?;
    // Rank 0 writes to both others in turn, in calls of their own.
    let letters: Vec<(usize, Vec<u8>)> =
        (0..6).map(|at| (1 + at % 2, any_bits(TYPE, 9, at, 31))).collect();
    let mut works = Vec::new();
    let mut arrived = Vec::new();
    for (to, bytes) in &letters {
        let source = Buffer::new(&devices[0], TYPE, bytes, 0)?;
        works.push(members[0].submit(vec![batch([send(&source, *to)?])]));
        let mut target = Buffer::garbage(&devices[*to], TYPE, 9, 0)?;
        works.push(members[*to].submit(vec![batch([recv(&mut target, 0)?])]));
        arrived.push((source, target));
    }
    all_well(&works, bench.patience())?;
    for (at, ((_, target), (to, bytes))) in arrived.iter().zip(&letters).enumerate() {
        let what = format!("letter {at}, to rank {to}");
        same(TYPE, &target.read()?, bytes).map_err(|it: Stop| it.during(what))?;
    }
    Ok(())
}

fn match_in_order_within_a_batch(bench: &Bench<'_>) -> Step {
    bench.both(2, |team, devices| {
        let letters: Vec<Vec<u8>> = (0..4).map(|at| any_bits(TYPE, 9, at, 32)).collect();
        let sources = letters.iter().map(|it| Buffer::new(&devices[0], TYPE, it, 0));
        let sources = sources.collect::<Step<Vec<_>>>()?;
        let targets = letters.iter().map(|_| Buffer::garbage(&devices[1], TYPE, 9, 0));
        let mut targets = targets.collect::<Step<Vec<_>>>()?;
        let sent = sources.iter().map(|it| send(it, 1)).collect::<Step<Vec<_>>>()?;
        let received = targets.iter_mut().map(|it| recv(it, 0)).collect::<Step<Vec<_>>>()?;
        team.all(vec![batch(sent), batch(received)])?;
        for (at, (target, bytes)) in targets.iter().zip(&letters).enumerate() {
            let what = format!("message {at} of the batch");
            same(TYPE, &target.read()?, bytes).map_err(|it: Stop| it.during(what))?;
        }
        Ok(())
    })
}

/// Every rank sends one message to each of `to(rank)`, which receive in one batch of each.
fn exchange(
    bench: &Bench<'_>,
    ranks: usize,
    count: impl Fn(usize, usize) -> usize,
    to: impl Fn(usize) -> Vec<usize>,
) -> Step {
    bench.both(ranks, |team, devices| {
        let mut sources = Vec::new();
        let mut targets = Vec::new();
        for (rank, device) in devices.iter().enumerate() {
            for peer in to(rank) {
                let bytes = letter(rank, peer, count(rank, peer));
                sources.push((rank, peer, Buffer::new(device, TYPE, &bytes, rank)?));
            }
            for from in (0..ranks).filter(|&it| to(it).contains(&rank)) {
                let elements = count(from, rank);
                targets.push((rank, from, Buffer::garbage(device, TYPE, elements, 1)?));
            }
        }
        let mut messages: Vec<Vec<Message<'_>>> = (0..ranks).map(|_| Vec::new()).collect();
        for (rank, peer, source) in &sources {
            messages[*rank].push(send(source, *peer)?);
        }
        for (rank, from, target) in &mut targets {
            messages[*rank].push(recv(target, *from)?);
        }
        team.all(messages.into_iter().map(batch).collect())?;
        for (rank, from, target) in &targets {
            let what = format!("what rank {rank} got from rank {from}");
            let wanted = letter(*from, *rank, count(*from, *rank));
            same(TYPE, &target.read()?, &wanted).map_err(|it: Stop| it.during(what))?;
        }
        Ok(())
    })
}

fn go_both_ways_in_one_batch(bench: &Bench<'_>) -> Step {
    // Sizes that differ between the two ways, and too large for any buffer on the way.
    for (there, back) in [(1, 2), (33, 33), (70_001, 3)] {
        let count = |from, _| if from == 0 { there } else { back };
        exchange(bench, 2, count, |rank| vec![1 - rank])?;
    }
    Ok(())
}

fn go_around_a_ring(bench: &Bench<'_>) -> Step {
    for ranks in 3..=5 {
        exchange(bench, ranks, |_, _| 17, |rank| vec![(rank + 1) % ranks])?;
        exchange(bench, ranks, |_, _| 17, |rank| vec![(rank + ranks - 1) % ranks])?;
    }
    Ok(())
}

fn go_from_everybody_to_everybody(bench: &Bench<'_>) -> Step {
    exchange(bench, 4, |from, to| 3 * from + to, |_| (0..4).collect())
}

fn to_itself_are_copies(bench: &Bench<'_>) -> Step {
    exchange(bench, 1, |_, _| 41, |rank| vec![rank])?;
    exchange(bench, 3, |_, _| 41, |rank| vec![rank])
}

fn of_zero_elements_are_matched_too(bench: &Bench<'_>) -> Step {
    bench.both(2, |team, devices| {
        // A message of zero elements that was skipped would leave the next one to the wrong receiver.
        let counts = [3, 0, 5];
        let mut sources = Vec::new();
        let mut targets = Vec::new();
        for (at, count) in counts.into_iter().enumerate() {
            sources.push(Buffer::new(&devices[0], TYPE, &letter(at, 9, count), 0)?);
            targets.push(Buffer::garbage(&devices[1], TYPE, count, 0)?);
        }
        let sent = sources.iter().map(|it| send(it, 1)).collect::<Step<Vec<_>>>()?;
        let received = targets.iter_mut().map(|it| recv(it, 0)).collect::<Step<Vec<_>>>()?;
        team.all(vec![batch(sent), batch(received)])?;
        for (at, (count, target)) in counts.into_iter().zip(&targets).enumerate() {
            let what = format!("message {at} of the batch to rank 1");
            same(TYPE, &target.read()?, &letter(at, 9, count)).map_err(|it| it.during(what))?;
        }
        Ok(())
    })?;
    let devices = bench.devices(2)?;
    let mut team = bench.team(Form::ThreadPerRank, &devices, &bench.hasty())?;
    let source = Buffer::new(&devices[0], TYPE, &[], 0)?;
    let outcome = team.outcomes(vec![batch([send(&source, 1)?])], bench.patience())?.pop();
    let what = "a message of zero elements that nobody receives";
    let error = expect_kind(outcome.unwrap_or(Ok(())), ErrorKind::DeadlineExceeded, what)?;
    expect(error.ranks() == [1], || format!("{what} names {:?}", error.ranks()))
}

/// How long what must not end is watched.
const WATCH: Duration = Duration::from_millis(30);

/// Expects that the work does not end for a while.
pub(super) fn stays_pending(work: &aether_collective::Work, what: &str) -> Step {
    let since = Instant::now();
    while since.elapsed() < WATCH {
        expect(!work.is_done(), || format!("{what} ended too early"))?;
        std::thread::sleep(Duration::from_millis(1));
    }
    Ok(())
}

fn end_for_the_sender_when_the_receiver_took_the_data(bench: &Bench<'_>) -> Step {
    let devices = bench.devices(2)?;
    let mut members = bench.members(&devices, &bench.config())?;
    let bytes = letter(0, 1, 41);
    let mut source = Buffer::new(&devices[0], TYPE, &bytes, 0)?;
    let mut target = Buffer::garbage(&devices[1], TYPE, 41, 0)?;
    let sent = members[0].submit(vec![batch([send(&source, 1)?])])?;
    stays_pending(&sent, "a send without its receive")?;
    let received = members[1].submit(vec![batch([recv(&mut target, 0)?])]);
    expect(sent.wait_timeout(bench.patience())?, || {
        format!("rank 0's send has not ended {:?} after rank 1 received it", bench.patience())
    })?;
    // The sender may write again, and the receiver has what was there before.
    fill(&mut source.span_mut()?, 7i32)?;
    all_well(&[received], bench.patience())?;
    same(TYPE, &target.read()?, &bytes).map_err(|it| it.during("what rank 1 received"))
}

fn end_for_the_receiver_with_the_data(bench: &Bench<'_>) -> Step {
    let devices = bench.devices(2)?;
    let mut members = bench.members(&devices, &bench.config())?;
    let bytes = letter(1, 0, 41);
    let source = Buffer::new(&devices[1], TYPE, &bytes, 0)?;
    let mut target = Buffer::garbage(&devices[0], TYPE, 41, 0)?;
    let received = members[0].submit(vec![batch([recv(&mut target, 1)?])])?;
    stays_pending(&received, "a receive without its send")?;
    let sent = members[1].submit(vec![batch([send(&source, 0)?])]);
    expect(received.wait_timeout(bench.patience())?, || {
        format!("rank 0's receive has not ended {:?} after rank 1 sent to it", bench.patience())
    })?;
    same(TYPE, &target.read()?, &bytes).map_err(|it| it.during("what rank 0 received"))?;
    all_well(&[sent], bench.patience())?;
    Ok(())
}

/// One sends what the other doesn't expect.
fn disagree(bench: &Bench<'_>, other: (DType, usize), what: &str) -> Step {
    let devices = bench.devices(2)?;
    for form in Form::ALL {
        let mut team = bench.team(form, &devices, &bench.hasty())?;
        let source = Buffer::garbage(&devices[0], TYPE, 5, 0)?;
        let mut target = Buffer::garbage(&devices[1], other.0, other.1, 0)?;
        let requests = vec![batch([send(&source, 1)?]), batch([recv(&mut target, 0)?])];
        let told = ends(&team.submit(requests), bench.patience())?;
        expect(told.len() == 2, || format!("{what}: {} outcomes", told.len()))?;
        for Ended { who, outcome } in told {
            let what = format!("{form:?}: {who}: {what}");
            let error = expect_kind(outcome, ErrorKind::RankMismatch, &what)?;
            let named = error.ranks().contains(&0) && error.ranks().contains(&1);
            expect(named, || format!("{what}: the error does not name both ranks: {error}"))?;
        }
    }
    Ok(())
}

fn of_sizes_that_differ_are_told_to_both(bench: &Bench<'_>) -> Step {
    disagree(bench, (TYPE, 6), "a message received as a longer one")?;
    disagree(bench, (TYPE, 4), "a message received as a shorter one")
}

fn of_types_that_differ_are_told_to_both(bench: &Bench<'_>) -> Step {
    disagree(bench, (DType::F32, 5), "a message received as another type")
}

//! Collectives among other work on the same memory.

use std::sync::Arc;

use aether_collective::{ReduceOp, Request};
use aether_core::{DType, Device, Stream, copy_async};

use super::bench::{Bench, Form, Step, Stop, expect};
use super::buffer::{Buffer, numbers};
use super::calls::same;
use super::member::all_well;
use super::reference;
use crate::checked::Checked;

super::theme! {
    "ordering":
    copies_on_other_streams_are_ordered,
    two_groups_on_the_same_memory_are_ordered,
    calls_of_one_member_go_in_order,
    the_host_waits_for_a_collective,
    memory_that_is_dropped_in_flight_stays,
    work_that_nobody_waits_for_goes_on,
}

const TYPE: DType = DType::F32;
const RANKS: usize = 2;
const COUNT: usize = 500;

/// Runs a part on watched devices, and asks the detector for its verdict.
fn watched(bench: &Bench<'_>, part: impl Fn(&[Device]) -> Step) -> Step {
    bench.needs(TYPE, ReduceOp::Sum)?;
    let Some((checked, mut devices)) = bench.subject.watched(RANKS) else {
        return Err(Stop::Skipped(
            "the driver runs on no devices that a detector watches".to_owned(),
        ));
    };
    devices.sort_by_key(Device::id);
    part(&devices)?;
    verdict(&checked)
}

fn verdict(checked: &Arc<Checked>) -> Step {
    checked.verdict().map_err(|it| Stop::failed(it.to_string()))
}

fn each(devices: &[Device], salt: u64) -> Step<Vec<Buffer>> {
    let made = devices.iter().enumerate();
    made.map(|(rank, it)| Buffer::new(it, TYPE, &numbers(TYPE, COUNT, rank, salt), 0)).collect()
}

/// Expects what a rank's buffer holds.
fn holds(buffer: &Buffer, rank: usize, what: &str, wanted: &[u8]) -> Step {
    let whose = |it: Stop| it.during(format!("rank {rank}'s {what}"));
    let found = buffer.read().map_err(whose)?;
    same(TYPE, &found, wanted).map_err(whose)
}

fn all_hold(buffers: &[Buffer], what: &str, wanted: &[u8]) -> Step {
    let mut each = buffers.iter().enumerate();
    each.try_for_each(|(rank, it)| holds(it, rank, what, wanted))
}

/// The sum of what `each` makes.
fn sum(salt: u64) -> Vec<u8> {
    let sources: Vec<_> = (0..RANKS).map(|rank| numbers(TYPE, COUNT, rank, salt)).collect();
    reference::reduce(TYPE, ReduceOp::Sum, &sources)
}

/// A source is filled on one stream, reduced, and filled again; the result is copied on another.
fn copies_on_other_streams_are_ordered(bench: &Bench<'_>) -> Step {
    watched(bench, |devices| {
        let mut team = bench.team(Form::OneCaller, devices, &bench.config())?;
        let (first, second) = (each(devices, 42)?, each(devices, 43)?);
        let (mut src, mut dst, mut out) =
            (each(devices, 44)?, each(devices, 45)?, each(devices, 46)?);
        let mut copies = Vec::new();
        let streams = devices.iter().map(Stream::new).collect::<aether_core::Result<Vec<_>>>()?;
        let others = devices.iter().map(Stream::new).collect::<aether_core::Result<Vec<_>>>()?;
        for rank in 0..RANKS {
            copies.push(copy_async(
                &mut src[rank].span_mut()?,
                &first[rank].span()?,
                &streams[rank],
            )?);
        }
        let requests = src.iter().zip(&mut dst).map(|(src, dst)| {
            let (src, dst) = (Some(src.span()?), dst.span_mut()?);
            Ok(Request::AllReduce { src, dst, op: ReduceOp::Sum })
        });
        let works = team.submit(requests.collect::<Step<Vec<_>>>()?);
        for rank in 0..RANKS {
            copies.push(copy_async(
                &mut out[rank].span_mut()?,
                &dst[rank].span()?,
                &streams[rank],
            )?);
            copies.push(copy_async(
                &mut src[rank].span_mut()?,
                &second[rank].span()?,
                &others[rank],
            )?);
            copies.push(copy_async(
                &mut dst[rank].span_mut()?,
                &second[rank].span()?,
                &others[rank],
            )?);
        }
        all_well(&works, bench.patience())?;
        for copy in copies {
            expect(copy.wait_timeout(bench.patience())?, || {
                format!("a copy around the collective has not ended after {:?}", bench.patience())
            })?;
        }
        for rank in 0..RANKS {
            let later = numbers(TYPE, COUNT, rank, 43);
            holds(&out[rank], rank, "copy of the sum, made behind the collective", &sum(42))?;
            holds(&src[rank], rank, "source, overwritten behind the collective", &later)?;
            holds(&dst[rank], rank, "destination, overwritten behind the copy of it", &later)?;
        }
        Ok(())
    })
}

/// What one group writes, another reads and then writes.
fn two_groups_on_the_same_memory_are_ordered(bench: &Bench<'_>) -> Step {
    watched(bench, |devices| {
        let mut one = bench.team(Form::OneCaller, devices, &bench.config())?;
        let mut two = bench.team(Form::OneCaller, devices, &bench.config())?;
        let (src, mut middle, mut dst) =
            (each(devices, 47)?, each(devices, 48)?, each(devices, 49)?);
        let mut works = Vec::new();
        // Nothing of it runs before the source is there.
        let streams = devices.iter().map(Stream::new).collect::<aether_core::Result<Vec<_>>>()?;
        let mut late = each(devices, 55)?;
        for ((late, src), stream) in late.iter_mut().zip(&src).zip(&streams) {
            copy_async(&mut late.span_mut()?, &src.span()?, stream)?;
        }
        let requests = late.iter().zip(&mut middle).map(|(src, dst)| {
            let (src, dst) = (Some(src.span()?), dst.span_mut()?);
            Ok(Request::AllReduce { src, dst, op: ReduceOp::Sum })
        });
        works.extend(one.submit(requests.collect::<Step<Vec<_>>>()?));
        let requests = middle.iter().zip(&mut dst).map(|(src, dst)| {
            let (src, dst) = (Some(src.span()?), dst.span_mut()?);
            Ok(Request::AllReduce { src, dst, op: ReduceOp::Max })
        });
        works.extend(two.submit(requests.collect::<Step<Vec<_>>>()?));
        let requests = middle
            .iter_mut()
            .map(|it| Ok(Request::Broadcast { src: None, dst: it.span_mut()?, root: 0 }));
        works.extend(one.submit(requests.collect::<Step<Vec<_>>>()?));
        all_well(&works, bench.patience())?;
        let what = "destination in the group that reads what the other has summed";
        all_hold(&dst, what, &sum(47))?;
        let what = "buffer that one group sums into, the other reads and the first broadcasts";
        all_hold(&middle, what, &sum(47))?;
        Ok(())
    })
}

fn calls_of_one_member_go_in_order(bench: &Bench<'_>) -> Step {
    bench.needs(TYPE, ReduceOp::Sum)?;
    let devices = bench.devices(RANKS)?;
    let mut members = bench.members(&devices, &bench.config())?;
    // Each call reads what the one before it wrote: out of order, it would read garbage.
    let calls = 12;
    let mut stages = Vec::new();
    for (device, first) in devices.iter().zip(each(&devices, 50)?) {
        let garbage = (0..calls).map(|_| Buffer::garbage(device, TYPE, COUNT, 0));
        stages.push(std::iter::once(Ok(first)).chain(garbage).collect::<Step<Vec<Buffer>>>()?);
    }
    let mut works = Vec::new();
    for rank in (0..RANKS).rev() {
        for call in 0..calls {
            let (before, after) = stages[rank].split_at_mut(call + 1);
            let (src, dst) = (Some(before[call].span()?), after[0].span_mut()?);
            let request = Request::AllReduce { src, dst, op: ReduceOp::Sum };
            works.push(members[rank].submit(vec![request]));
        }
    }
    all_well(&works, bench.patience())?;
    let mut wanted = sum(50);
    for _ in 1..calls {
        wanted = reference::reduce(TYPE, ReduceOp::Sum, &[wanted.clone(), wanted.clone()]);
    }
    let last = stages.iter_mut().filter_map(Vec::pop).collect::<Vec<_>>();
    all_hold(&last, "buffer after 12 sums, one behind the other", &wanted)
}

/// A read of the destination, without a word to the work, comes after the collective.
fn the_host_waits_for_a_collective(bench: &Bench<'_>) -> Step {
    bench.needs(TYPE, ReduceOp::Sum)?;
    let devices = bench.devices(RANKS)?;
    let mut members = bench.members(&devices, &bench.config())?;
    let mut buffers = each(&devices, 51)?;
    let mut works = Vec::new();
    for (rank, (member, buffer)) in members.iter_mut().zip(&mut buffers).enumerate() {
        let dst = buffer.span_mut()?;
        let work = member.submit(vec![Request::AllReduce { src: None, dst, op: ReduceOp::Sum }])?;
        if rank == 0 {
            let what = "a collective to which only rank 0 has come";
            super::messages::stays_pending(&work, what)?;
        }
        works.push(work);
    }
    all_hold(&buffers, "buffer, read without a word to the work", &sum(51))?;
    expect(works.iter().all(|it| it.is_done()), || {
        "memory was read before the work on it had ended".to_owned()
    })
}

fn memory_that_is_dropped_in_flight_stays(bench: &Bench<'_>) -> Step {
    bench.needs(TYPE, ReduceOp::Sum)?;
    let devices = bench.devices(RANKS)?;
    let mut members = bench.members(&devices, &bench.config())?;
    let (mut src, mut dst) = (each(&devices, 52)?, each(&devices, 53)?);
    let mut submit = |rank: usize, src: &[Buffer], dst: &mut [Buffer]| -> Step<_> {
        let (src, dst) = (Some(src[rank].span()?), dst[rank].span_mut()?);
        Ok(members[rank].submit(vec![Request::AllReduce { src, dst, op: ReduceOp::Sum }]))
    };
    let first = submit(0, &src, &mut dst)?;
    // Rank 0's source goes before rank 1 comes and reads it, and so does the handle of the work.
    drop(src.remove(0));
    drop(first);
    src.insert(0, Buffer::garbage(&devices[0], TYPE, COUNT, 0)?);
    let second = submit(1, &src, &mut dst)?;
    all_well(&[second], bench.patience())?;
    all_hold(&dst, "sum of sources of which one was dropped in flight", &sum(52))
}

fn work_that_nobody_waits_for_goes_on(bench: &Bench<'_>) -> Step {
    bench.needs(TYPE, ReduceOp::Sum)?;
    let devices = bench.devices(RANKS)?;
    let mut members = bench.members(&devices, &bench.config())?;
    let mut buffers = each(&devices, 54)?;
    let mut works = Vec::new();
    for (member, buffer) in members.iter_mut().zip(&mut buffers) {
        let dst = buffer.span_mut()?;
        works.push(member.submit(vec![Request::AllReduce {
            src: None,
            dst,
            op: ReduceOp::Sum,
        }])?);
    }
    // Only looked at from the side: nothing is run to find out.
    let since = std::time::Instant::now();
    let ended = || works.iter().flat_map(|it| it.completions()).all(|it| it.has_ended());
    while !ended() {
        expect(since.elapsed() < bench.patience(), || {
            format!("nobody ran the work within {:?}: nothing waits for it", bench.patience())
        })?;
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    all_hold(&buffers, "buffer after work that nobody waited for", &sum(54))
}

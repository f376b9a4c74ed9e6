//! What is refused before anything is queued.

use std::sync::Arc;

use aether_collective::{Message, ReduceOp, Request};
use aether_core::{AsSpanMut, Backend, DType, Device, DeviceKind, ErrorKind, HostBackend};

use super::bench::{Bench, Form, Step, Stop, Team, expect, expect_kind};
use super::buffer::{Buffer, numbers};
use super::calls::{Buffers, brought, same, verify};
use super::operation::Operation;

super::theme! {
    "refusals":
    a_root_out_of_range,
    a_peer_out_of_range,
    a_strided_view_with_the_call_that_packs_it,
    counts_that_overflow,
    counts_that_are_too_few_or_do_not_fit,
    sizes_that_differ,
    types_that_differ,
    memory_of_another_device,
    memory_off_its_alignment,
    borrowed_memory_in_calls_that_return_at_once,
    a_part_too_few,
    a_refused_call_queues_nothing,
}

const TYPE: DType = DType::F32;

fn a_root_out_of_range(bench: &Bench<'_>) -> Step {
    bench.both(2, |team, devices| {
        for root in [2, usize::MAX] {
            for operation in [
                Operation::Broadcast(root),
                Operation::Gather(root),
                Operation::Scatter(root),
                Operation::Reduce(ReduceOp::Sum, root),
            ] {
                let sources = vec![numbers(TYPE, 4, 0, 33); 2];
                let mut buffers = Buffers::new(&operation, devices, TYPE, &sources, 4, |_| 0)?;
                for outcome in team.run(buffers.requests(&operation)?) {
                    let what = format!("{operation:?}");
                    let error = expect_kind(outcome, ErrorKind::RankOutOfRange, &what)?;
                    let named = error.to_string().contains(&root.to_string());
                    expect(named, || format!("the error does not name root {root}: {error}"))?;
                }
            }
        }
        goes_on(team, devices)
    })
}

fn a_peer_out_of_range(bench: &Bench<'_>) -> Step {
    bench.both(2, |team, devices| {
        for (peer, sends) in [(2, true), (2, false), (usize::MAX, true)] {
            let mut buffers = Vec::new();
            for device in devices {
                buffers.push(Buffer::garbage(device, TYPE, 4, 0)?);
            }
            let mut requests = Vec::new();
            for buffer in &mut buffers {
                let message = match sends {
                    true => Message::Send { src: buffer.span()?, peer },
                    false => Message::Recv { dst: buffer.span_mut()?, peer },
                };
                requests.push(Request::Batch([message].into_iter().collect()));
            }
            for outcome in team.run(requests) {
                let what = format!("peer {peer} of 2 ranks");
                expect_kind(outcome, ErrorKind::RankOutOfRange, &what)?;
            }
        }
        goes_on(team, devices)
    })
}

fn a_strided_view_with_the_call_that_packs_it(bench: &Bench<'_>) -> Step {
    bench.both(2, |team, devices| {
        for strided_source in [true, false] {
            let mut sources = Vec::new();
            let mut targets = Vec::new();
            for (rank, device) in devices.iter().enumerate() {
                let bytes = numbers(TYPE, 24, rank, 34);
                sources.push(crate::suite::chunk_of(device, &bytes)?);
                targets.push(crate::suite::chunk_of(device, &bytes)?);
            }
            // Rows of 3 elements, 8 or 3 apart.
            let strides = |strided| if strided { [8, 1] } else { [3, 1] };
            let mut src = Vec::new();
            for it in &sources {
                src.push(it.view_strided::<f32, 2>([3, 3], strides(strided_source))?);
            }
            let mut dst = Vec::new();
            for it in &mut targets {
                dst.push(it.view_strided_mut::<f32, 2>([3, 3], strides(!strided_source))?);
            }
            let callers = team.callers();
            let each = src.len() / callers.len();
            for ((caller, src), dst) in
                callers.into_iter().zip(src.chunks(each)).zip(dst.chunks_mut(each))
            {
                let outcome = caller.inner().sum_views(src, dst);
                let error = expect_kind(outcome, ErrorKind::NotContiguous, "a strided view")?;
                let named = error.to_string().contains("pack");
                expect(named, || format!("the error does not name the packing call: {error}"))?;
            }
        }
        goes_on(team, devices)
    })
}

/// Makes a call with this list of counts, and expects it to be refused so.
fn counts_refused(
    team: &mut Team,
    devices: &[aether_core::Device],
    counts: &[u64],
    kind: ErrorKind,
) -> Step {
    let op = ReduceOp::Sum;
    for which in 0..3 {
        let mut buffers = Vec::new();
        for device in devices {
            buffers
                .push((Buffer::garbage(device, TYPE, 4, 0)?, Buffer::garbage(device, TYPE, 8, 0)?));
        }
        let pairs: Vec<u64> = counts.iter().chain(counts).copied().collect();
        let mut requests = Vec::new();
        for (short, long) in &mut buffers {
            requests.push(match which {
                0 => {
                    Request::AllGatherV { src: Some(short.span()?), dst: long.span_mut()?, counts }
                }
                1 => Request::ReduceScatterV {
                    src: long.span()?,
                    dst: short.span_mut()?,
                    counts,
                    op,
                },
                _ => {
                    Request::AllToAllV { src: short.span()?, dst: long.span_mut()?, counts: &pairs }
                }
            });
        }
        for outcome in team.run(requests) {
            expect_kind(outcome, kind, &format!("counts {counts:?}"))?;
        }
    }
    Ok(())
}

fn counts_that_overflow(bench: &Bench<'_>) -> Step {
    bench.needs(TYPE, ReduceOp::Sum)?;
    bench.both(2, |team, devices| {
        // The first overflows in bytes, the second in the sum; wrapped, both would fit the buffers.
        for counts in [[1 << 62, 8], [(1 << 61) + 4, (1 << 61) + 4], [u64::MAX, 9]] {
            counts_refused(team, devices, &counts, ErrorKind::Overflow)?;
        }
        goes_on(team, devices)
    })
}

fn counts_that_are_too_few_or_do_not_fit(bench: &Bench<'_>) -> Step {
    bench.needs(TYPE, ReduceOp::Sum)?;
    bench.both(2, |team, devices| {
        counts_refused(team, devices, &[8], ErrorKind::InvalidArgument)?;
        counts_refused(team, devices, &[4, 4, 0], ErrorKind::InvalidArgument)?;
        counts_refused(team, devices, &[4, 5], ErrorKind::SizeMismatch)?;
        goes_on(team, devices)
    })
}

/// Makes a call whose buffers are of these types and sizes on every rank, and expects it to be refused
/// so.
fn buffers_refused(
    team: &mut Team,
    devices: &[aether_core::Device],
    operation: &Operation,
    (src, dst): ((DType, usize), (DType, usize)),
    kind: ErrorKind,
) -> Step {
    let mut buffers = Vec::new();
    for device in devices {
        let from = Buffer::garbage(device, src.0, src.1, 0)?;
        buffers.push((from, Buffer::garbage(device, dst.0, dst.1, 0)?));
    }
    let requests = buffers.iter_mut().map(|(src, dst)| {
        let request = operation.request(Some(src.span()?), Some(dst.span_mut()?));
        request.ok_or_else(|| Stop::failed("a rank lacks a buffer"))
    });
    for outcome in team.run(requests.collect::<Step<Vec<_>>>()?) {
        expect_kind(outcome, kind, &format!("{operation:?} from {src:?} to {dst:?}"))?;
    }
    Ok(())
}

fn sizes_that_differ(bench: &Bench<'_>) -> Step {
    bench.needs(TYPE, ReduceOp::Sum)?;
    bench.both(2, |team, devices| {
        let op = ReduceOp::Sum;
        for (operation, src, dst) in [
            (Operation::AllReduce(op), 4, 5),
            (Operation::AllReduce(op), 4, 3),
            (Operation::AllGather, 4, 10),
            (Operation::AllGather, 4, 4),
            (Operation::ReduceScatter(op), 8, 3),
            (Operation::ReduceScatter(op), 8, 8),
            (Operation::AllToAll, 8, 6),
        ] {
            let ends = ((TYPE, src), (TYPE, dst));
            buffers_refused(team, devices, &operation, ends, ErrorKind::SizeMismatch)?;
        }
        goes_on(team, devices)
    })
}

fn types_that_differ(bench: &Bench<'_>) -> Step {
    bench.needs(TYPE, ReduceOp::Sum)?;
    bench.both(2, |team, devices| {
        let op = ReduceOp::Sum;
        for (operation, src, dst) in [
            (Operation::AllReduce(op), 4, 4),
            (Operation::AllGather, 4, 8),
            (Operation::ReduceScatter(op), 8, 4),
            (Operation::AllToAll, 8, 8),
        ] {
            let ends = ((TYPE, src), (DType::I32, dst));
            buffers_refused(team, devices, &operation, ends, ErrorKind::DTypeMismatch)?;
        }
        goes_on(team, devices)
    })
}

fn memory_of_another_device(bench: &Bench<'_>) -> Step {
    bench.both(2, |team, devices| {
        // The same names, served by a backend of their own: no driver knows them.
        let backend: Arc<dyn Backend> = Arc::new(HostBackend::new());
        let foreign = devices.iter().map(|it| Device::new(it.id(), Arc::clone(&backend)));
        let foreign: Vec<Device> = foreign.collect();
        let operation = Operation::AllReduce(ReduceOp::Sum);
        let ends = ((TYPE, 4), (TYPE, 4));
        buffers_refused(team, &foreign, &operation, ends, ErrorKind::WrongDevice)?;
        goes_on(team, devices)
    })
}

fn memory_off_its_alignment(bench: &Bench<'_>) -> Step {
    let devices = bench.devices(1)?;
    let mut buffer = Buffer::garbage(&devices[0], TYPE, 4, 0)?;
    let odd = buffer.range.start + 1..buffer.range.start + 5;
    let what = "a span that begins in the middle of an element";
    expect_kind(buffer.chunk.span_of(odd.clone(), TYPE), ErrorKind::Misaligned, what)?;
    expect_kind(buffer.chunk.span_of_mut(odd, TYPE), ErrorKind::Misaligned, what)?;
    let part = buffer.range.start..buffer.range.start + 5;
    let what = "a span of a part of an element";
    expect_kind(buffer.chunk.span_of_mut(part, TYPE), ErrorKind::PartialElement, what).map(drop)
}

fn borrowed_memory_in_calls_that_return_at_once(bench: &Bench<'_>) -> Step {
    bench.both(2, |team, devices| {
        if devices.iter().any(|it| it.kind() != DeviceKind::CPU || !it.host_addressable()) {
            return Err(Stop::Skipped("the driver takes no plain memory of the host".to_owned()));
        }
        let mut memory = [1f32; 8];
        let requests = memory.chunks_mut(4).map(|part| {
            Ok(Request::AllReduce { src: None, dst: part.span_mut()?, op: ReduceOp::Sum })
        });
        let requests = requests.collect::<Step<Vec<_>>>()?;
        for outcome in team.outcomes(requests, bench.patience())? {
            expect_kind(outcome, ErrorKind::BorrowedMemory, "borrowed memory")?;
        }
        goes_on(team, devices)
    })
}

fn a_part_too_few(bench: &Bench<'_>) -> Step {
    let devices = bench.devices(3)?;
    let mut team = bench.team(Form::OneCaller, &devices, &bench.config())?;
    for outcome in team.run(vec![Request::Barrier, Request::Barrier]) {
        expect_kind(outcome, ErrorKind::SizeMismatch, "two parts for three members")?;
    }
    goes_on(&mut team, &devices)
}

fn a_refused_call_queues_nothing(bench: &Bench<'_>) -> Step {
    bench.needs(TYPE, ReduceOp::Sum)?;
    bench.both(3, |team, devices| {
        // Only rank 0's call is wrong: nothing of the others' may be queued either, where one caller
        // makes all of them.
        let mut buffers = Vec::new();
        let mut before = Vec::new();
        for (rank, device) in devices.iter().enumerate() {
            buffers.push(Buffer::new(device, TYPE, &numbers(TYPE, 8, rank, 35), 0)?);
            before.push(numbers(TYPE, 8, rank, 35));
        }
        let mut requests = Vec::new();
        for (rank, buffer) in buffers.iter_mut().enumerate() {
            let dst = buffer.span_mut()?;
            let root = if rank == 0 { 99 } else { 0 };
            requests.push(Request::Broadcast { src: None, dst, root });
        }
        for outcome in team.refused(requests, true) {
            expect_kind(outcome, ErrorKind::RankOutOfRange, "one rank's root out of range")?;
        }
        for (buffer, before) in buffers.iter().zip(&before) {
            same(TYPE, &buffer.read()?, before).map_err(|it| it.during("a refused call"))?;
        }
        for caller in team.callers() {
            caller.check()?;
        }
        goes_on(team, devices)
    })
}

/// The group still works, and in step.
fn goes_on(team: &mut Team, devices: &[aether_core::Device]) -> Step {
    let operation = Operation::AllGather;
    let sources =
        brought(&operation, devices.len(), 5, |count, rank| numbers(TYPE, count, rank, 36));
    verify(team, devices, &operation, TYPE, &sources, |_| 0)
        .map_err(|it: Stop| it.during("the next call after a refused one"))
}

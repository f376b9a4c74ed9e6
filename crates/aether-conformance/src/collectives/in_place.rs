//! The in-place forms, and every other overlap, which is refused.

use aether_collective::{ReduceOp, Request};
use aether_core::{
    Address, AsSpan, AsSpanMut, DType, Device, DeviceKind, ErrorKind, Span, SpanMut,
};

use super::bench::{Bench, Form, Step, Stop, expect, expect_kind};
use super::buffer::{Buffer, numbers};
use super::calls::same;
use super::operation::Operation;
use super::reference;

super::theme! {
    "in_place":
    all_reduce,
    broadcast,
    all_gather,
    all_gather_v,
    reduce_scatter_leaves_the_other_chunks,
    other_overlaps_are_refused,
    buffers_of_all_members_may_share_an_allocation,
    ranges_that_ranks_share_are_refused,
}

const TYPE: DType = DType::F32;
const RANKS: usize = 3;
const COUNT: usize = 35;
const CHUNK: usize = COUNT * 4;

/// The source that is exactly the destination, or exactly a part of it.
fn alias<'a>(dst: &SpanMut<'a>, start: usize, bytes: usize) -> Step<Span<'a>> {
    // SAFETY: both go into one request of one rank, which is told of both ("they are only given to one
    // operation").
    Ok(unsafe { dst.alias() }.part(start, bytes)?)
}

/// How a case gives the source: not at all, or by its range.
const EXPLICIT: [bool; 2] = [false, true];

/// Runs `request` on one buffer a rank, which holds `before` and has to hold `wanted` then.
fn check(
    bench: &Bench<'_>,
    before: impl Fn(usize) -> Vec<u8>,
    wanted: impl Fn(usize) -> Vec<u8>,
    request: impl for<'a> Fn(usize, bool, SpanMut<'a>) -> Step<Request<'a>>,
) -> Step {
    bench.needs(TYPE, ReduceOp::Sum)?;
    bench.both(RANKS, |team, devices| {
        for explicit in EXPLICIT {
            let made = devices.iter().enumerate();
            let made = made.map(|(rank, device)| Buffer::new(device, TYPE, &before(rank), rank));
            let mut buffers = made.collect::<Step<Vec<_>>>()?;
            let each = buffers.iter_mut().enumerate();
            let requests = each.map(|(rank, it)| request(rank, explicit, it.span_mut()?));
            team.all(requests.collect::<Step<Vec<_>>>()?)?;
            for (rank, buffer) in buffers.iter().enumerate() {
                let what = format!("rank {rank}, source given: {explicit}");
                same(TYPE, &buffer.read()?, &wanted(rank)).map_err(|it| it.during(what))?;
            }
        }
        Ok(())
    })
}

fn all_reduce(bench: &Bench<'_>) -> Step {
    let before = |rank| numbers(TYPE, COUNT, rank, 23);
    let sources: Vec<_> = (0..RANKS).map(before).collect();
    let wanted = reference::reduce(TYPE, ReduceOp::Sum, &sources);
    check(
        bench,
        before,
        |_| wanted.clone(),
        |_, explicit, dst| {
            let src = if explicit { Some(alias(&dst, 0, CHUNK)?) } else { None };
            Ok(Request::AllReduce { src, dst, op: ReduceOp::Sum })
        },
    )
}

fn broadcast(bench: &Bench<'_>) -> Step {
    let before = |rank| numbers(TYPE, COUNT, rank, 24);
    check(
        bench,
        before,
        |_| before(1),
        |rank, explicit, dst| {
            let src = if explicit && rank == 1 { Some(alias(&dst, 0, CHUNK)?) } else { None };
            Ok(Request::Broadcast { src, dst, root: 1 })
        },
    )
}

/// A buffer of one chunk for each rank, of which this rank's holds numbers and the others garbage.
fn own_chunk(rank: usize, salt: u64) -> Vec<u8> {
    let mut all = crate::suite::pattern(RANKS * CHUNK, salt);
    for (to, from) in all.iter_mut().skip(rank * CHUNK).zip(numbers(TYPE, COUNT, rank, salt)) {
        *to = from;
    }
    all
}

fn all_gather(bench: &Bench<'_>) -> Step {
    let wanted: Vec<u8> = (0..RANKS).flat_map(|rank| numbers(TYPE, COUNT, rank, 25)).collect();
    check(
        bench,
        |rank| own_chunk(rank, 25),
        |_| wanted.clone(),
        |rank, explicit, dst| {
            let src = if explicit { Some(alias(&dst, rank * CHUNK, CHUNK)?) } else { None };
            Ok(Request::AllGather { src, dst })
        },
    )
}

fn all_gather_v(bench: &Bench<'_>) -> Step {
    // Counts whose sum is that of equal chunks.
    const COUNTS: [u64; RANKS] = [COUNT as u64 - 5, COUNT as u64 + 5, COUNT as u64];
    let chunk = |rank: usize| numbers(TYPE, COUNTS[rank] as usize, rank, 26);
    let start = |rank: usize| COUNTS.iter().take(rank).sum::<u64>() as usize * TYPE.size();
    let before = |rank: usize| {
        let mut all = crate::suite::pattern(RANKS * CHUNK, 26);
        for (to, from) in all.iter_mut().skip(start(rank)).zip(chunk(rank)) {
            *to = from;
        }
        all
    };
    let wanted: Vec<u8> = (0..RANKS).flat_map(chunk).collect();
    check(
        bench,
        before,
        |_| wanted.clone(),
        |rank, explicit, dst| {
            let bytes = COUNTS[rank] as usize * TYPE.size();
            let src = if explicit { Some(alias(&dst, start(rank), bytes)?) } else { None };
            Ok(Request::AllGatherV { src, dst, counts: &COUNTS })
        },
    )
}

fn reduce_scatter_leaves_the_other_chunks(bench: &Bench<'_>) -> Step {
    let before = |rank| numbers(TYPE, RANKS * COUNT, rank, 27);
    let sources: Vec<_> = (0..RANKS).map(before).collect();
    let reduced = reference::reduce(TYPE, ReduceOp::Sum, &sources);
    let wanted = |rank: usize| {
        let mut all = before(rank);
        let own = rank * CHUNK..(rank + 1) * CHUNK;
        for (at, (to, from)) in all.iter_mut().zip(&reduced).enumerate() {
            if own.contains(&at) {
                *to = *from;
            }
        }
        all
    };
    check(bench, before, wanted, |rank, explicit, buffer| {
        if !explicit {
            return Ok(Request::ReduceScatterInPlace { buffer, op: ReduceOp::Sum });
        }
        let src = alias(&buffer, 0, RANKS * CHUNK)?;
        let dst = buffer.into_part(rank * CHUNK, CHUNK)?;
        Ok(Request::ReduceScatter { src, dst, op: ReduceOp::Sum })
    })
}

/// One more element than the operations need, to shift by it.
const WHOLE: usize = RANKS * CHUNK + 4;

/// A request that overlaps itself in a way that isn't the in-place form, and whether only that of rank
/// 0 does. The operations that have roots have rank 0.
fn overlapping<'a>(
    which: usize,
    rank: usize,
    all: SpanMut<'a>,
) -> Step<Option<(Request<'a>, bool)>> {
    let op = ReduceOp::Sum;
    let next = (rank + 1) % RANKS;
    let everything = RANKS * CHUNK;
    let root = 0;
    Ok(Some(match which {
        0 => {
            let src = alias(&all, 0, CHUNK)?;
            (Request::AllReduce { src: Some(src), dst: all.into_part(4, CHUNK)?, op }, false)
        }
        1 => {
            let src = alias(&all, next * CHUNK, CHUNK)?;
            let dst = all.into_part(0, everything)?;
            (Request::AllGather { src: Some(src), dst }, false)
        }
        2 => {
            let src = alias(&all, rank * CHUNK + 4, CHUNK)?;
            let dst = all.into_part(0, everything)?;
            (Request::AllGather { src: Some(src), dst }, false)
        }
        3 => {
            let src = alias(&all, 0, everything)?;
            (Request::ReduceScatter { src, dst: all.into_part(next * CHUNK, CHUNK)?, op }, false)
        }
        4 => {
            let src = alias(&all, 0, everything)?;
            (
                Request::ReduceScatter { src, dst: all.into_part(rank * CHUNK + 4, CHUNK)?, op },
                false,
            )
        }
        5 => {
            let src = alias(&all, 0, everything)?;
            (Request::AllToAll { src, dst: all.into_part(0, everything)? }, false)
        }
        6 => {
            let src = if rank == root { Some(alias(&all, 0, CHUNK)?) } else { None };
            (Request::Broadcast { src, dst: all.into_part(4, CHUNK)?, root }, true)
        }
        7 => {
            let src = alias(&all, 0, CHUNK)?;
            let dst = if rank == root { Some(all.into_part(0, everything)?) } else { None };
            (Request::Gather { src, dst, root }, true)
        }
        8 => {
            let src = if rank == root { Some(alias(&all, 0, everything)?) } else { None };
            (Request::Scatter { src, dst: all.into_part(0, CHUNK)?, root }, true)
        }
        9 => {
            let src = alias(&all, 0, CHUNK)?;
            let dst = if rank == root { Some(all.into_part(4, CHUNK)?) } else { None };
            (Request::Reduce { src, dst, op, root }, true)
        }
        _ => return Ok(None),
    }))
}

fn other_overlaps_are_refused(bench: &Bench<'_>) -> Step {
    bench.needs(TYPE, ReduceOp::Sum)?;
    bench.both(RANKS, |team, devices| {
        for which in 0.. {
            let made = devices.iter();
            let made = made.map(|device| Buffer::garbage(device, TYPE, WHOLE / 4, 0));
            let mut buffers = made.collect::<Step<Vec<_>>>()?;
            let mut before = Vec::new();
            for buffer in &buffers {
                before.push(buffer.read()?);
            }
            let (mut requests, mut only_first) = (Vec::new(), false);
            for (rank, buffer) in buffers.iter_mut().enumerate() {
                let Some((request, first)) = overlapping(which, rank, buffer.span_mut()?)? else {
                    return Ok(());
                };
                requests.push(request);
                only_first = first;
            }
            let operation = requests.first().map_or("a call", |it| it.operation().name());
            let what = format!("overlap {which}, in {operation}");
            for outcome in team.refused(requests, only_first) {
                expect_kind(outcome, ErrorKind::Overlap, &what)?;
            }
            for (buffer, before) in buffers.iter().zip(&before) {
                same(TYPE, &buffer.read()?, before).map_err(|it: Stop| it.during(&what))?;
            }
        }
        Ok(())
    })
}

/// Skips what needs memory of the host that every rank may use.
fn host_only(devices: &[Device]) -> Step {
    let on_host = |it: &Device| it.kind() == DeviceKind::CPU && it.host_addressable();
    match devices.iter().all(on_host) {
        true => Ok(()),
        false => Err(Stop::Skipped("the devices don't share memory of the host".to_owned())),
    }
}

fn buffers_of_all_members_may_share_an_allocation(bench: &Bench<'_>) -> Step {
    bench.needs(TYPE, ReduceOp::Sum)?;
    bench.both(RANKS, |team, devices| {
        host_only(devices)?;
        let sources: Vec<_> = (0..RANKS).map(|rank| numbers(TYPE, COUNT, rank, 28)).collect();
        let values = |bytes: &[u8]| -> Vec<f32> {
            let bits = reference::elements(TYPE, bytes);
            bits.into_iter().map(|it| f32::from_bits(it as u32)).collect()
        };
        // In place, in neighbouring parts of one vector.
        let mut memory = values(&sources.concat());
        let requests = memory.chunks_mut(COUNT).map(|part| {
            Ok(Request::AllReduce { src: None, dst: part.span_mut()?, op: ReduceOp::Sum })
        });
        team.all(requests.collect::<Step<Vec<_>>>()?)?;
        let wanted = values(&reference::reduce(TYPE, ReduceOp::Sum, &sources));
        expect(memory.chunks(COUNT).all(|it| it == wanted), || "the sum is wrong".to_owned())?;
        // All ranks read one source.
        let source = values(&sources[0]);
        let mut memory = vec![0f32; RANKS * COUNT];
        let requests = memory.chunks_mut(COUNT).map(|part| {
            let src = Some(source.span()?);
            Ok(Request::AllReduce { src, dst: part.span_mut()?, op: ReduceOp::Max })
        });
        team.all(requests.collect::<Step<Vec<_>>>()?)?;
        expect(memory.chunks(COUNT).all(|it| it == source), || "the maximum is wrong".to_owned())
    })
}

fn ranges_that_ranks_share_are_refused(bench: &Bench<'_>) -> Step {
    bench.needs(TYPE, ReduceOp::Sum)?;
    let devices = bench.devices(2)?;
    host_only(&devices)?;
    let mut team = bench.team(Form::OneCaller, &devices, &bench.config())?;
    let mut memory = vec![1f32; 3 * COUNT];
    let address = |memory: &mut Vec<f32>, at: usize| -> Address {
        Address::from_ptr(memory.as_mut_ptr().wrapping_add(at).cast())
    };
    let mut own = vec![2f32; 2 * COUNT];
    let (one, two) = own.split_at_mut(COUNT);
    // Rank 0 writes the front of the memory; rank 1 reads, or writes, what begins in the middle of it.
    for writes in [false, true] {
        let (front, middle) = (address(&mut memory, 0), address(&mut memory, COUNT / 2));
        // SAFETY: the call below is refused before anything is touched, which this case is about; were
        // it not, all that could be seen are floats of a vector that outlives the blocking call.
        let front = unsafe { SpanMut::from_raw(front, CHUNK, TYPE) };
        // SAFETY: as above.
        let middle = unsafe { SpanMut::from_raw(middle, CHUNK, TYPE) };
        let op = ReduceOp::Sum;
        let first = Request::AllReduce { src: Some(one.span()?), dst: front, op };
        let second = match writes {
            true => Request::AllReduce { src: Some(two.span()?), dst: middle, op },
            false => Request::AllReduce { src: Some(middle.into_span()), dst: two.span_mut()?, op },
        };
        let what = "a range that one rank writes and another touches";
        let outcome = team.run(vec![first, second]).pop().unwrap_or(Ok(()));
        let error = expect_kind(outcome, ErrorKind::Overlap, what)?;
        let named = error.ranks().contains(&0) && error.ranks().contains(&1);
        expect(named, || format!("{what}: the error does not name both ranks: {error}"))?;
        expect(memory.iter().all(|it| *it == 1.0), || "a refused call wrote".to_owned())?;
    }
    let plain = Operation::AllReduce(ReduceOp::Sum);
    let sources: Vec<_> = (0..2).map(|rank| numbers(TYPE, COUNT, rank, 29)).collect();
    super::calls::verify(&mut team, &devices, &plain, TYPE, &sources, |_| 0)?;
    team.finish()
}

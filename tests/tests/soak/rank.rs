//! A rank of a round: it calls until a call fails, says so, and looks after its memory from then on.

use std::time::Duration;

use aether::{
    Chunk, Device, Directory, Group, GroupConfig, Host, Message, Request, Result, Span, SpanMut,
};

use crate::schedule::{Round, Step, Steps, What};
use crate::worker::{Part, hear, say};

/// How long the ranks may take to meet.
const JOINING: Duration = Duration::from_secs(20);

/// What survivors fill their memory with.
const CANARY: u8 = 0xC5;

/// Memory of a call.
struct Buffers {
    src: Option<Chunk>,
    dst: Option<Chunk>,
}

pub(crate) fn play(part: &Part) -> std::result::Result<(), String> {
    let round = Round::of(part.number);
    let config = GroupConfig::default().with_deadline(round.deadline).with_join_deadline(JOINING);
    let device = Device::cpu(part.rank as u32);
    let joined = Directory::new(&part.place, part.rank, part.ranks)
        .and_then(|at| Group::<Host>::join_at(&at, &device, &config));
    let mut group = joined.map_err(|error| format!("can't join: {error:?}"))?;
    // The memory of the last calls is kept: a late write would show in it.
    let mut kept: Vec<Buffers> = Vec::new();
    for (number, step) in Steps::of(part.number, part.ranks).enumerate() {
        let sources = step.sources(part.ranks);
        let mut buffers =
            lay_out(&device, &step, part, &sources).map_err(|it| format!("{it:?}"))?;
        let called = call(&mut group, &step, part, &mut buffers);
        let failed = called.as_ref().err().cloned();
        if failed.is_none() {
            verify(&step, part, &sources, &buffers)
                .map_err(|why| format!("call {number}, {step:?}: {why}"))?;
        }
        kept.push(buffers);
        if kept.len() > 4 {
            kept.remove(0);
        }
        if number == 0 {
            say("began");
        }
        if let Some(error) = failed {
            say(&format!("error {:?} after {number} calls: {error:?}", error.ranks()));
            break;
        }
    }
    keep_watch(&mut kept)?;
    drop(group);
    Ok(())
}

/// Fills all memory, and looks at it whenever the controlling process asks.
fn keep_watch(kept: &mut [Buffers]) -> std::result::Result<(), String> {
    let mut all: Vec<&mut Chunk> =
        kept.iter_mut().flat_map(|it| [&mut it.src, &mut it.dst]).flatten().collect();
    for chunk in &mut all {
        let whole = chunk.slice_mut::<u8>();
        // A range that a failed call left is written before it is read.
        match whole {
            Ok(bytes) => bytes.fill(CANARY),
            Err(_) => aether::fill(*chunk, CANARY).map_err(|error| format!("canary: {error:?}"))?,
        }
    }
    loop {
        match hear().as_str() {
            "look" => {
                for chunk in &all {
                    let bytes = chunk.to_vec::<u8>().map_err(|error| format!("look: {error:?}"))?;
                    if let Some(at) = bytes.iter().position(|it| *it != CANARY) {
                        return Err(format!(
                            "byte {at} of {} was written after the failure",
                            bytes.len()
                        ));
                    }
                }
                say("untouched");
            }
            "leave" => return Ok(()),
            other => return Err(format!("`{other}` makes no sense")),
        }
    }
}

fn lay_out(device: &Device, step: &Step, part: &Part, sources: &[Vec<u8>]) -> Result<Buffers> {
    let (rank, ranks) = (part.rank, part.ranks);
    let (brings, gets) = match &step.what {
        What::Collective(it) => {
            (it.source(rank, ranks, step.count).is_some(), it.destination(rank, ranks, step.count))
        }
        What::Ring => (true, Some(step.count)),
        What::Barrier => (false, None),
    };
    let src = brings.then(|| Chunk::from_vec(device, sources[rank].clone())).transpose()?;
    let garbage = |count: usize| Chunk::from_vec(device, vec![0xEEu8; count * step.dtype.size()]);
    Ok(Buffers { src, dst: gets.map(garbage).transpose()? })
}

fn call(group: &mut Group<Host>, step: &Step, part: &Part, buffers: &mut Buffers) -> Result<()> {
    let (rank, ranks) = (part.rank, part.ranks);
    let src: Option<Span<'_>> =
        buffers.src.as_ref().map(|it| it.span_of(.., step.dtype)).transpose()?;
    let dst: Option<SpanMut<'_>> =
        buffers.dst.as_mut().map(|it| it.span_of_mut(.., step.dtype)).transpose()?;
    match (&step.what, src, dst) {
        (What::Collective(operation), src, dst) => match operation.request(src, dst) {
            Some(request) => group.run(request),
            None => unreachable!("every rank has the buffers that `lay_out` made"),
        },
        (What::Ring, Some(src), Some(dst)) => {
            let (next, before) = ((rank + 1) % ranks, (rank + ranks - 1) % ranks);
            let messages = [Message::Send { src, peer: next }, Message::Recv { dst, peer: before }];
            group.run(Request::Batch(messages.into_iter().collect()))
        }
        _ => group.run(Request::Barrier),
    }
}

fn verify(
    step: &Step,
    part: &Part,
    sources: &[Vec<u8>],
    buffers: &Buffers,
) -> std::result::Result<(), String> {
    let (Some(wanted), Some(dst)) = (step.expected(part.rank, sources), &buffers.dst) else {
        return Ok(());
    };
    let found = dst.to_vec::<u8>().map_err(|error| format!("{error:?}"))?;
    match found.iter().zip(&wanted).position(|(one, two)| one != two) {
        None if found.len() == wanted.len() => Ok(()),
        None => Err(format!("{} bytes, wanted {}", found.len(), wanted.len())),
        Some(at) => Err(format!("byte {at} is {:#x}, wanted {:#x}", found[at], wanted[at])),
    }
}

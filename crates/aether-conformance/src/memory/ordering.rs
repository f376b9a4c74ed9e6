//! Work on the same memory is ordered, whichever streams it is on: on the backend alone, by what ends
//! up in memory, and by way of a detector, whatever the timing.

use aether_core::{Chunk, Device, Stream, copy_async, fill_async};

use super::{Bench, Case, expect_bytes, programs};
use crate::suite::{Failed, Outcome, chunk_of, expect, passed, pattern};

pub(super) const CASES: [Case; 8] = [
    Case { name: "ordering::a_read_sees_the_write_before_it", run: reads_alone },
    Case { name: "ordering::a_read_sees_the_write_before_it_checked", run: reads_checked },
    Case { name: "ordering::a_write_leaves_the_reads_before_it_alone", run: writes_alone },
    Case { name: "ordering::a_write_leaves_the_reads_before_it_checked", run: writes_checked },
    Case { name: "ordering::a_ring_of_streams", run: ring_alone },
    Case { name: "ordering::a_ring_of_streams_checked", run: ring_checked },
    Case { name: "ordering::random_programs_do_as_their_model", run: programs_alone },
    Case { name: "ordering::random_programs_checked", run: programs_checked },
];

const BYTES: usize = 1 << 17;
const ROUNDS: u64 = 12;

fn alone(bench: &Bench<'_>, program: fn(&[Device]) -> Result<(), Failed>) -> Outcome {
    program(&Bench::linked(bench.devices()))?;
    passed()
}

fn checked(bench: &Bench<'_>, program: fn(&[Device]) -> Result<(), Failed>) -> Outcome {
    bench.watched(program)?;
    passed()
}

fn reads_alone(bench: &Bench<'_>) -> Outcome {
    alone(bench, reads)
}

fn reads_checked(bench: &Bench<'_>) -> Outcome {
    checked(bench, reads)
}

fn writes_alone(bench: &Bench<'_>) -> Outcome {
    alone(bench, writes)
}

fn writes_checked(bench: &Bench<'_>) -> Outcome {
    checked(bench, writes)
}

fn ring_alone(bench: &Bench<'_>) -> Outcome {
    alone(bench, ring)
}

fn ring_checked(bench: &Bench<'_>) -> Outcome {
    checked(bench, ring)
}

fn programs_alone(bench: &Bench<'_>) -> Outcome {
    alone(bench, random_programs)
}

fn programs_checked(bench: &Bench<'_>) -> Outcome {
    checked(bench, random_programs)
}

/// Two devices, the same one twice if there is only one.
fn two(devices: &[Device]) -> Result<(&Device, &Device), Failed> {
    devices.first().zip(devices.last()).ok_or_else(|| "the fixture has no device".into())
}

/// A long row of writes on one stream, and a read on another.
fn reads(devices: &[Device]) -> Result<(), Failed> {
    let (one, other) = two(devices)?;
    let (writer, reader) = (Stream::new(one)?, Stream::new(other)?);
    for round in 0..ROUNDS {
        let wanted = pattern(BYTES, round);
        let source = chunk_of(one, &wanted)?;
        let mut middle = Chunk::allocate(one, BYTES)?;
        let mut last = Chunk::allocate(other, BYTES)?;
        fill_async(&mut last, 0u8, &reader)?;
        for value in 0..6_u8 {
            fill_async(&mut middle, value, &writer)?;
        }
        copy_async(&mut middle, &source, &writer)?;
        copy_async(&mut last, &middle, &reader)?;
        expect_bytes(&last, &wanted, "a read behind a write on another stream")?;
    }
    Ok(())
}

/// Reads on several streams, and a write on another.
fn writes(devices: &[Device]) -> Result<(), Failed> {
    let (one, other) = two(devices)?;
    let readers = [Stream::new(one)?, Stream::new(other)?, Stream::new(one)?];
    let writer = Stream::new(other)?;
    for round in 0..ROUNDS {
        let wanted = pattern(BYTES, round);
        let mut source = chunk_of(one, &wanted)?;
        let mut targets = Vec::new();
        for reader in &readers {
            let mut target = Chunk::allocate(other, BYTES)?;
            // To be late.
            fill_async(&mut target, 1u8, reader)?;
            fill_async(&mut target, 2u8, reader)?;
            copy_async(&mut target, &source, reader)?;
            targets.push(target);
        }
        fill_async(&mut source, 0xEE_u8, &writer)?;
        for target in &targets {
            expect_bytes(target, &wanted, "a read before a write on another stream")?;
        }
        expect_bytes(&source, &[0xEE; BYTES], "the write behind three reads")?;
    }
    Ok(())
}

/// One value goes around over several streams and devices.
fn ring(devices: &[Device]) -> Result<(), Failed> {
    const AROUND: usize = 4;
    let bytes = BYTES / 8;
    let mut streams = Vec::new();
    let mut chunks = Vec::new();
    for device in devices.iter().cycle().take(AROUND) {
        streams.push(Stream::new(device)?);
        let mut chunk = Chunk::allocate(device, bytes)?;
        fill_async(&mut chunk, 0u8, streams.last().ok_or("no stream")?)?;
        chunks.push(chunk);
    }
    for round in 0..ROUNDS {
        let wanted = pattern(bytes, round);
        let device = chunks.first().ok_or("no chunk")?.device().clone();
        let source = chunk_of(&device, &wanted)?;
        copy_async(chunks.first_mut().ok_or("no chunk")?, &source, streams.last().ok_or("none")?)?;
        // The source goes at once.
        drop(source);
        for at in 1..AROUND {
            let (before, after) = chunks.split_at_mut(at);
            let (Some(from), Some(to)) = (before.last(), after.first_mut()) else { break };
            copy_async(to, from, streams.get(at).ok_or("no stream")?)?;
        }
        let last = chunks.last().ok_or("no chunk")?;
        expect(last.size() == bytes, || "a chunk changed its size".to_owned())?;
        expect_bytes(last, &wanted, "what went around")?;
    }
    Ok(())
}

fn random_programs(devices: &[Device]) -> Result<(), Failed> {
    (0..60).try_for_each(|seed| programs::run(devices, seed))
}

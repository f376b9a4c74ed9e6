//! Memory outlives the work on it, whatever becomes of its handles, and then goes back.

use aether_core::{Chunk, Device, Stream, copy_async, fill_async};

use super::{Bench, Case, expect_bytes};
use crate::suite::{Failed, Outcome, chunk_of, passed, pattern, skipped};

pub(super) const CASES: [Case; 4] = [
    Case {
        name: "lifetimes::what_is_dropped_in_flight_lives_until_its_end",
        run: what_is_dropped_in_flight_lives_until_its_end,
    },
    Case {
        name: "lifetimes::what_is_dropped_in_flight_checked",
        run: what_is_dropped_in_flight_checked,
    },
    Case {
        name: "lifetimes::forgotten_handles_break_nothing",
        run: forgotten_handles_break_nothing,
    },
    Case { name: "lifetimes::memory_comes_back", run: memory_comes_back },
];

const BYTES: usize = 1 << 18;

fn what_is_dropped_in_flight_lives_until_its_end(bench: &Bench<'_>) -> Outcome {
    dropped_in_flight(&Bench::linked(bench.devices()))?;
    passed()
}

fn what_is_dropped_in_flight_checked(bench: &Bench<'_>) -> Outcome {
    bench.watched(dropped_in_flight)?;
    passed()
}

fn dropped_in_flight(devices: &[Device]) -> Result<(), Failed> {
    let (Some(from), Some(to)) = (devices.first(), devices.last()) else { return Ok(()) };
    for round in 0..10 {
        let wanted = pattern(BYTES, round);
        let source = chunk_of(from, &wanted)?;
        let mut target = Chunk::allocate(to, BYTES)?;
        let mut unseen = Chunk::allocate(to, BYTES)?;
        let stream = Stream::new(to)?;
        fill_async(&mut target, 1u8, &stream)?;
        copy_async(&mut unseen, &source, &stream)?;
        copy_async(&mut target, &source, &stream)?;
        drop((source, unseen, stream));
        // If the source were freed already, this would be the same memory.
        let other = chunk_of(from, &pattern(BYTES, round + 100))?;
        expect_bytes(&target, &wanted, "a copy whose source was dropped")?;
        drop(other);
    }
    Ok(())
}

fn forgotten_handles_break_nothing(bench: &Bench<'_>) -> Outcome {
    let devices = Bench::linked(bench.devices());
    let (Some(from), Some(to)) = (devices.first(), devices.last()) else { return passed() };
    let wanted = pattern(BYTES, 3);
    let mut source = chunk_of(from, &wanted)?;
    let mut target = Chunk::allocate(to, BYTES)?;
    let stream = Stream::new(to)?;
    std::mem::forget(copy_async(&mut target, &source, &stream)?);
    std::mem::forget(stream);
    fill_async(&mut source, 9u8, &Stream::new(from)?)?;
    expect_bytes(&target, &wanted, "a copy whose end nobody is told of")?;
    std::mem::forget(target);
    expect_bytes(&source, &[9; BYTES], "the source, written again")?;
    passed()
}

/// The most memory of a device that the case goes through several times.
const MOST: u64 = 64 << 20;

fn memory_comes_back(bench: &Bench<'_>) -> Outcome {
    let device = bench.first()?;
    let total = match device.backend().memory_info(device.id()) {
        Some(info) if info.total <= MOST => info.total,
        Some(_) => return skipped("the device has too much memory to go through it"),
        None => return skipped("the device doesn't tell how much memory it has"),
    };
    let stream = Stream::new(device)?;
    for _ in 0..40 {
        let mut chunk = Chunk::allocate(device, (total / 8) as usize)?;
        fill_async(&mut chunk, 1u8, &stream)?.wait()?;
    }
    passed()
}

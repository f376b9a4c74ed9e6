//! Memory outlives the work on it, whatever becomes of its handles, and then goes back.

use std::sync::{Mutex, PoisonError};

use aether_core::{Chunk, Device, Stream, copy_async, fill, fill_async};

use super::{Bench, Case, expect_bytes};
use crate::suite::{Failed, Outcome, chunk_of, expect, passed, pattern, skipped};

pub(super) const CASES: [Case; 5] = [
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
    Case {
        name: "lifetimes::memory_of_the_host_goes_back_to_the_system",
        run: memory_of_the_host_goes_back_to_the_system,
    },
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

/// What is allocated, and freed at once, again and again.
const BLOCK: usize = 1 << 20;
const BLOCKS: usize = 2000;

/// By how many bytes the process may grow meanwhile: above what allocators and other cases keep, and
/// far below what all blocks have.
const GROWTH: usize = 512 << 20;

fn memory_of_the_host_goes_back_to_the_system(bench: &Bench<'_>) -> Outcome {
    let Some(device) = bench.devices().iter().find(|it| it.host_addressable()) else {
        return skipped("the host can't address any of the devices");
    };
    // Of two at a time, each would see what the other's backend keeps.
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    let _alone = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    let Some(before) = resident() else {
        return skipped("this system does not tell how much memory the process has");
    };
    for block in 1..=BLOCKS {
        let mut chunk = Chunk::allocate(device, BLOCK)?;
        // Memory counts from when it is written.
        fill(&mut chunk, block as u8)?;
        drop(chunk);
        if block % 50 == 0 {
            let grown = resident().unwrap_or(before).saturating_sub(before);
            expect(grown <= GROWTH, || {
                let (grown, size) = (grown >> 20, BLOCK >> 20);
                format!(
                    "the process has grown by {grown} MiB over {block} allocations of {size} MiB on \
                     {device}, each freed before the next: `free` has to give memory back"
                )
            })?;
        }
    }
    passed()
}

/// How many bytes of this process are in memory, where the system tells.
fn resident() -> Option<usize> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|it| it.strip_prefix("VmRSS:"))?;
    let kib: usize = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kib.checked_mul(1024)
}

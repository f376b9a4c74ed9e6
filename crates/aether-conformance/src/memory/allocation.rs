//! Memory is as large and aligned as asked, and belongs to one chunk.

use aether_core::{Chunk, Device};

use super::{Bench, Case, expect_bytes};
use crate::suite::{Failed, Outcome, chunk_of, expect, expect_equal, passed, pattern, skipped};

pub(super) const CASES: [Case; 6] = [
    Case {
        name: "allocation::memory_is_as_large_and_aligned_as_asked",
        run: memory_is_as_large_and_aligned_as_asked,
    },
    Case { name: "allocation::host_memory_begins_as_zeros", run: host_memory_begins_as_zeros },
    Case {
        name: "allocation::live_allocations_share_no_byte",
        run: live_allocations_share_no_byte,
    },
    Case { name: "allocation::zero_bytes_allocate_nothing", run: zero_bytes_allocate_nothing },
    Case {
        name: "allocation::threads_allocate_at_the_same_time",
        run: threads_allocate_at_the_same_time,
    },
    Case {
        name: "allocation::no_more_memory_is_free_than_there_is",
        run: no_more_memory_is_free_than_there_is,
    },
];

fn memory_is_as_large_and_aligned_as_asked(bench: &Bench<'_>) -> Outcome {
    for device in bench.devices() {
        let default = Chunk::allocate(device, 3)?;
        expect_equal(default.data().addr() % aether_core::ALIGNMENT, 0, "the default alignment")?;
        for alignment in [1, 2, 8, 64, 256, 512, 4096] {
            for bytes in [1, 7, 256, 4097, 100_000] {
                let mut chunk = Chunk::allocate_aligned(device, bytes, alignment)?;
                let address = chunk.data();
                expect(address.addr() != 0, || "the address is null".to_owned())?;
                expect(address.addr().is_multiple_of(alignment), || {
                    format!("{address:?} is not a multiple of {alignment}")
                })?;
                expect_equal(chunk.size(), bytes, "the size")?;
                expect(chunk.owns(), || "the chunk does not own its memory".to_owned())?;
                expect(chunk.device() == device, || format!("{chunk:?} is not on {device}"))?;
                let wanted = pattern(bytes, alignment as u64);
                let source = chunk_of(device, &wanted)?;
                aether_core::copy(&mut chunk, &source)?;
                expect_bytes(&chunk, &wanted, "what was written")?;
            }
        }
    }
    passed()
}

fn host_memory_begins_as_zeros(bench: &Bench<'_>) -> Outcome {
    let host: Vec<_> = bench.devices().iter().filter(|it| it.host_addressable()).collect();
    if host.is_empty() {
        return skipped("the host can't address any of the devices");
    }
    for device in host {
        for bytes in [1, 24, 100, 1000, 4096, 70_000, 300_000] {
            for round in 0..8 {
                let mut chunk = Chunk::allocate(device, bytes)?;
                let found = chunk.slice::<u8>()?.iter().enumerate().find(|it| *it.1 != 0);
                if let Some((at, byte)) = found {
                    let what = format!("byte {at} of {bytes} is {byte} and not zero");
                    return Err(format!("{what}, in round {round} on {device}").into());
                }
                // The next one may get the same memory.
                chunk.slice_mut::<u8>()?.fill(0xFF);
            }
        }
    }
    passed()
}

fn live_allocations_share_no_byte(bench: &Bench<'_>) -> Outcome {
    let mut live = Vec::new();
    for round in 0..40_usize {
        for device in bench.devices() {
            let wanted = pattern(100 + 37 * (round % 5), live.len() as u64);
            live.push((chunk_of(device, &wanted)?, wanted));
        }
    }
    for (chunk, wanted) in &live {
        expect_bytes(chunk, wanted, "an allocation beside others")?;
    }
    passed()
}

fn zero_bytes_allocate_nothing(bench: &Bench<'_>) -> Outcome {
    for device in bench.devices() {
        let mut chunk = Chunk::allocate(device, 0)?;
        expect(chunk.is_empty() && chunk.size() == 0, || "it is not empty".to_owned())?;
        let other = Chunk::allocate(device, 0)?;
        aether_core::copy(&mut chunk, &other)?;
        aether_core::fill(&mut chunk, 7u32)?;
        expect_equal(chunk.to_vec::<u64>()?.len(), 0, "the elements of an empty chunk")?;
    }
    passed()
}

fn threads_allocate_at_the_same_time(bench: &Bench<'_>) -> Outcome {
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..4)
            .map(|thread| {
                let devices = bench.devices().to_vec();
                scope.spawn(move || allocate_often(&devices, thread))
            })
            .collect();
        for thread in threads {
            thread.join().map_err(|_| Failed::from("a thread panicked"))??;
        }
        passed()
    })
}

fn allocate_often(devices: &[Device], thread: u64) -> Result<(), Failed> {
    for round in 0..20 {
        for device in devices {
            let wanted = pattern(512 + thread as usize, thread * 1000 + round);
            let (one, two) = (chunk_of(device, &wanted)?, chunk_of(device, &wanted)?);
            drop(one);
            expect_bytes(&two, &wanted, "what a thread wrote")?;
        }
    }
    Ok(())
}

fn no_more_memory_is_free_than_there_is(bench: &Bench<'_>) -> Outcome {
    let mut told = false;
    for device in bench.devices() {
        if let Some(info) = device.backend().memory_info(device.id()) {
            told = true;
            expect(info.free <= info.total, || format!("{info:?}"))?;
        }
    }
    if told { passed() } else { skipped("no device tells how much memory it has") }
}

//! Streams run in order, and their ends are true and come.

use aether_core::{Chunk, Device, Stream, copy, copy_async, fill_async};

use super::{Bench, Case, expect_bytes};
use crate::suite::{Failed, Outcome, chunk_of, expect, expect_equal, passed, pattern};

pub(super) const CASES: [Case; 5] = [
    Case {
        name: "streams::work_of_one_stream_runs_in_its_order",
        run: work_of_one_stream_runs_in_its_order,
    },
    Case { name: "streams::an_end_that_is_told_is_true", run: an_end_that_is_told_is_true },
    Case { name: "streams::every_end_comes", run: every_end_comes },
    Case { name: "streams::many_open_and_close", run: many_open_and_close },
    Case { name: "streams::threads_copy_at_the_same_time", run: threads_copy_at_the_same_time },
];

/// Large enough for a copy to take longer than to ask for its end.
const LARGE: usize = 1 << 20;

fn work_of_one_stream_runs_in_its_order(bench: &Bench<'_>) -> Outcome {
    let device = bench.first()?;
    for round in 0..8_u8 {
        let mut ring: Vec<Chunk> =
            (0..4).map(|_| Chunk::allocate(device, LARGE / 16)).collect::<Result<_, _>>()?;
        let stream = Stream::new(device)?;
        let mut model = [0u8; 4];
        // Nothing waits between the steps: the stream's order is the only one there is.
        for step in 0..64_usize {
            let at = step * 7 % 4;
            if step % 3 == 0 {
                let value = (step as u8).wrapping_mul(17) ^ round;
                let Some(chunk) = ring.get_mut(at) else { continue };
                fill_async(chunk, value, &stream)?;
                model[at] = value;
                continue;
            }
            let mut target = ring.swap_remove(at);
            if let Some(source) = ring.first() {
                copy_async(&mut target, source, &stream)?;
            }
            ring.push(target);
            // What `swap_remove` and `push` did to the chunks.
            model.swap(at, 3);
            model[3] = model[0];
        }
        stream.synchronize()?;
        for (chunk, &value) in ring.iter().zip(&model) {
            expect_bytes(chunk, &vec![value; LARGE / 16], "a ring of copies")?;
        }
    }
    passed()
}

fn an_end_that_is_told_is_true(bench: &Bench<'_>) -> Outcome {
    let devices = Bench::linked(bench.devices());
    let (Some(from), Some(to)) = (devices.first(), devices.last()) else { return passed() };
    let stream = Stream::new(to)?;
    for round in 0..8 {
        let wanted = pattern(LARGE, round);
        let source = chunk_of(from, &wanted)?;
        let mut target = Chunk::allocate(to, LARGE)?;
        for value in 0..6_u8 {
            fill_async(&mut target, value, &stream)?;
        }
        let work = copy_async(&mut target, &source, &stream)?;
        while !work.is_done() {
            std::thread::yield_now();
        }
        expect_bytes(&target, &wanted, "a copy whose end was told")?;
    }
    passed()
}

fn every_end_comes(bench: &Bench<'_>) -> Outcome {
    let patience = bench.fixture.patience();
    for device in bench.devices() {
        let stream = Stream::new(device)?;
        expect(stream.last().is_done(), || "an empty stream has not ended".to_owned())?;
        let mut chunk = Chunk::allocate(device, 4096)?;
        for value in 0..20_u8 {
            let work = fill_async(&mut chunk, value, &stream)?;
            expect(work.wait_timeout(patience)?, || {
                format!("a fill of 4096 bytes has not ended after {patience:?}")
            })?;
            expect(work.is_done(), || "it ended, and then it had not".to_owned())?;
        }
        expect_equal(stream.last().point().ticket, 20, "the ticket of the last of 20 fills")?;
        stream.synchronize()?;
    }
    passed()
}

fn many_open_and_close(bench: &Bench<'_>) -> Outcome {
    for device in bench.devices() {
        let mut chunk = chunk_of(device, &pattern(256, 1))?;
        for round in 0..10_u8 {
            let streams: Vec<Stream> =
                (0..16).map(|_| Stream::new(device)).collect::<Result<_, _>>()?;
            let mut names: Vec<u64> = streams.iter().map(|it| it.native().0).collect();
            names.sort_unstable();
            names.dedup();
            if device.backend().is_asynchronous() {
                expect_equal(names.len(), 16, "the names of 16 open streams")?;
            }
            for stream in &streams {
                fill_async(&mut chunk, round, stream)?;
            }
        }
        expect_bytes(&chunk, &[9; 256], "what the last stream wrote")?;
    }
    passed()
}

fn threads_copy_at_the_same_time(bench: &Bench<'_>) -> Outcome {
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..4)
            .map(|thread| {
                let devices = Bench::linked(bench.devices());
                scope.spawn(move || copy_often(&devices, thread))
            })
            .collect();
        for thread in threads {
            thread.join().map_err(|_| Failed::from("a thread panicked"))??;
        }
        passed()
    })
}

fn copy_often(devices: &[Device], thread: u64) -> Result<(), Failed> {
    let (Some(from), Some(to)) = (devices.first(), devices.last()) else { return Ok(()) };
    for round in 0..25 {
        let wanted = pattern(3000, thread * 100 + round);
        let source = chunk_of(from, &wanted)?;
        let mut target = Chunk::allocate(to, 3000)?;
        copy(&mut target, &source)?;
        expect_bytes(&target, &wanted, "a copy beside those of other threads")?;
    }
    Ok(())
}

//! What fails is an error that says what and where, and nothing else breaks.

use aether_core::{Chunk, DType, ErrorKind, Stream, copy_async, fill};

use super::{Bench, Case, expect_bytes};
use crate::suite::{
    Outcome, chunk_of, expect, expect_equal, expect_error, passed, pattern, skipped,
};

pub(super) const CASES: [Case; 4] = [
    Case {
        name: "failures::too_much_memory_is_an_error_that_says_so",
        run: too_much_memory_is_an_error_that_says_so,
    },
    Case {
        name: "failures::no_allocation_is_larger_than_the_address_space",
        run: no_allocation_is_larger_than_the_address_space,
    },
    Case {
        name: "failures::an_allocation_that_fails_leaves_the_device_usable",
        run: an_allocation_that_fails_leaves_the_device_usable,
    },
    Case {
        name: "failures::a_copy_that_fails_is_the_error_of_reads_until_overwritten",
        run: a_copy_that_fails_is_the_error_of_reads_until_overwritten,
    },
];

fn too_much_memory_is_an_error_that_says_so(bench: &Bench<'_>) -> Outcome {
    let Some(bytes) = bench.fixture.too_much() else {
        return skipped("the fixture names no size that is too much");
    };
    for device in bench.devices() {
        let what = format!("an allocation of {bytes} bytes");
        let error = expect_error(Chunk::allocate(device, bytes), ErrorKind::OutOfMemory, &what)?;
        expect(error.bytes() == Some(bytes as u64), || {
            format!("{what} on {device}: the error does not tell the size: {error}")
        })?;
        let named = error.place() == Some(device.to_string().as_str());
        expect(named, || format!("the error does not name {device}: {error}"))?;
        let wanted = pattern(1000, 1);
        expect_bytes(&chunk_of(device, &wanted)?, &wanted, "an allocation after one that failed")?;
    }
    passed()
}

fn no_allocation_is_larger_than_the_address_space(bench: &Bench<'_>) -> Outcome {
    for device in bench.devices() {
        for bytes in [isize::MAX as usize, usize::MAX] {
            let what = format!("an allocation of {bytes} bytes");
            expect_error(Chunk::allocate(device, bytes), ErrorKind::OutOfMemory, &what)?;
        }
    }
    passed()
}

fn an_allocation_that_fails_leaves_the_device_usable(bench: &Bench<'_>) -> Outcome {
    let Some(device) = bench.fixture.failing_allocation() else {
        return skipped("the fixture can't make an allocation fail");
    };
    let failed = Chunk::allocate(&device, 100);
    expect_error(failed, ErrorKind::OutOfMemory, "an allocation that was made to fail")?;
    let wanted = pattern(100, 2);
    expect_bytes(&chunk_of(&device, &wanted)?, &wanted, "the allocation after it")?;
    passed()
}

fn a_copy_that_fails_is_the_error_of_reads_until_overwritten(bench: &Bench<'_>) -> Outcome {
    let Some((device, arm)) = bench.fixture.failing_copy() else {
        return skipped("the fixture can't make a copy fail");
    };
    let wanted = pattern(1000, 3);
    let source = chunk_of(&device, &wanted)?;
    let mut target = chunk_of(&device, &wanted)?;
    let stream = Stream::new(&device)?;
    arm();
    let mut part = target.span_of_mut(0..500, DType::U8)?;
    let work = copy_async(&mut part, &source.span_of(0..500, DType::U8)?, &stream)?;
    let Err(error) = work.wait() else {
        return Err("a copy that was made to fail went well".into());
    };
    match target.to_vec::<u8>() {
        Ok(_) => return Err("what a failed copy left could be read".into()),
        Err(read) => expect_equal(read.reason(), error.reason(), "the error of a read")?,
    }
    fill(&mut target.span_of_mut(0..500, DType::U8)?, 7u8)?;
    let mut healed = wanted.clone();
    healed.splice(0..500, [7; 500]);
    expect_bytes(&target, &healed, "a range that was written again")?;
    expect_bytes(&source, &wanted, "the source of the failed copy")?;
    passed()
}

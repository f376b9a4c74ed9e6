//! Copies come behind what touches their memory and before what touches it later, and memory lives
//! until they have ended: by what arrives, and by way of one detector for all backends.

use aether_core::{AsSpan, AsSpanMut, Chunk, Device, Stream, fill_async};

use super::{Bench, Case, passed_if};
use crate::memory::expect_bytes;
use crate::suite::{Failed, Outcome, chunk_of, pattern};

pub(super) const CASES: [Case; 2] = [
    Case {
        name: "ordering::copies_on_streams_see_what_came_before_and_not_after",
        run: copies_on_streams_see_what_came_before_and_not_after,
    },
    Case { name: "ordering::copies_on_streams_checked", run: copies_on_streams_checked },
];

const BYTES: usize = 30_000;

fn copies_on_streams_see_what_came_before_and_not_after(bench: &Bench<'_>) -> Outcome {
    passed_if(chains(bench, &bench.devices)?)
}

fn copies_on_streams_checked(bench: &Bench<'_>) -> Outcome {
    let (detector, devices) = bench.watched();
    let any = chains(bench, &devices)?;
    detector.verdict()?;
    passed_if(any)
}

/// For every pair: a write, a copy behind it, a write over the source behind that, and the source is
/// dropped at once. Gives whether any copy went on a stream.
fn chains(bench: &Bench<'_>, devices: &[Device]) -> Result<bool, Failed> {
    let mut any = false;
    for (round, from) in devices.iter().enumerate() {
        for to in devices {
            let bytes = pattern(BYTES, round as u64);
            let stream = Stream::new(if to.host_addressable() { from } else { to })?;
            let (writer, reader) = (Stream::new(from)?, Stream::new(to)?);
            let original = chunk_of(from, &bytes)?;
            let mut source = Chunk::allocate(from, BYTES)?;
            let mut target = Chunk::allocate(to, BYTES)?;
            fill_async(&mut source, 1u8, &writer)?;
            aether_core::copy_async(&mut source, &original, &writer)?;
            fill_async(&mut target, 2u8, &reader)?;
            let copied = bench.copy_async(target.span_mut()?, source.span()?, &stream)?;
            if copied.is_none() {
                continue;
            }
            any = true;
            fill_async(&mut source, 3u8, &writer)?;
            drop((source, original));
            let other = chunk_of(from, &pattern(BYTES, 99))?;
            expect_bytes(&target, &bytes, &format!("a copy from {from} to {to} in a chain"))?;
            drop(other);
        }
    }
    Ok(any)
}

//! A collective from end to end: buffers are filled, every rank makes its call, and what each gets is
//! compared with the reference.

use aether_collective::Request;
use aether_core::{DType, Device};

use super::bench::{Step, Stop, Team, expect};
use super::buffer::Buffer;
use super::operation::Operation;
use super::reference;

/// The buffers of a call, by rank.
pub(crate) struct Buffers {
    pub(crate) sources: Vec<Option<Buffer>>,
    pub(crate) destinations: Vec<Option<Buffer>>,
}

impl Buffers {
    /// Buffers for an operation: sources with these bytes, where the rank brings some, and garbage
    /// where results go. `skew` tells by how many elements each is off the alignment of a chunk.
    pub(crate) fn new(
        operation: &Operation,
        devices: &[Device],
        dtype: DType,
        sources: &[Vec<u8>],
        count: usize,
        skew: impl Fn(usize) -> usize,
    ) -> Step<Self> {
        let ranks = devices.len();
        let mut made = Self { sources: Vec::new(), destinations: Vec::new() };
        for (rank, (device, bytes)) in devices.iter().zip(sources).enumerate() {
            let src = operation.source(rank, ranks, count);
            let src = src.map(|_| Buffer::new(device, dtype, bytes, skew(2 * rank))).transpose()?;
            let dst = operation.destination(rank, ranks, count);
            let dst = dst.map(|it| Buffer::garbage(device, dtype, it, skew(2 * rank + 1)));
            made.sources.push(src);
            made.destinations.push(dst.transpose()?);
        }
        Ok(made)
    }

    /// The call of each rank.
    pub(crate) fn requests<'a>(&'a mut self, operation: &'a Operation) -> Step<Vec<Request<'a>>> {
        let both = self.sources.iter().zip(&mut self.destinations);
        both.map(|(src, dst)| {
            let src = src.as_ref().map(Buffer::span).transpose()?;
            let dst = dst.as_mut().map(Buffer::span_mut).transpose()?;
            operation.request(src, dst).ok_or_else(|| Stop::failed("a rank lacks a buffer"))
        })
        .collect()
    }

    /// What the ranks got, by rank. The sources are as they were.
    pub(crate) fn results(&self, sources: &[Vec<u8>]) -> Step<Vec<Option<Vec<u8>>>> {
        for (rank, (source, bytes)) in self.sources.iter().zip(sources).enumerate() {
            if let Some(source) = source {
                let found = source.read().map_err(|it| it.during(format!("source {rank}")))?;
                same(source.dtype, &found, bytes)
                    .map_err(|it| it.during(format!("source {rank}")))?;
            }
        }
        let read = |(rank, it): (usize, &Option<Buffer>)| {
            let found = it.as_ref().map(Buffer::read).transpose();
            found.map_err(|it| it.during(format!("rank {rank}")))
        };
        self.destinations.iter().enumerate().map(read).collect()
    }
}

/// Runs an operation on buffers that are so far off, and gives what each rank got.
pub(crate) fn perform(
    team: &mut Team,
    devices: &[Device],
    operation: &Operation,
    dtype: DType,
    sources: &[Vec<u8>],
    skew: impl Fn(usize) -> usize,
) -> Step<Vec<Option<Vec<u8>>>> {
    let what = || format!("{operation:?} of {dtype}");
    let count = count_of(operation, dtype, sources);
    let mut buffers = Buffers::new(operation, devices, dtype, sources, count, skew)?;
    team.all(buffers.requests(operation)?).map_err(|it| it.during(what()))?;
    buffers.results(sources).map_err(|it| it.during(what()))
}

/// The same, and compares the result with the reference, bit for bit.
pub(crate) fn verify(
    team: &mut Team,
    devices: &[Device],
    operation: &Operation,
    dtype: DType,
    sources: &[Vec<u8>],
    skew: impl Fn(usize) -> usize,
) -> Step {
    let found = perform(team, devices, operation, dtype, sources, skew)?;
    let wanted = operation.expected(dtype, sources);
    for (rank, (found, wanted)) in found.iter().zip(&wanted).enumerate() {
        if let (Some(found), Some(wanted)) = (found, wanted) {
            let what = || format!("{operation:?} of {dtype}, rank {rank} of {}", devices.len());
            same(dtype, found, wanted).map_err(|it| it.during(what()))?;
        }
    }
    Ok(())
}

/// The elements of a chunk, from what the ranks bring.
fn count_of(operation: &Operation, dtype: DType, sources: &[Vec<u8>]) -> usize {
    let ranks = sources.len();
    let brought = |rank| operation.source(rank, ranks, 1).zip(sources.get(rank));
    let count = |(chunks, bytes): (usize, &Vec<u8>)| bytes.len() / dtype.size() / chunks.max(1);
    (0..ranks).filter_map(brought).map(count).next().unwrap_or(0)
}

/// Expects the same elements, bit for bit, and names the first that differs.
pub(crate) fn same(dtype: DType, found: &[u8], wanted: &[u8]) -> Step {
    let (found, wanted) = (reference::elements(dtype, found), reference::elements(dtype, wanted));
    expect(found.len() == wanted.len(), || {
        format!("{} elements, wanted {}", found.len(), wanted.len())
    })?;
    let differs = found.iter().zip(&wanted).enumerate().find(|(_, (one, two))| one != two);
    differs.map_or(Ok(()), |(at, (found, wanted))| {
        let why = format!("element {at} has the bits {found:#x}, wanted {wanted:#x}");
        Err(Stop::Failed(why))
    })
}

/// What all ranks bring to an operation: `fill(elements, rank)` makes the bytes.
pub(crate) fn brought(
    operation: &Operation,
    ranks: usize,
    count: usize,
    fill: impl Fn(usize, usize) -> Vec<u8>,
) -> Vec<Vec<u8>> {
    let bring = |rank| operation.source(rank, ranks, count).map_or(Vec::new(), |it| fill(it, rank));
    (0..ranks).map(bring).collect()
}

//! The memory of a rank's buffers, as `--memory` says.

use aether::{Chunk, DType, Device, Error, ErrorKind, Result, Span, SpanMut};

use crate::cli::{MemoryName, Mode};

/// The device of one rank. That of a process has its chunks in the process's shared heap, and is there
/// before the group forms; ordinary memory needs none.
pub(super) fn device(mode: Mode, memory: MemoryName, rank: usize) -> Result<Device> {
    let index = u32::try_from(rank).map_err(|_| {
        let reason = format!("there are fewer devices than ranks: rank {rank}");
        Error::new(ErrorKind::RankOutOfRange, "bench", reason).about_ranks([rank])
    })?;
    match (mode, memory) {
        (Mode::Processes, MemoryName::Chunks) => aether::shared_device(index),
        _ => Ok(Device::cpu(index)),
    }
}

/// So many bytes of a chunk.
pub(super) struct Buffer {
    chunk: Chunk,
    bytes: usize,
}

impl Buffer {
    /// Zeroed memory: allocated by the device, or a vector of this process that the chunk adopts.
    pub(super) fn new(device: &Device, memory: MemoryName, bytes: usize) -> Result<Self> {
        let chunk = match memory {
            MemoryName::Chunks => Chunk::allocate(device, bytes)?,
            MemoryName::Ordinary => Chunk::from_vec(device, words(device, bytes)?)?,
        };
        Ok(Self { chunk, bytes })
    }

    pub(super) fn slice(&self) -> Result<&[u8]> {
        Ok(&self.chunk.slice()?[..self.bytes])
    }

    pub(super) fn slice_mut(&mut self) -> Result<&mut [u8]> {
        Ok(&mut self.chunk.slice_mut()?[..self.bytes])
    }

    pub(super) fn span(&self, dtype: DType) -> Result<Span<'_>> {
        self.chunk.span_of(..self.bytes, dtype)
    }

    pub(super) fn span_mut(&mut self, dtype: DType) -> Result<SpanMut<'_>> {
        self.chunk.span_of_mut(..self.bytes, dtype)
    }
}

/// At least so many bytes, aligned for any element.
fn words(device: &Device, bytes: usize) -> Result<Vec<u64>> {
    let (mut words, count) = (Vec::new(), bytes.div_ceil(size_of::<u64>()));
    words.try_reserve_exact(count).map_err(|error| {
        let reason = "there is no vector of this size";
        let error = Error::new(ErrorKind::OutOfMemory, "allocate", reason).caused_by(error);
        error.on(device).of_bytes(bytes as u64)
    })?;
    words.resize(count, 0);
    Ok(words)
}

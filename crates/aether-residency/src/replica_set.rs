//! The same bytes on every device of a list.

use std::fmt;

use aether_core::{
    AsSpan, AsSpanMut, Chunk, Completion, Device, Error, ErrorKind, Result, Span, Stream,
    check_tracked,
};

use crate::checksum::{checksum, outside_the_majority};
use crate::{StreamTransport, Transport};

/// One chunk of the same size on each device of a list.
///
/// The list is explicit: nothing is discovered. A device may stand in it twice, and then holds two
/// replicas. An empty list is an empty set.
pub struct ReplicaSet<Tr = StreamTransport> {
    chunks: Vec<Chunk>,
    bytes: usize,
    transport: Tr,
    /// One for each replica, for the blocking calls.
    streams: Vec<Stream>,
}

impl ReplicaSet {
    /// One chunk of `bytes` bytes on each of the devices.
    ///
    /// # Errors
    /// Those of [`Chunk::allocate`].
    pub fn new(devices: &[Device], bytes: usize) -> Result<Self> {
        Self::with_transport(devices, bytes, StreamTransport::new())
    }
}

impl<Tr: Transport> ReplicaSet<Tr> {
    /// As [`ReplicaSet::new`], with bytes moved by this transport.
    ///
    /// # Errors
    /// Those of [`Chunk::allocate`].
    pub fn with_transport(devices: &[Device], bytes: usize, transport: Tr) -> Result<Self> {
        let chunks = devices.iter().map(|it| Chunk::allocate(it, bytes)).collect::<Result<_>>()?;
        Ok(Self { chunks, bytes, transport, streams: Vec::new() })
    }

    /// How many replicas there are.
    pub fn len(&self) -> usize {
        self.chunks.len()
    }

    /// How many replicas there are: [`ReplicaSet::len`] by its other name.
    pub fn size(&self) -> usize {
        self.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.chunks.is_empty()
    }

    /// The size of one replica, in bytes.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// The devices, by replica.
    pub fn devices(&self) -> impl ExactSizeIterator<Item = &Device> {
        self.chunks.iter().map(Chunk::device)
    }

    /// What moves the bytes.
    pub fn transport(&self) -> &Tr {
        &self.transport
    }

    /// One replica.
    ///
    /// # Errors
    /// `OutOfBounds` if there are not as many.
    pub fn chunk(&self, index: usize) -> Result<&Chunk> {
        self.chunks.get(index).ok_or_else(|| no_replica(index, self.chunks.len()))
    }

    /// One replica, to change it alone.
    ///
    /// # Errors
    /// `OutOfBounds` if there are not as many.
    pub fn chunk_mut(&mut self, index: usize) -> Result<&mut Chunk> {
        let count = self.chunks.len();
        self.chunks.get_mut(index).ok_or_else(|| no_replica(index, count))
    }

    /// All replicas, in the order of the devices.
    pub fn chunks(&self) -> &[Chunk] {
        &self.chunks
    }

    /// All replicas to change them, in the order of the list. A collective takes buffers by rank, which
    /// is the order of the sorted devices.
    pub fn chunks_mut(&mut self) -> impl ExactSizeIterator<Item = &mut Chunk> {
        self.chunks.iter_mut()
    }

    /// Copies the source to every replica, bit by bit, and returns when that is done. The source is
    /// a chunk, a contiguous view, or a slice of the host.
    ///
    /// # Errors
    /// `SizeMismatch` if the source has another size, even for an empty set, and those of
    /// [`Transport::copy`]; the other replicas have their copy then all the same.
    pub fn broadcast<S: AsSpan + ?Sized>(&mut self, source: &S) -> Result<()> {
        let source = source.span()?;
        self.check_size(&source)?;
        let own = self.own_streams(&source)?;
        send(&self.transport, source, self.chunks.iter_mut(), &own)
    }

    /// Copies the source to every replica, bit by bit, replica `i` on stream `i`, and returns at once.
    ///
    /// # Errors
    /// `SizeMismatch` if the source has another size, or there are not as many streams as replicas;
    /// those of [`Transport::copy_async`], and then the replicas before may have been queued.
    pub fn broadcast_async<S: AsSpan + ?Sized>(
        &mut self,
        source: &S,
        streams: &[Stream],
    ) -> Result<Vec<Completion>> {
        let source = source.span()?;
        self.check_size(&source)?;
        check_tracked("broadcast_async", &source)?;
        if streams.len() != self.chunks.len() {
            let reason = format!("{} streams for {} replicas", streams.len(), self.chunks.len());
            return Err(Error::new(ErrorKind::SizeMismatch, "broadcast_async", reason));
        }
        let spans = self.chunks.iter_mut().map(Chunk::span_mut).collect::<Result<_>>()?;
        self.transport.copy_each_async(spans, source, streams).into_iter().collect()
    }

    /// Compares the replicas with each other, once what writes them has ended, and names those that
    /// are not the same bytes as the majority: none if all agree, all of them where no bytes are those
    /// of more than half.
    ///
    /// Bytes are compared by a checksum of 128 bits.
    ///
    /// # Errors
    /// The failure of the last write of any replica; those of the transport.
    pub fn verify(&self) -> Result<Vec<usize>> {
        let sums = self.chunks.iter().map(|it| checksum(it, &self.transport));
        Ok(outside_the_majority(&sums.collect::<Result<Vec<_>>>()?))
    }

    /// As [`ReplicaSet::verify`], for those who go on only if all agree.
    ///
    /// # Errors
    /// `ReplicasDiffer`, and its [`Error::ranks`] are those outside of the majority; those of
    /// [`ReplicaSet::verify`].
    pub fn ensure_identical(&self) -> Result<()> {
        let outside = self.verify()?;
        if outside.is_empty() {
            return Ok(());
        }
        let name =
            |it: &usize| self.chunks.get(*it).map(|chunk| format!("{it} on {}", chunk.device()));
        let names: Vec<_> = outside.iter().filter_map(name).collect();
        let reason = match outside.len() == self.chunks.len() {
            true => "no bytes are those of more than half of the replicas".to_owned(),
            false => format!("not the bytes of the majority: {}", names.join(", ")),
        };
        Err(Error::new(ErrorKind::ReplicasDiffer, "compare replicas", reason)
            .of_bytes(self.bytes as u64)
            .about_ranks(outside))
    }

    /// Copies one replica to all others that are not the same bytes, or whose last write failed, and
    /// tells which they were.
    ///
    /// # Errors
    /// `OutOfBounds` if there is no such replica; the failure of its own last write; those of
    /// [`Transport::copy`].
    pub fn repair(&mut self, from: usize) -> Result<Vec<usize>> {
        let right = checksum(self.chunk(from)?, &self.transport)?;
        // A replica that can't be read is one that has to be repaired.
        let wrong = |it: &Chunk| checksum(it, &self.transport).ok() != Some(right);
        let wrong: Vec<bool> = self.chunks.iter().map(wrong).collect();
        let (before, rest) = self.chunks.split_at_mut(from);
        let Some((source, after)) = rest.split_first_mut() else {
            return Err(no_replica(from, before.len()));
        };
        let source = source.span()?;
        let others = before.iter_mut().map(Some).chain([None]).chain(after.iter_mut().map(Some));
        let wrong_ones = others.zip(&wrong).filter_map(|(chunk, &wrong)| chunk.filter(|_| wrong));
        send(&self.transport, source, wrong_ones, &[])?;
        Ok(wrong.iter().enumerate().filter(|it| *it.1).map(|it| it.0).collect())
    }

    fn check_size(&self, source: &Span<'_>) -> Result<()> {
        if source.bytes() == self.bytes {
            return Ok(());
        }
        let reason = format!("the replicas have {} bytes", self.bytes);
        let error = Error::new(ErrorKind::SizeMismatch, "broadcast", reason);
        Err(error.of_bytes(source.bytes() as u64))
    }

    /// Streams on which the replicas are written at the same time. Memory that is only borrowed is
    /// read by one blocking copy after the other, which takes none.
    fn own_streams(&mut self, source: &Span<'_>) -> Result<Vec<Stream>> {
        if !source.is_tracked() || self.chunks.len() < 2 {
            return Ok(Vec::new());
        }
        if self.streams.len() != self.chunks.len() {
            self.streams = self.devices().map(Stream::new).collect::<Result<_>>()?;
        }
        Ok(self.streams.clone())
    }
}

/// Copies the source to each chunk, on the stream of the same place where there are streams and the
/// transport can, and waits for all of them, whatever came of the others.
fn send<'a, Tr: Transport>(
    transport: &Tr,
    source: Span<'_>,
    to: impl Iterator<Item = &'a mut Chunk>,
    streams: &[Stream],
) -> Result<()> {
    let mut chunks: Vec<_> = to.collect();
    if streams.is_empty() {
        return copy_to(transport, source, chunks.iter_mut());
    }
    let (mut outcome, mut queued, mut only_blocking) = (Ok(()), Vec::new(), Vec::new());
    let (mut places, mut spans, mut own) = (Vec::new(), Vec::new(), Vec::new());
    for (at, (chunk, stream)) in chunks.iter_mut().zip(streams).enumerate() {
        match chunk.span_mut() {
            Ok(span) => {
                places.push(at);
                spans.push(span);
                own.push(stream.clone());
            }
            Err(error) => outcome = outcome.and(Err(error)),
        }
    }
    for (at, work) in places.into_iter().zip(transport.copy_each_async(spans, source, &own)) {
        match work {
            Ok(work) => queued.push(work),
            // Some pairs have blocking copies only.
            Err(error) if error.kind() == ErrorKind::IllegalPair => only_blocking.push(at),
            Err(error) => outcome = outcome.and(Err(error)),
        }
    }
    let others = chunks.iter_mut().enumerate().filter(|it| only_blocking.contains(&it.0));
    let outcome = outcome.and(copy_to(transport, source, others.map(|it| it.1)));
    queued.iter().map(Completion::wait).fold(outcome, Result::and)
}

/// Copies the source to each chunk by blocking copies.
fn copy_to<'a, 'b: 'a, Tr: Transport>(
    transport: &Tr,
    source: Span<'_>,
    to: impl Iterator<Item = &'a mut &'b mut Chunk>,
) -> Result<()> {
    let (mut outcome, mut spans) = (Ok(()), Vec::new());
    for chunk in to {
        match chunk.span_mut() {
            Ok(span) => spans.push(span),
            Err(error) => outcome = outcome.and(Err(error)),
        }
    }
    if spans.is_empty() {
        return outcome;
    }
    transport.copy_each(spans, source).into_iter().fold(outcome, Result::and)
}

fn no_replica(index: usize, count: usize) -> Error {
    let reason = format!("there are {count} replicas, counted from 0");
    Error::new(ErrorKind::OutOfBounds, format!("take replica {index}"), reason)
}

impl<Tr> fmt::Debug for ReplicaSet<Tr> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(&self.chunks).finish()
    }
}

//! One array on the host, and a block of its samples on each device.

use std::fmt;
use std::marker::PhantomData;

use aether_core::{
    Chunk, Completion, Device, Element, Error, ErrorKind, Result, Rows, Stream, View, ViewMut,
    progress,
};

use crate::blocks::{Blocks, Place};
use crate::operations::{fail, host_stream};
use crate::{PartitionSpec, StreamTransport, Transport};

/// An array whose samples, its last dimension, are partitioned over devices.
///
/// The whole lies compactly in host memory, in the devices' own staging memory where they have one.
/// Each device has one block at the padded pitch of [`PartitionSpec`]: [`scatter`] moves the whole to
/// the blocks, [`gather`] the blocks to the whole. Only real samples move; the padding of a block is
/// never read and never written.
///
/// [`scatter`]: PartitionedArray::scatter
/// [`gather`]: PartitionedArray::gather
pub struct PartitionedArray<T, const R: usize, Tr = StreamTransport> {
    host: Chunk,
    blocks: Vec<Chunk>,
    layout: Blocks<R>,
    transport: Tr,
    /// One for each rank, for the blocking calls.
    streams: Vec<Stream>,
    element: PhantomData<T>,
}

impl<T: Element, const R: usize> PartitionedArray<T, R> {
    /// An array of this shape, all zeros on the host, with a block on each of the devices, at
    /// multiples of [`PartitionSpec::PAD_TO`] samples.
    ///
    /// # Errors
    /// `Empty` if there is no device; `InvalidArgument` if there is no dimension; `Overflow`; those of
    /// [`Chunk::allocate`].
    pub fn new(devices: &[Device], shape: [usize; R]) -> Result<Self> {
        Self::padded(devices, shape, PartitionSpec::PAD_TO)
    }

    /// As [`PartitionedArray::new`], with blocks at multiples of `pad_to` samples.
    ///
    /// # Errors
    /// Those of [`PartitionedArray::new`]; `InvalidArgument` also for a padding of 0.
    pub fn padded(devices: &[Device], shape: [usize; R], pad_to: usize) -> Result<Self> {
        Self::with_transport(devices, shape, pad_to, StreamTransport::new())
    }
}

impl<T: Element, const R: usize, Tr: Transport> PartitionedArray<T, R, Tr> {
    /// As [`PartitionedArray::padded`], with samples moved by this transport.
    ///
    /// # Errors
    /// Those of [`PartitionedArray::padded`].
    pub fn with_transport(
        devices: &[Device],
        shape: [usize; R],
        pad_to: usize,
        transport: Tr,
    ) -> Result<Self> {
        if devices.is_empty() {
            let reason = "there is no device to hold a block";
            return Err(Error::new(ErrorKind::Empty, "partition an array", reason));
        }
        let layout = Blocks::new::<T>(shape, PartitionSpec::new(devices.len()).pad_to(pad_to))?;
        let staging = devices.iter().find_map(|it| it.backend().staging(it.id()));
        let staging = staging.filter(Device::host_addressable).unwrap_or_else(|| Device::cpu(0));
        let host = Chunk::allocate(&staging, layout.whole_bytes())?;
        let block = |device| Chunk::allocate(device, layout.own_bytes());
        let blocks = devices.iter().map(block).collect::<Result<_>>()?;
        Ok(Self { host, blocks, layout, transport, streams: Vec::new(), element: PhantomData })
    }

    /// The shape of the whole.
    pub fn shape(&self) -> [usize; R] {
        self.layout.shape()
    }

    /// How the samples are partitioned.
    pub fn spec(&self) -> PartitionSpec {
        self.layout.spec()
    }

    /// How many ranks there are: one for each device of the list.
    pub fn ranks(&self) -> usize {
        self.blocks.len()
    }

    /// The devices, by rank.
    pub fn devices(&self) -> impl ExactSizeIterator<Item = &Device> {
        self.blocks.iter().map(Chunk::device)
    }

    /// What moves the samples.
    pub fn transport(&self) -> &Tr {
        &self.transport
    }

    /// The chunk of the whole.
    pub fn host_chunk(&self) -> &Chunk {
        &self.host
    }

    /// The whole.
    ///
    /// # Errors
    /// None that [`PartitionedArray::new`] would not have found.
    pub fn host(&self) -> Result<View<'_, T, R>> {
        self.host.view(self.layout.shape())
    }

    /// The whole, to change it.
    ///
    /// # Errors
    /// `Exported`.
    pub fn host_mut(&mut self) -> Result<ViewMut<'_, T, R>> {
        self.host.view_mut(self.layout.shape())
    }

    /// The chunk of a rank's block, padding and all.
    ///
    /// # Errors
    /// `OutOfBounds` if there is no such rank.
    pub fn chunk(&self, rank: usize) -> Result<&Chunk> {
        self.blocks.get(rank).ok_or_else(|| no_rank(rank, self.blocks.len()))
    }

    /// The chunk of a rank's block, padding and all, to change it.
    ///
    /// # Errors
    /// `OutOfBounds` if there is no such rank.
    pub fn chunk_mut(&mut self, rank: usize) -> Result<&mut Chunk> {
        let ranks = self.blocks.len();
        self.blocks.get_mut(rank).ok_or_else(|| no_rank(rank, ranks))
    }

    /// The real samples of a rank's block.
    ///
    /// # Errors
    /// `OutOfBounds` if there is no such rank.
    pub fn block(&self, rank: usize) -> Result<View<'_, T, R>> {
        let (shape, strides) = self.layout.window(rank)?;
        self.chunk(rank)?.view_strided(shape, strides)
    }

    /// The real samples of a rank's block, to change them.
    ///
    /// # Errors
    /// `OutOfBounds` if there is no such rank; `Exported`.
    pub fn block_mut(&mut self, rank: usize) -> Result<ViewMut<'_, T, R>> {
        let (shape, strides) = self.layout.window(rank)?;
        self.chunk_mut(rank)?.view_strided_mut(shape, strides)
    }

    /// Moves every rank's samples from the whole to its block, and returns when that is done.
    ///
    /// # Errors
    /// Those of [`Transport::copy_rows`]; the other ranks have their samples then all the same.
    pub fn scatter(&mut self) -> Result<()> {
        let streams = self.own_streams()?;
        let mut queued = Vec::new();
        let mut outcome = Ok(());
        self.call_for_help();
        for rank in 0..self.blocks.len() {
            let work = streams.get(rank).map(|stream| self.send(rank, stream));
            let sent = match work {
                Some(Err(error)) if is_blocking_only(&error) => self.send_now(rank),
                Some(work) => work.map(|it| queued.push(it)),
                None => self.send_now(rank),
            };
            outcome = outcome.and(sent);
        }
        wait_for_all(&queued, outcome)
    }

    /// As [`PartitionedArray::scatter`], rank `r` on stream `r`, and returns at once.
    ///
    /// # Errors
    /// `SizeMismatch` if there are not as many streams as ranks; those of
    /// [`Transport::copy_rows_async`], and then the ranks before may have been queued.
    pub fn scatter_async(&mut self, streams: &[Stream]) -> Result<Vec<Completion>> {
        self.check_streams(streams, "scatter_async")?;
        streams.iter().enumerate().map(|(rank, stream)| self.send(rank, stream)).collect()
    }

    /// Moves every rank's samples from its block to the whole, and returns when that is done.
    ///
    /// # Errors
    /// Those of [`Transport::copy_rows`]. The whole then gives the error, too, until it is gathered or
    /// filled again.
    pub fn gather(&mut self) -> Result<()> {
        let streams = self.own_streams()?;
        let mut queued = Vec::new();
        let mut outcome = Ok(());
        self.call_for_help();
        for rank in 0..self.blocks.len() {
            let work = streams.get(rank).map(|stream| self.fetch(rank, stream));
            let fetched = match work {
                Some(Err(error)) if is_blocking_only(&error) => self.fetch_now(rank),
                Some(work) => work.map(|it| queued.push(it)),
                None => self.fetch_now(rank),
            };
            outcome = outcome.and(fetched);
        }
        let outcome = wait_for_all(&queued, outcome);
        if let Err(error) = &outcome {
            // A rank that was refused has left nothing on record.
            let bytes = self.host.size();
            let all = Rows { count: 1, bytes, dst_pitch: bytes, src_pitch: bytes };
            let whole = &mut self.host.span_of_mut(.., T::DTYPE)?;
            fail(whole, all, &host_stream()?, error.clone())?;
        }
        outcome
    }

    /// As [`PartitionedArray::gather`], rank `r` on stream `r`, and returns at once.
    ///
    /// If the work of a rank fails, its samples in the whole give the error, and so does the whole, until
    /// they are gathered or filled again.
    ///
    /// # Errors
    /// `SizeMismatch` if there are not as many streams as ranks; those of
    /// [`Transport::copy_rows_async`], and then the ranks before may have been queued.
    pub fn gather_async(&mut self, streams: &[Stream]) -> Result<Vec<Completion>> {
        self.check_streams(streams, "gather_async")?;
        let mut queued = Vec::with_capacity(streams.len());
        let mut refused = None;
        for (rank, stream) in streams.iter().enumerate() {
            match self.fetch(rank, stream) {
                Ok(work) => queued.push(work),
                Err(error) => {
                    refused = Some(error);
                    break;
                }
            }
        }
        refused.map_or(Ok(queued), Err)
    }

    /// Moves a rank's block to another device, where it stays for all later calls.
    ///
    /// # Errors
    /// `OutOfBounds` if there is no such rank; those of [`Chunk::allocate`] and of
    /// [`Transport::copy_rows`]. The block is then where it was.
    pub fn move_to(&mut self, rank: usize, device: &Device) -> Result<()> {
        if self.chunk(rank)?.device() == device {
            return Ok(());
        }
        let mut moved = Chunk::allocate(device, self.layout.own_bytes())?;
        if let Some(place) = self.layout.place(rank)? {
            let from = self.chunk(rank)?.span_of(place.own.clone(), T::DTYPE)?;
            let to = moved.span_of_mut(place.own.clone(), T::DTYPE)?;
            self.transport.copy_rows(to, from, place.moving())?;
        }
        *self.chunk_mut(rank)? = moved;
        self.streams.clear();
        Ok(())
    }

    /// Swaps the samples of two ranks; the devices stay.
    ///
    /// # Errors
    /// `OutOfBounds` if there is no such rank; `SizeMismatch` if the blocks differ in extent, because
    /// neither has room for what the partition doesn't give it; those of [`Chunk::allocate`] and of
    /// [`Transport::copy_rows`]. After a failed copy what the two blocks hold is unspecified.
    pub fn exchange(&mut self, one: usize, other: usize) -> Result<()> {
        let (shape, _) = self.layout.window(one)?;
        let (other_shape, _) = self.layout.window(other)?;
        if shape != other_shape {
            let reason = format!("block {one} is {shape:?} and block {other} is {other_shape:?}");
            return Err(Error::new(ErrorKind::SizeMismatch, "exchange blocks", reason));
        }
        let place = self.layout.place(one)?;
        let (Some(Place { own, .. }), Some(rows)) =
            (place.clone(), place.as_ref().map(Place::moving))
        else {
            return Ok(());
        };
        let Ok([one, other]) = self.blocks.get_disjoint_mut([one, other]) else {
            // Both are one and the same: `window` found the two inside of the list.
            return Ok(());
        };
        let mut kept = Chunk::allocate(one.device(), own.len())?;
        let (own, dtype) = (|| own.clone(), T::DTYPE);
        let transport = &self.transport;
        transport.copy_rows(kept.span_of_mut(.., dtype)?, one.span_of(own(), dtype)?, rows)?;
        transport.copy_rows(one.span_of_mut(own(), dtype)?, other.span_of(own(), dtype)?, rows)?;
        transport.copy_rows(other.span_of_mut(own(), dtype)?, kept.span_of(.., dtype)?, rows)
    }

    fn send(&mut self, rank: usize, stream: &Stream) -> Result<Completion> {
        let Some(place) = self.layout.place(rank)? else { return Ok(stream.last()) };
        let rows = place.scattering();
        let from = self.host.span_of(place.whole, T::DTYPE)?;
        let Some(block) = self.blocks.get_mut(rank) else { return Ok(stream.last()) };
        self.transport.copy_rows_async(block.span_of_mut(place.own, T::DTYPE)?, from, rows, stream)
    }

    fn send_now(&mut self, rank: usize) -> Result<()> {
        let Some(place) = self.layout.place(rank)? else { return Ok(()) };
        let rows = place.scattering();
        let from = self.host.span_of(place.whole, T::DTYPE)?;
        let Some(block) = self.blocks.get_mut(rank) else { return Ok(()) };
        self.transport.copy_rows(block.span_of_mut(place.own, T::DTYPE)?, from, rows)
    }

    fn fetch(&mut self, rank: usize, stream: &Stream) -> Result<Completion> {
        let Some(place) = self.layout.place(rank)? else { return Ok(stream.last()) };
        let rows = place.gathering();
        let to = self.host.span_of_mut(place.whole, T::DTYPE)?;
        let Some(block) = self.blocks.get(rank) else { return Ok(stream.last()) };
        self.transport.copy_rows_async(to, block.span_of(place.own, T::DTYPE)?, rows, stream)
    }

    fn fetch_now(&mut self, rank: usize) -> Result<()> {
        let Some(place) = self.layout.place(rank)? else { return Ok(()) };
        let rows = place.gathering();
        let to = self.host.span_of_mut(place.whole, T::DTYPE)?;
        let Some(block) = self.blocks.get(rank) else { return Ok(()) };
        self.transport.copy_rows(to, block.span_of(place.own, T::DTYPE)?, rows)
    }

    /// Wakes other threads for the ranks' copies, where these take longer than that.
    fn call_for_help(&self) {
        if self.blocks.len() > 1 && self.host.size() >= WORTH_WAKING {
            progress::summon();
        }
    }

    fn check_streams(&self, streams: &[Stream], attempted: &'static str) -> Result<()> {
        if streams.len() == self.blocks.len() {
            return Ok(());
        }
        let reason = format!("{} streams for {} ranks", streams.len(), self.blocks.len());
        Err(Error::new(ErrorKind::SizeMismatch, attempted, reason))
    }

    /// Streams on which all ranks move at the same time; none for a single rank.
    fn own_streams(&mut self) -> Result<Vec<Stream>> {
        if self.streams.is_empty() && self.blocks.len() > 1 {
            self.streams = self.devices().map(Stream::new).collect::<Result<_>>()?;
        }
        Ok(self.streams.clone())
    }
}

/// From how many bytes on the copies of several ranks are worth more than one thread.
const WORTH_WAKING: usize = 2 << 20;

/// Some pairs of devices have blocking copies only.
fn is_blocking_only(error: &Error) -> bool {
    error.kind() == ErrorKind::IllegalPair
}

/// Waits for every one, whatever came of the others.
fn wait_for_all(queued: &[Completion], outcome: Result<()>) -> Result<()> {
    queued.iter().map(Completion::wait).fold(outcome, Result::and)
}

fn no_rank(rank: usize, ranks: usize) -> Error {
    let reason = format!("there are {ranks} ranks, counted from 0");
    Error::new(ErrorKind::OutOfBounds, format!("take the block of rank {rank}"), reason)
}

impl<T: Element, const R: usize, Tr> fmt::Debug for PartitionedArray<T, R, Tr> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PartitionedArray")
            .field("dtype", &T::DTYPE)
            .field("shape", &self.layout.shape())
            .field("host", &self.host)
            .field("blocks", &self.blocks)
            .finish()
    }
}

//! Copies of several legs, in pieces, so that all legs work at the same time.

use aether_core::{
    Completion, DType, Device, Error, ErrorKind, Link, Result, Rows, Span, SpanMut, Stream,
    copy_async, copy_rows, copy_rows_async, progress,
};

use crate::operations;
use crate::route::Path;
use crate::staging::{Lane, Pool, Slots};
use crate::tiles::{Tile, Tiles};

/// One copy on its way along a path.
pub(crate) struct Pipeline<'a> {
    path: &'a Path,
    means: Vec<Means>,
    tiles: Tiles,
    pool: &'a Pool,
    lane: Lane,
    /// Something of the destination may have been written, or will be.
    begun: bool,
}

/// By what one leg is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Means {
    /// By the caller's thread, which waits.
    Here,
    /// By the processor, on a stream.
    Processor,
    /// By a backend, on a stream.
    Stream,
}

impl<'a> Pipeline<'a> {
    /// A copy that waits: a leg that can't go on a stream goes on the caller's thread.
    pub(crate) fn blocking(
        path: &'a Path,
        tiles: Tiles,
        pool: &'a Pool,
        tracked: (bool, bool),
    ) -> Result<Self> {
        let last = path.hops().saturating_sub(1);
        let means = path.links.iter().enumerate().map(|(at, &link)| {
            let kept = (at > 0 || tracked.0) && (at < last || tracked.1);
            if kept && link >= Link::Indirect { Means::Stream } else { Means::Here }
        });
        Self::new(path, means.collect(), tiles, pool)
    }

    /// A copy that doesn't wait.
    ///
    /// # Errors
    /// `IllegalPair` for a leg that goes neither on a stream nor by the processor.
    pub(crate) fn queued(path: &'a Path, tiles: Tiles, pool: &'a Pool) -> Result<Self> {
        let means = (0..path.hops()).filter_map(|at| path.hop(at)).map(|(from, to, link)| {
            if link >= Link::Indirect {
                return Ok(Means::Stream);
            }
            if from.host_addressable() && to.host_addressable() {
                return Ok(Means::Processor);
            }
            let reason = "only a blocking copy goes between these devices";
            Err(Error::new(ErrorKind::IllegalPair, "copy_async", reason)
                .on(format!("{from} to {to}")))
        });
        let means = means.collect::<Result<_>>()?;
        Self::new(path, means, tiles, pool)
    }

    fn new(path: &'a Path, means: Vec<Means>, tiles: Tiles, pool: &'a Pool) -> Result<Self> {
        let mut streams = Vec::with_capacity(means.len());
        for (at, means) in means.iter().enumerate() {
            let works = path.hop(at).filter(|_| *means == Means::Stream);
            streams.push(works.map(|(from, to, _)| worker(from, to).clone()));
        }
        let lane = pool.lend(path.stops(), tiles.largest(), &streams)?;
        Ok(Self { path, means, tiles, pool, lane, begun: false })
    }

    /// Moves everything and returns when that is done.
    pub(crate) fn run(mut self, mut dst: SpanMut<'_>, src: Span<'_>) -> Result<()> {
        let moved = self.all(&mut dst, &src).and_then(|last| match last {
            // The last piece tells of itself alone; this tells of them all.
            Some(_) => self
                .lane
                .streams
                .last()
                .map_or(Ok(()), |stream| operations::arrival(&dst, stream)?.wait()),
            None => Ok(()),
        });
        match moved {
            Ok(()) => {
                self.pool.take_back(self.lane, None);
                Ok(())
            }
            Err(error) => {
                if self.begun && dst.as_span().is_tracked() {
                    let rows = self.tiles.rows();
                    let failed = operations::host_stream().and_then(|stream| {
                        operations::fail(&mut dst, rows, &stream, error.clone())
                    });
                    if let Err(other) = failed {
                        tracing::warn!(%other, "a part of a failed copy can't be marked as failed");
                    }
                }
                Err(error)
            }
        }
    }

    /// Queues everything. The completion is on the caller's stream.
    pub(crate) fn start(
        mut self,
        mut dst: SpanMut<'_>,
        src: Span<'_>,
        stream: &Stream,
    ) -> Result<Completion> {
        match self.all(&mut dst, &src) {
            Ok(last) => {
                self.pool.take_back(self.lane, last.as_ref());
                operations::arrival(&dst, stream)
            }
            Err(error) if self.begun => {
                operations::fail(&mut dst, self.tiles.rows(), stream, error)
            }
            Err(error) => Err(error),
        }
    }

    /// Enqueues, or does, every leg of every piece; gives the end of the last if that was enqueued.
    ///
    /// In each round the first leg takes a piece, the second the piece before it, and so on. Legs on
    /// streams begin first, so that they work while the caller's thread does its own.
    fn all(&mut self, dst: &mut SpanMut<'_>, src: &Span<'_>) -> Result<Option<Completion>> {
        let (pieces, hops) = (self.tiles.count(), self.path.hops());
        let mut last = None;
        for round in 0..(pieces + hops).saturating_sub(1) {
            if round == 1 && pieces > 1 {
                // Legs that are not a device's need a thread each.
                progress::summon();
            }
            for here in [false, true] {
                for hop in (0..hops).rev() {
                    let piece = round.checked_sub(hop).filter(|&piece| piece < pieces);
                    let wanted = |means: &Means| (*means == Means::Here) == here;
                    let means = self.means.get(hop).copied().filter(wanted);
                    if let (Some(piece), Some(means)) = (piece, means) {
                        let end = self.leg(hop, piece, means, dst, src)?;
                        if hop + 1 == hops {
                            last = end;
                        }
                    }
                }
            }
        }
        Ok(last)
    }

    /// One leg of one piece.
    fn leg(
        &mut self,
        hop: usize,
        piece: usize,
        means: Means,
        dst: &mut SpanMut<'_>,
        src: &Span<'_>,
    ) -> Result<Option<Completion>> {
        let tile = self.tiles.at(piece);
        let outer = self.tiles.rows();
        let (before, after) = self.lane.slots.split_at_mut(hop.min(self.path.stops().len()));
        let (from, src_pitch) = match before.last() {
            Some(slots) => (slots.holding(piece, tile)?, tile.bytes),
            None => (src.part(tile.src, tile.extent(outer.src_pitch))?, outer.src_pitch),
        };
        let (mut to, dst_pitch) = match after.first_mut() {
            Some(slots) => (slots.taking(piece, tile)?, tile.bytes),
            None => {
                self.begun = true;
                (dst.part(tile.dst, tile.extent(outer.dst_pitch))?, outer.dst_pitch)
            }
        };
        let rows = Rows { count: tile.rows, bytes: tile.bytes, dst_pitch, src_pitch };
        let dense = dst_pitch == tile.bytes && src_pitch == tile.bytes || tile.rows == 1;
        match (means, self.lane.streams.get(hop)) {
            (Means::Processor, Some(stream)) => {
                operations::host_copy(to, from, rows, stream).map(Some)
            }
            (Means::Stream, Some(stream)) if dense => copy_async(&mut to, &from, stream).map(Some),
            (Means::Stream, Some(stream)) => {
                copy_rows_async(&mut to, &from, rows, stream).map(Some)
            }
            _ if dense => aether_core::copy(&mut to, &from).map(|()| None),
            _ => copy_rows(&mut to, &from, rows).map(|()| None),
        }
    }
}

impl Slots {
    fn holding(&self, piece: usize, tile: Tile) -> Result<Span<'_>> {
        let slot = if piece.is_multiple_of(2) { &self.even } else { &self.odd };
        slot.span_of(..tile.size(), DType::U8)
    }

    fn taking(&mut self, piece: usize, tile: Tile) -> Result<SpanMut<'_>> {
        let slot = if piece.is_multiple_of(2) { &mut self.even } else { &mut self.odd };
        slot.span_of_mut(..tile.size(), DType::U8)
    }
}

/// The device whose backend does a leg: the one that the host can't address, if any.
fn worker<'a>(from: &'a Device, to: &'a Device) -> &'a Device {
    if from.host_addressable() { to } else { from }
}

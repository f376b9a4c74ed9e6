//! What a rank makes of itself for the others, and what it gets of each of them.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use aether_core::{DeviceId, DeviceKind, Error, ErrorKind, Result};
use rustix::event::EventfdFlags;
use rustix::pipe::PipeFlags;

use super::header::Header;
use super::heap::{self, Heap};
use super::map::{self, Access, Map};
use super::shape::Shape;

/// A rank as it tells the others of itself.
pub(crate) struct Offer {
    pub(crate) rank: usize,
    pub(crate) device: DeviceId,
    pub(crate) pid: u32,
    /// Its segment.
    pub(crate) segment: OwnedFd,
    /// It ends when the process ends: nobody else holds the other end.
    pub(crate) life: OwnedFd,
    /// Rung to have the rank look.
    pub(crate) bell: OwnedFd,
    /// The heap of its process, and its size.
    pub(crate) heap: Option<(OwnedFd, u64)>,
}

/// What a rank keeps of itself.
pub(crate) struct Own {
    pub(crate) offer: Offer,
    pub(crate) map: Map,
    /// Held for as long as the rank takes part.
    pub(crate) alive: OwnedFd,
}

/// Another rank, or this one, as a rank sees it.
pub(crate) struct Peer {
    pub(crate) device: DeviceId,
    pub(crate) pid: u32,
    pub(crate) map: Map,
    pub(crate) heap: Option<Map>,
    pub(crate) bell: OwnedFd,
    pub(crate) life: OwnedFd,
}

impl Own {
    /// Makes the segment, the bell and the sign of life of a rank.
    ///
    /// # Errors
    /// `OutOfMemory`, naming the limit; `Io`.
    pub(crate) fn new(rank: usize, device: DeviceId, shape: &Shape) -> Result<Self> {
        let make = || {
            let segment = map::anonymous("aether-rank", shape.bytes)?;
            map::commit(segment.as_fd(), 0, shape.bytes)?;
            let own = Map::new(segment.as_fd(), shape.bytes, Access::Own)?;
            map::forbid_writers(segment.as_fd())?;
            let (life, alive) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC)
                .map_err(|error| super::wire::failed("pipe", error))?;
            let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
            let bell = rustix::event::eventfd(0, flags)
                .map_err(|error| super::wire::failed("eventfd", error))?;
            let heap = heap::existing().map(Heap::shown).transpose()?;
            let pid = std::process::id();
            let offer = Offer { rank, device, pid, segment, life, bell, heap };
            Ok(Self { offer, map: own, alive })
        };
        make().map_err(|error: Error| {
            error.clone().about_ranks([rank]).on(format!("rank {rank} ({device})"))
        })
    }
}

/// Says of itself.
const WORDS: usize = 6;

impl Offer {
    pub(crate) fn to_bytes(&self, ranks: usize) -> Vec<u8> {
        let (kind, index) = (u64::from(self.device.kind.0), u64::from(self.device.index));
        let heap = self.heap.as_ref().map_or(0, |it| it.1);
        let words: [u64; WORDS] =
            [self.rank as u64, ranks as u64, kind, index, u64::from(self.pid), heap];
        words.iter().flat_map(|it| it.to_le_bytes()).collect()
    }

    pub(crate) fn files(&self) -> Vec<BorrowedFd<'_>> {
        let mut files = vec![self.segment.as_fd(), self.life.as_fd(), self.bell.as_fd()];
        files.extend(self.heap.as_ref().map(|it| it.0.as_fd()));
        files
    }

    /// The same offer once more.
    ///
    /// # Errors
    /// `Io` if the process has as many files open as it may.
    pub(crate) fn duplicate(&self) -> Result<Self> {
        let copy = |it: &OwnedFd| {
            it.try_clone().map_err(|error| {
                let reason = error.to_string();
                Error::new(ErrorKind::Io, "join a group", reason).caused_by(error)
            })
        };
        let heap = match &self.heap {
            Some((file, size)) => Some((copy(file)?, *size)),
            None => None,
        };
        Ok(Self {
            segment: copy(&self.segment)?,
            life: copy(&self.life)?,
            bell: copy(&self.bell)?,
            heap,
            ..*self
        })
    }

    /// The offer, and how many ranks it says that there are; nothing if it is none.
    pub(crate) fn from_packet(bytes: &[u8], files: Vec<OwnedFd>) -> Option<(Self, usize)> {
        let mut words = [0u64; WORDS];
        if bytes.len() != WORDS * 8 {
            return None;
        }
        for (word, part) in words.iter_mut().zip(bytes.chunks_exact(8)) {
            *word = u64::from_le_bytes(part.try_into().ok()?);
        }
        let [rank, ranks, kind, index, pid, size] = words;
        let device = DeviceId::new(DeviceKind(kind.try_into().ok()?), index.try_into().ok()?);
        let mut files = files.into_iter();
        let (segment, life, bell) = (files.next()?, files.next()?, files.next()?);
        let heap = match (files.next(), size) {
            (Some(file), 1..) => Some((file, size)),
            (None, 0) => None,
            _ => return None,
        };
        let (rank, pid) = (usize::try_from(rank).ok()?, pid.try_into().ok()?);
        Some((Self { rank, device, pid, segment, life, bell, heap }, usize::try_from(ranks).ok()?))
    }
}

impl Peer {
    /// Maps what the rank offers.
    ///
    /// # Errors
    /// `OutOfMemory` if it can't be mapped; `SizeMismatch` if it is smaller than it must be, or might
    /// shrink.
    pub(crate) fn new(offer: Offer, shape: &Shape) -> Result<Self> {
        check(&offer.segment, shape.bytes as u64, offer.rank)?;
        let map = Map::new(offer.segment.as_fd(), shape.bytes, Access::Shown)?;
        let heap = match &offer.heap {
            None => None,
            Some((file, size)) => {
                check(file, *size, offer.rank)?;
                Some(Map::new(file.as_fd(), *size as usize, Access::Shown)?)
            }
        };
        let Offer { device, pid, bell, life, .. } = offer;
        Ok(Self { device, pid, map, heap, bell, life })
    }

    /// What it shows of itself.
    pub(crate) fn header(&self) -> &Header {
        header(&self.map)
    }
}

/// The header of a segment.
pub(crate) fn header(map: &Map) -> &Header {
    // SAFETY: a segment is at least as large as a header (`Shape` begins with one), a mapping is aligned
    // to a page, and every bit pattern is a header, which is made of atomic words. It lives as long as
    // the mapping.
    unsafe { &*map.base().cast::<Header>().cast_const() }
}

/// Refuses a file that a reader could run off the end of.
fn check(file: &OwnedFd, bytes: u64, rank: usize) -> Result<()> {
    let size = rustix::fs::fstat(file).map(|it| it.st_size as u64).unwrap_or(0);
    let sealed = rustix::fs::fcntl_get_seals(file)
        .is_ok_and(|it| it.contains(rustix::fs::SealFlags::SHRINK));
    if sealed && size == bytes {
        return Ok(());
    }
    let reason = format!(
        "the shared memory of rank {rank} has {size} bytes instead of {bytes}, or is not sealed"
    );
    Err(Error::new(ErrorKind::SizeMismatch, "join a group", reason).about_ranks([rank]))
}

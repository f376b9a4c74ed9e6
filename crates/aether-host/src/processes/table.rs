//! What a participant knows of its group, and how it tells the others.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::OnceLock;
use std::sync::atomic::{Ordering, fence};

use aether_collective::GroupConfig;
use aether_core::{Error, ErrorKind, Result, progress};

use super::ear::{self, Watch};
use super::header::{Header, state};
use super::heap;
use super::map::Map;
use super::participant::{Own, Peer, header};
use super::pod::Place;
use super::shape::Shape;
use super::{circles, join, told};
use crate::resource::HostRange;

/// What a participant knows of its group.
pub(crate) struct Table {
    pub(crate) rank: usize,
    pub(crate) ranks: usize,
    pub(crate) shape: Shape,
    pub(crate) config: GroupConfig,
    /// By rank, this one too.
    pub(crate) peers: Arc<Vec<Peer>>,
    watch: Arc<Watch>,
    map: Map,
    broken: OnceLock<Error>,
    _crowd: Option<progress::Crowd>,
    /// The others see that it is closed.
    _alive: OwnedFd,
}

impl Table {
    /// Meets the others.
    ///
    /// # Errors
    /// Those of [`join::join`].
    pub(crate) fn join(
        name: &str,
        ranks: usize,
        rank: usize,
        device: aether_core::DeviceId,
        config: &GroupConfig,
    ) -> Result<Self> {
        let (own, peers) = join::join(name, ranks, rank, device, config.join_deadline)?;
        let Own { offer, map, alive } = own;
        let duplicate = |it: &OwnedFd| {
            it.try_clone().map_err(|error| {
                let reason = error.to_string();
                Error::new(ErrorKind::Io, "join a group", reason).caused_by(error)
            })
        };
        let lives = peers.iter().map(|it| duplicate(&it.life)).collect::<Result<Vec<_>>>()?;
        let peers = Arc::new(peers);
        circles::enter(&peers);
        let watch = Watch::new(offer.bell, lives.into_iter());
        ear::listen(&watch)?;
        let cores = std::thread::available_parallelism().map_or(1, |it| it.get());
        Ok(Self {
            rank,
            ranks,
            shape: Shape::new(ranks),
            config: config.clone(),
            peers,
            watch,
            map,
            broken: OnceLock::new(),
            _crowd: (ranks > cores).then(progress::Crowd::enter),
            _alive: alive,
        })
    }

    /// What this rank shows of itself, to write.
    pub(crate) fn own(&self) -> &Header {
        header(&self.map)
    }

    /// Where this rank's segment begins, to write.
    pub(crate) fn base(&self) -> *mut u8 {
        self.map.base()
    }

    /// The other ranks, with their number.
    pub(crate) fn others(&self) -> impl Iterator<Item = (usize, &Peer)> {
        self.peers.iter().enumerate().filter(|(rank, _)| *rank != self.rank)
    }

    /// Where others find this memory.
    pub(crate) fn place_of(&self, range: HostRange) -> Place {
        // A heap that was made after the group is one that they don't know.
        let is_known = self.peers.get(self.rank).is_some_and(|it| it.heap.is_some());
        let heap = heap::existing().filter(|_| is_known);
        let offset = heap.and_then(|it| it.offset_of(range.address.addr(), range.bytes));
        offset.map_or(Place::Staged, Place::Heap)
    }

    /// Has those look who sleep. After something that may let them go on was written.
    pub(crate) fn publish(&self) {
        // Pairs with the fence of `Asleep::set`.
        fence(Ordering::SeqCst);
        for (_, peer) in self.others() {
            if peer.header().asleep.is_set() {
                ear::ring(&peer.bell);
            }
        }
    }

    /// The group's first failure, as this rank has learned of it: its own, or one that another shows.
    pub(crate) fn failure(&self) -> Option<&Error> {
        if let Some(error) = self.broken.get() {
            return Some(error);
        }
        let broken = |peer: &Peer| peer.header().progress.state.peek() == state::BROKEN;
        let (rank, peer) = self.others().find(|(_, peer)| broken(peer))?;
        fence(Ordering::Acquire);
        let error = told::decode(&peer.header().failure.read()).unwrap_or_else(|| {
            let reason = format!("the group failed for rank {rank}");
            Error::new(ErrorKind::GroupBroken, "a collective", reason).about_ranks([rank])
        });
        self.fail(error);
        self.broken.get()
    }

    /// The group's first failure, if this rank has learned of it.
    pub(crate) fn peeked_failure(&self) -> Option<&Error> {
        self.broken.get()
    }

    /// Breaks the group, unless it is broken already, and tells the others.
    ///
    /// They know before this returns: memory of this rank that a caller gets back afterwards may still
    /// be read, and what is read is then not believed.
    pub(crate) fn fail(&self, error: Error) {
        // The first failure counts, and only who sets it writes it down.
        if self.broken.set(error.clone()).is_err() {
            return;
        }
        let own = self.own();
        own.failure.write(&told::encode(&error));
        own.progress.state.set(state::BROKEN);
        fence(Ordering::SeqCst);
        self.ring_all();
        progress::announce();
        let told = || tracing::debug!(%error, "a group breaks");
        drop(std::panic::catch_unwind(std::panic::AssertUnwindSafe(told)));
    }

    fn ring_all(&self) {
        self.others().for_each(|(_, peer)| ear::ring(&peer.bell));
    }

    /// The error of a call that is refused because the group failed earlier.
    ///
    /// # Errors
    /// `GroupBroken`, naming the first failure.
    pub(crate) fn check_alive(&self, attempted: &'static str) -> Result<()> {
        let Some(first) = self.failure() else { return Ok(()) };
        let reason = format!("the group failed earlier ({first})");
        Err(Error::new(ErrorKind::GroupBroken, attempted, reason)
            .about_ranks(first.ranks())
            .caused_by(first.clone()))
    }

    /// Why the rank will make no call any more, if it won't.
    pub(crate) fn gone(&self, rank: usize) -> Option<String> {
        let peer = self.peers.get(rank)?;
        match peer.header().progress.state.get() {
            state::LEFT => Some("it left the group".to_owned()),
            state::PANICKED => Some("its thread panicked".to_owned()),
            _ if self.watch.is_dead(rank) => Some(format!("its process ({}) ended", peer.pid)),
            _ => None,
        }
    }

    /// Says that this rank leaves. It is the last that it says.
    pub(crate) fn leave(&self, panicked: bool) {
        let own = self.own();
        own.asleep.set(false);
        if own.progress.state.peek() == state::ALIVE {
            own.progress.state.set(if panicked { state::PANICKED } else { state::LEFT });
        }
        fence(Ordering::SeqCst);
        self.ring_all();
        ear::forget(&self.watch);
        progress::announce();
    }

    /// `rank 2 (cpu:2)`.
    pub(crate) fn name_of(&self, rank: usize) -> String {
        match self.peers.get(rank) {
            Some(peer) => format!("rank {rank} ({})", peer.device),
            None => format!("rank {rank}"),
        }
    }

    /// `rank 0 (cpu:0), rank 2 (cpu:2)`.
    pub(crate) fn names_of(&self, ranks: &[usize]) -> String {
        ranks.iter().map(|&it| self.name_of(it)).collect::<Vec<_>>().join(", ")
    }
}

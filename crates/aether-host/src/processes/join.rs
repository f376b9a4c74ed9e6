//! How the participants of a group find each other: rank 0's listens, the others come to it with what they
//! have to show, and it hands everybody's to everybody.

use std::time::{Duration, Instant};

use aether_core::{DeviceId, Error, ErrorKind, Result};
use rustix::event::PollFlags;

use super::participant::{Offer, Own, Peer};
use super::shape::Shape;
use super::told;
use super::wire::{Packet, Socket, is_over, left, wait};

/// The version of all that processes show each other: the handshake and the segment.
const PROTOCOL: &[u8; 8] = b"aether\x01\x00";

/// What a message says, after the protocol.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
enum Says {
    /// Who comes, with what is offered.
    Here = 1,
    /// It has mapped everything.
    Ready = 2,
    /// All are ready.
    Go = 3,
    /// Why nothing comes of it.
    Failed = 4,
}

/// Has all participants of the group meet, and gives them by rank.
///
/// # Errors
/// `DeadlineExceeded` naming the absent ranks; `InvalidArgument` if a rank comes twice; `SizeMismatch` if
/// world sizes differ; `Unsupported` for another version; `RankDied`; what any of them says.
pub(crate) fn join(
    name: &str,
    ranks: usize,
    rank: usize,
    device: DeviceId,
    deadline: Duration,
) -> Result<(Own, Vec<Peer>)> {
    let until = Instant::now().checked_add(deadline);
    let shape = Shape::new(ranks);
    let own = Own::new(rank, device, &shape);
    let meeting = Meeting { name, ranks, rank, until, shape };
    let found = match rank {
        0 => meeting.host(own),
        _ => meeting.visit(own),
    };
    found.map_err(|error| match error.place() {
        Some(_) => error,
        None => error.on(format!("rank {rank} ({device})")),
    })
}

struct Meeting<'a> {
    name: &'a str,
    ranks: usize,
    rank: usize,
    until: Option<Instant>,
    shape: Shape,
}

/// One who has come to rank 0.
struct Guest {
    socket: Socket,
    offer: Option<Offer>,
    ready: bool,
}

impl Meeting<'_> {
    /// Rank 0's part.
    fn host(&self, own: Result<Own>) -> Result<(Own, Vec<Peer>)> {
        let listener = Socket::listen(self.name)?;
        let mut guests = Vec::new();
        let outcome = own.and_then(|own| {
            self.gather(&listener, &mut guests)?;
            self.introduce(&own, &guests)?;
            let peers = self.peers(&own, guests.iter_mut().filter_map(|it| it.offer.take()))?;
            self.wait_until_ready(&mut guests)?;
            Ok((own, peers))
        });
        let message = match &outcome {
            Ok(_) => message(Says::Go, &[]),
            Err(error) => {
                // Those who have not come yet are told, too, if they come at once.
                while let Ok(Some(socket)) = listener.accept() {
                    guests.push(Guest { socket, offer: None, ready: false });
                }
                message(Says::Failed, &told::encode(error))
            }
        };
        for guest in &guests {
            // Who is gone will be missed soon enough.
            guest.socket.send(&message, &[], self.until);
        }
        outcome
    }

    /// Waits until every other rank has come.
    fn gather(&self, listener: &Socket, guests: &mut Vec<Guest>) -> Result<()> {
        loop {
            while let Some(socket) = listener.accept()? {
                guests.push(Guest { socket, offer: None, ready: false });
            }
            let mut at = 0;
            while at < guests.len() {
                let known: Vec<usize> =
                    guests.iter().filter_map(|it| it.offer.as_ref()).map(|it| it.rank).collect();
                let Some(guest) = guests.get_mut(at) else { break };
                match guest.socket.receive() {
                    Ok(None) => at += 1,
                    Ok(Some(packet)) if guest.offer.is_none() => {
                        guest.offer = Some(self.welcome(packet, &known)?);
                    }
                    Ok(Some(_)) => return Err(self.nonsense("a rank said more than it was asked")),
                    Err(error) => match &guest.offer {
                        Some(offer) => return Err(named(error, offer.rank)),
                        // Nobody in particular came, and went.
                        None => drop(guests.remove(at)),
                    },
                }
            }
            let present: Vec<usize> =
                guests.iter().filter_map(|it| it.offer.as_ref()).map(|it| it.rank).collect();
            if present.len() + 1 == self.ranks {
                return Ok(());
            }
            if is_over(self.until) {
                return Err(self.absent(&present));
            }
            let mut watched = vec![(listener, PollFlags::IN)];
            watched.extend(guests.iter().map(|it| (&it.socket, PollFlags::IN)));
            wait(&watched, Some(left(self.until)));
        }
    }

    /// Checks one who comes.
    fn welcome(&self, packet: Packet, known: &[usize]) -> Result<Offer> {
        let (says, body) = self.read(&packet.bytes)?;
        match says {
            Says::Here => {}
            Says::Failed => return Err(self.failure(body)),
            _ => return Err(self.nonsense("a rank came with the wrong words")),
        }
        let offer = Offer::from_packet(body, packet.files);
        let (offer, ranks) = offer.ok_or_else(|| self.nonsense("a rank offers what is not one"))?;
        let rank = offer.rank;
        if ranks != self.ranks {
            let reason =
                format!("rank {rank} says that there are {ranks} ranks, and rank 0 {}", self.ranks);
            return Err(refuse(ErrorKind::SizeMismatch, reason).about_ranks([rank]));
        }
        if rank == 0 || rank >= self.ranks {
            let reason = match rank {
                0 => "rank 0 has joined twice".to_owned(),
                _ => format!("rank {rank} is out of range: there are {ranks} ranks"),
            };
            return Err(refuse(ErrorKind::InvalidArgument, reason).about_ranks([rank]));
        }
        if known.contains(&rank) {
            let reason = format!("rank {rank} has joined twice");
            return Err(refuse(ErrorKind::InvalidArgument, reason).about_ranks([rank]));
        }
        Ok(offer)
    }

    /// Sends everybody what everybody else offers.
    fn introduce(&self, own: &Own, guests: &[Guest]) -> Result<()> {
        let offers = || guests.iter().filter_map(|it| it.offer.as_ref()).chain([&own.offer]);
        for guest in guests {
            let Some(to) = guest.offer.as_ref().map(|it| it.rank) else { continue };
            for offer in offers().filter(|it| it.rank != to) {
                let bytes = message(Says::Here, &offer.to_bytes(self.ranks));
                if !guest.socket.send(&bytes, &offer.files(), self.until) {
                    return Err(self.lost(to, &guest.socket));
                }
            }
        }
        Ok(())
    }

    fn wait_until_ready(&self, guests: &mut [Guest]) -> Result<()> {
        // The offers were taken; guests came in any order, so a failure names its rank itself.
        while guests.iter().any(|it| !it.ready) {
            for guest in guests.iter_mut().filter(|it| !it.ready) {
                let Some(packet) = guest.socket.receive()? else { continue };
                match self.read(&packet.bytes)? {
                    (Says::Ready, _) => guest.ready = true,
                    (Says::Failed, body) => return Err(self.failure(body)),
                    _ => return Err(self.nonsense("a rank is neither ready nor not")),
                }
            }
            if is_over(self.until) && guests.iter().any(|it| !it.ready) {
                let reason = "the deadline passed and not all ranks were ready";
                return Err(refuse(ErrorKind::DeadlineExceeded, reason.to_owned()));
            }
            let waiting = guests.iter().filter(|it| !it.ready);
            let watched: Vec<_> = waiting.map(|it| (&it.socket, PollFlags::IN)).collect();
            if !watched.is_empty() {
                wait(&watched, Some(left(self.until)));
            }
        }
        Ok(())
    }

    /// The part of every other rank.
    fn visit(&self, own: Result<Own>) -> Result<(Own, Vec<Peer>)> {
        let socket = self.find_host()?;
        let own = match own {
            Ok(own) => own,
            Err(error) => {
                socket.send(&message(Says::Failed, &told::encode(&error)), &[], self.until);
                return Err(error);
            }
        };
        let hello = message(Says::Here, &own.offer.to_bytes(self.ranks));
        if !socket.send(&hello, &own.offer.files(), self.until) {
            return Err(self.lost(0, &socket));
        }
        let mut offers: Vec<Offer> = Vec::new();
        while offers.len() + 1 < self.ranks {
            let packet = self.next(&socket)?;
            let offer = match self.read(&packet.bytes)? {
                (Says::Here, body) => Offer::from_packet(body, packet.files),
                (Says::Failed, body) => return Err(self.failure(body)),
                _ => None,
            };
            let (offer, _) =
                offer.ok_or_else(|| self.nonsense("rank 0 offers what is not a rank"))?;
            let twice = offers.iter().any(|it| it.rank == offer.rank);
            if twice || offer.rank >= self.ranks || offer.rank == self.rank {
                return Err(self.nonsense("rank 0 offers a rank twice"));
            }
            offers.push(offer);
        }
        let peers = match self.peers(&own, offers.into_iter()) {
            Ok(peers) => peers,
            Err(error) => {
                let error = error.clone().about_ranks([self.rank]);
                socket.send(&message(Says::Failed, &told::encode(&error)), &[], self.until);
                return Err(error);
            }
        };
        if !socket.send(&message(Says::Ready, &[]), &[], self.until) {
            return Err(self.lost(0, &socket));
        }
        let packet = self.next(&socket)?;
        match self.read(&packet.bytes)? {
            (Says::Go, _) => Ok((own, peers)),
            (Says::Failed, body) => Err(self.failure(body)),
            _ => Err(self.nonsense("rank 0 said neither go nor why not")),
        }
    }

    fn find_host(&self) -> Result<Socket> {
        let mut pause = Duration::from_micros(100);
        loop {
            if let Some(socket) = Socket::connect(self.name)? {
                if socket.is_own_user() {
                    return Ok(socket);
                }
                let reason = "a process of another user answers in place of rank 0";
                return Err(refuse(ErrorKind::Io, reason.to_owned()).about_ranks([0]));
            }
            if is_over(self.until) {
                return Err(self.absent_host());
            }
            std::thread::sleep(pause);
            pause = (pause * 2).min(Duration::from_millis(10));
        }
    }

    fn next(&self, socket: &Socket) -> Result<Packet> {
        loop {
            match socket.receive() {
                Ok(Some(packet)) => return Ok(packet),
                Ok(None) if is_over(self.until) => return Err(self.absent_host()),
                Ok(None) => wait(&[(socket, PollFlags::IN)], Some(left(self.until))),
                Err(error) => return Err(named(error, 0)),
            }
        }
    }

    /// Maps what the others offer; all by rank.
    fn peers(&self, own: &Own, offers: impl Iterator<Item = Offer>) -> Result<Vec<Peer>> {
        let mine = own.offer.duplicate()?;
        let mut offers: Vec<Offer> = offers.chain([mine]).collect();
        offers.sort_by_key(|it| it.rank);
        let peer = |it| Peer::new(it, &self.shape);
        offers.into_iter().map(peer).collect()
    }

    fn read<'b>(&self, bytes: &'b [u8]) -> Result<(Says, &'b [u8])> {
        let parts = bytes.split_first_chunk::<8>();
        let Some((protocol, [says, body @ ..])) = parts else {
            return Err(self.nonsense("a message is too short"));
        };
        if protocol != PROTOCOL {
            let reason =
                "a rank speaks another version of the protocol: all have to be of one build";
            return Err(refuse(ErrorKind::Unsupported, reason.to_owned()));
        }
        let all = [Says::Here, Says::Ready, Says::Go, Says::Failed];
        match all.into_iter().find(|it| *it as u8 == *says) {
            Some(says) => Ok((says, body)),
            None => Err(self.nonsense("a message makes no sense")),
        }
    }

    fn failure(&self, body: &[u8]) -> Error {
        told::decode(body).unwrap_or_else(|| self.nonsense("a rank failed, and doesn't say why"))
    }

    fn nonsense(&self, reason: &str) -> Error {
        refuse(ErrorKind::Parse, reason.to_owned())
    }

    fn absent(&self, present: &[usize]) -> Error {
        let absent: Vec<usize> = (1..self.ranks).filter(|it| !present.contains(it)).collect();
        let names: Vec<String> = absent.iter().map(|it| format!("rank {it}")).collect();
        let reason = format!("the deadline passed and {} did not join", names.join(", "));
        refuse(ErrorKind::DeadlineExceeded, reason).about_ranks(absent)
    }

    fn absent_host(&self) -> Error {
        let reason = "the deadline passed and rank 0 did not bring the others together";
        refuse(ErrorKind::DeadlineExceeded, reason.to_owned()).about_ranks([0])
    }

    /// Why a message didn't go through: what the other said last, if anything.
    fn lost(&self, rank: usize, socket: &Socket) -> Error {
        while let Ok(Some(packet)) = socket.receive() {
            if let Ok((Says::Failed, body)) = self.read(&packet.bytes) {
                return self.failure(body);
            }
        }
        let kind =
            if is_over(self.until) { ErrorKind::DeadlineExceeded } else { ErrorKind::RankDied };
        named(refuse(kind, "its process doesn't listen any more".to_owned()), rank)
    }
}

fn message(says: Says, body: &[u8]) -> Vec<u8> {
    [PROTOCOL.as_slice(), &[says as u8], body].concat()
}

fn refuse(kind: ErrorKind, reason: String) -> Error {
    Error::new(kind, "join a group", reason)
}

/// The failure, of this rank.
fn named(error: Error, rank: usize) -> Error {
    let reason = format!("rank {rank} is lost: {}", error.reason());
    Error::new(error.kind(), "join a group", reason).about_ranks([rank])
}

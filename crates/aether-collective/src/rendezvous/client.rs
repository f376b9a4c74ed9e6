//! The stream of a rank to a rendezvous that is served.

use std::hash::{BuildHasher, RandomState};
use std::io;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use aether_core::{Error, ErrorKind, Result};

use super::link::{Link, Spot};
use super::wire::{
    Ask, Hello, MOST_FRAME, MOST_KEY, MOST_TOKEN, MOST_VALUE, Refusal, Reply, receive, send,
};

/// How long the server may take to answer: it does so at once, or something is wrong with it.
const PATIENCE: Duration = Duration::from_secs(20);

const JOIN: &str = "join a rendezvous";

/// One rank at a rendezvous. All groups that the rank forms there go through it.
#[derive(Debug)]
pub(super) struct Connection {
    spot: Spot,
    pub(super) rank: usize,
    pub(super) ranks: usize,
    link: Mutex<Link>,
}

impl Connection {
    /// Goes there as rank `rank` of `ranks`, and waits until then for a server to be there.
    ///
    /// # Errors
    /// `RankOutOfRange`, `InvalidArgument` (a wrong token, a rank twice), `SizeMismatch` if there are
    /// other world sizes, each naming this rank; `DeadlineExceeded` if nobody serves there, naming the
    /// rank that should; `Parse` if it is somebody else; `Io`.
    pub(super) fn open(
        spot: &Spot,
        token: &[u8],
        rank: usize,
        ranks: usize,
        until: Instant,
    ) -> Result<Self> {
        let refuse =
            |kind, reason: String| Error::new(kind, JOIN, reason).on(spot).about_ranks([rank]);
        if rank >= ranks {
            let reason = format!("rank {rank} is out of range: there are {ranks} ranks");
            return Err(refuse(ErrorKind::RankOutOfRange, reason));
        }
        if token.len() > MOST_TOKEN {
            let reason = format!("rank {rank}'s token has more than {MOST_TOKEN} bytes");
            return Err(refuse(ErrorKind::InvalidArgument, reason));
        }
        let mut link = Self::reach(spot, until).map_err(|error| {
            let kind = match error.kind() {
                it if is_absence(it) => ErrorKind::DeadlineExceeded,
                _ => ErrorKind::Io,
            };
            let reason = format!("rank {rank} finds nobody who serves it: {error}");
            refuse(kind, reason).caused_by(error)
        })?;
        let process = RandomState::new().hash_one(std::process::id());
        let (number, all) = (rank as u64, ranks as u64);
        let hello = Hello { rank: number, ranks: all, process, token: token.to_vec() };
        let heard = exchange(&mut link, &hello.to_bytes()).map_err(|error| match error.kind() {
            io::ErrorKind::InvalidData => {
                let reason = format!("what answers rank {rank} is no rendezvous of aether's");
                refuse(ErrorKind::Parse, reason).caused_by(error)
            }
            _ => {
                let reason = format!("rank {rank} gets no answer: {error}");
                refuse(ErrorKind::Io, reason).caused_by(error)
            }
        })?;
        match heard {
            Reply::Done(_) => Ok(Self { spot: spot.clone(), rank, ranks, link: Mutex::new(link) }),
            Reply::Refused(refusal, why) => Err(refuse(kind_of(refusal), why)),
            Reply::Absent | Reply::Twice => {
                let reason = format!("what answers rank {rank} makes no sense");
                Err(refuse(ErrorKind::Parse, reason))
            }
        }
    }

    fn reach(spot: &Spot, until: Instant) -> io::Result<Link> {
        let mut pause = Duration::from_millis(1);
        loop {
            match Link::open(spot) {
                // The server comes a little later than the ranks, say.
                Err(error) if is_absence(error.kind()) && Instant::now() < until => {
                    std::thread::sleep(pause);
                    pause = (pause * 2).min(Duration::from_millis(50));
                }
                done => return done,
            }
        }
    }

    pub(super) fn place(&self) -> String {
        self.spot.to_string()
    }

    pub(super) fn post(&self, key: &str, value: &[u8]) -> Result<()> {
        let attempted = "post to a rendezvous";
        if key.len() > MOST_KEY || value.len() > MOST_VALUE {
            let reason = format!(
                "a key of {} bytes and a value of {}, where at most {MOST_KEY} and {MOST_VALUE} may be",
                key.len(),
                value.len()
            );
            return Err(self.error(ErrorKind::InvalidArgument, attempted, reason));
        }
        match self.ask(attempted, &Ask::post(key, value))? {
            Reply::Done(_) => Ok(()),
            Reply::Twice => {
                let rank = self.rank;
                let reason = format!(
                    "`{key}` is there already: another rank {rank} joined, or this one joined before"
                );
                Err(self.error(ErrorKind::InvalidArgument, attempted, reason))
            }
            Reply::Refused(refusal, why) => Err(self.error(kind_of(refusal), attempted, why)),
            Reply::Absent => Err(self.nonsense(attempted)),
        }
    }

    pub(super) fn look_up(&self, key: &str) -> Result<Option<Vec<u8>>> {
        let attempted = "read from a rendezvous";
        match self.ask(attempted, &Ask::look_up(key))? {
            Reply::Done(value) => Ok(Some(value)),
            Reply::Absent => Ok(None),
            Reply::Refused(refusal, why) => Err(self.error(kind_of(refusal), attempted, why)),
            Reply::Twice => Err(self.nonsense(attempted)),
        }
    }

    fn ask(&self, attempted: &'static str, question: &[u8]) -> Result<Reply> {
        let mut link = self.link.lock().unwrap_or_else(PoisonError::into_inner);
        exchange(&mut link, question).map_err(|error| {
            // Half of an answer may still come: nobody may take it for the answer to something else.
            link.end();
            let reason = match error.kind() {
                io::ErrorKind::UnexpectedEof
                | io::ErrorKind::BrokenPipe
                | io::ErrorKind::ConnectionReset => {
                    "whoever served the rendezvous has ended".to_owned()
                }
                _ => error.to_string(),
            };
            self.error(ErrorKind::Io, attempted, reason).caused_by(error)
        })
    }

    fn nonsense(&self, attempted: &'static str) -> Error {
        self.error(ErrorKind::Parse, attempted, "the answer makes no sense".to_owned())
    }

    fn error(&self, kind: ErrorKind, attempted: &'static str, reason: String) -> Error {
        Error::new(kind, attempted, reason).on(&self.spot).about_ranks([self.rank])
    }
}

/// Says one thing and hears the answer.
fn exchange(link: &mut Link, bytes: &[u8]) -> io::Result<Reply> {
    link.set_write_timeout(PATIENCE)?;
    send(link, bytes)?;
    let answer = receive(link, MOST_FRAME, Instant::now() + PATIENCE)?;
    Reply::parse(&answer).ok_or_else(|| io::ErrorKind::InvalidData.into())
}

/// Whether nobody is there, as opposed to somebody who doesn't want to, or can't.
fn is_absence(kind: io::ErrorKind) -> bool {
    use io::ErrorKind::{
        ConnectionAborted, ConnectionRefused, ConnectionReset, NotFound, TimedOut,
    };
    matches!(kind, ConnectionAborted | ConnectionRefused | ConnectionReset | NotFound | TimedOut)
}

fn kind_of(refusal: Refusal) -> ErrorKind {
    match refusal {
        Refusal::Malformed => ErrorKind::Parse,
        Refusal::RankOutOfRange => ErrorKind::RankOutOfRange,
        Refusal::RanksDiffer => ErrorKind::SizeMismatch,
        Refusal::TooMuch => ErrorKind::OutOfMemory,
        Refusal::RankTwice | Refusal::WrongToken => ErrorKind::InvalidArgument,
    }
}

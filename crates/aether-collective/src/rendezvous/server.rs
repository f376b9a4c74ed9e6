//! The server of a rendezvous: one thread that lets ranks in, and one for each that is in.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use aether_core::{Error, ErrorKind, Result};
use subtle::ConstantTimeEq;

use super::link::{Door, Link, Spot};
use super::wire::{
    Ask, Hello, MOST_FRAME, MOST_HELLO, MOST_TOKEN, Refusal, Reply, receive, receive_some_time,
    send,
};

/// How long a stranger may take to say who he is, and a rank to finish what it began to say or to read
/// what it asked for.
const PATIENCE: Duration = Duration::from_secs(5);
/// How many may be at the door who have not said yet who they are. One more, and the first has to go.
const MOST_STRANGERS: usize = 64;
/// How many bytes all ranks together may post.
const MOST_BYTES: usize = 64 << 20;
/// The stack of a thread that serves one rank.
const STACK: usize = 128 << 10;

/// A rendezvous over TCP, for the ranks that know its token: whoever starts the ranks of a program
/// holds one, and they come to it as [`Tcp`](crate::Tcp). It serves as many groups as they like, until
/// it is dropped.
///
/// What comes from a stranger is bounded in length and in time, and refused without harm to the others:
/// a wrong token, a rank that is not in the world or is here already, another world size, noise. The
/// token keeps strangers out; it doesn't hide what is said, so between machines the network has to.
pub struct TcpServer(Server);

impl TcpServer {
    /// Serves a world of so many ranks at this address: `127.0.0.1:0` is any free port of this machine,
    /// for processes of this machine.
    ///
    /// # Errors
    /// `Io` if the address can't be had; `InvalidArgument` if the token is empty or longer than 256 bytes.
    pub fn bind(address: &str, token: &[u8], ranks: usize) -> Result<Self> {
        if token.is_empty() {
            let reason = "the token is empty, and anybody may know that";
            return Err(Error::new(ErrorKind::InvalidArgument, SERVE, reason).on(address));
        }
        Server::open(&Spot::Tcp(address.to_owned()), token, ranks).map(Self)
    }

    /// Where it is: what ranks are told.
    pub fn address(&self) -> String {
        self.0.address.map_or_else(|| self.0.spot.to_string(), |it| it.to_string())
    }
}

impl fmt::Debug for TcpServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TcpServer({})", self.0.spot)
    }
}

const SERVE: &str = "serve a rendezvous";

/// A server behind either kind of door.
pub(super) struct Server {
    pub(super) spot: Spot,
    address: Option<SocketAddr>,
    hall: Arc<Hall>,
    porter: Option<JoinHandle<()>>,
}

/// What all threads of a server share.
struct Hall {
    ranks: usize,
    token: Vec<u8>,
    inside: Mutex<Inside>,
}

#[derive(Default)]
struct Inside {
    closed: bool,
    posted: HashMap<String, Vec<u8>>,
    bytes: usize,
    /// The process that each rank is, and how many streams it has.
    processes: HashMap<u64, (u64, usize)>,
    /// The streams of those who have not said yet who they are, the first first, by number.
    strangers: VecDeque<(u64, Link)>,
    /// The streams of ranks, by number.
    guests: HashMap<u64, Link>,
}

impl Server {
    /// Opens the door and lets ranks in.
    pub(super) fn open(spot: &Spot, token: &[u8], ranks: usize) -> Result<Self> {
        if token.len() > MOST_TOKEN {
            let reason = format!("the token has more than {MOST_TOKEN} bytes");
            return Err(Error::new(ErrorKind::InvalidArgument, SERVE, reason).on(spot));
        }
        let failed = |error: io::Error| {
            Error::new(ErrorKind::Io, SERVE, error.to_string()).on(spot).caused_by(error)
        };
        let door = Door::open(spot).map_err(failed)?;
        let (open, address) = (door.spot().map_err(failed)?, door.address());
        let hall =
            Arc::new(Hall { ranks, token: token.to_vec(), inside: Mutex::new(Inside::default()) });
        let porter = {
            let hall = Arc::clone(&hall);
            named("aether-porter").spawn(move || let_in(&door, &hall)).map_err(failed)?
        };
        Ok(Self { spot: open, address, hall, porter: Some(porter) })
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let mut inside = self.hall.inside();
        inside.closed = true;
        inside.strangers.iter().for_each(|(_, link)| link.end());
        inside.guests.values().for_each(Link::end);
        drop(inside);
        // The porter waits for somebody to come; whoever comes now makes him look up. If nobody can,
        // he stays at the door, and turns away whoever comes.
        let knocked = Link::open(&self.spot);
        if let (Ok(_), Some(porter)) = (knocked, self.porter.take()) {
            // A panic of the porter's is no news to anybody any more.
            drop(porter.join());
        }
    }
}

fn named(name: &str) -> std::thread::Builder {
    std::thread::Builder::new().name(name.to_owned()).stack_size(STACK)
}

/// Lets streams in until the hall is closed.
fn let_in(door: &Door, hall: &Arc<Hall>) {
    for number in 0.. {
        let link = door.next();
        if hall.inside().closed {
            return;
        }
        match link {
            Ok(link) => hall.welcome(number, link),
            // He went away again, or is of another user: no reason to wait for the next.
            Err(error) if is_of_one(&error) => {}
            // No more descriptors, say. It passes, or the server is of no more use; asking again at
            // once would only burn the processor.
            Err(_) => std::thread::sleep(Duration::from_millis(20)),
        }
    }
}

/// Whether the failure is about one stream and not about the door.
fn is_of_one(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionReset, Interrupted, PermissionDenied};
    matches!(error.kind(), ConnectionAborted | ConnectionReset | Interrupted | PermissionDenied)
}

impl Hall {
    fn inside(&self) -> MutexGuard<'_, Inside> {
        self.inside.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Gives the stream a thread. Where there is none to be had, the stream ends, which the rank sees.
    fn welcome(self: &Arc<Self>, number: u64, link: Link) {
        let Ok(kept) = link.again() else { return };
        let mut inside = self.inside();
        inside.strangers.push_back((number, kept));
        if inside.strangers.len() > MOST_STRANGERS
            && let Some((_, first)) = inside.strangers.pop_front()
        {
            first.end();
        }
        drop(inside);
        let hall = Arc::clone(self);
        let serve = move || {
            // What a stream fails of is its own end only; the rank at its other end is told by it.
            drop(hall.serve(number, link));
            let mut inside = hall.inside();
            inside.strangers.retain(|(it, _)| *it != number);
            inside.guests.remove(&number);
        };
        if named("aether-rendezvous").spawn(serve).is_err() {
            self.inside().strangers.retain(|(it, _)| *it != number);
        }
    }

    /// Hears who it is, and then does what it asks until it goes.
    fn serve(&self, number: u64, mut link: Link) -> io::Result<()> {
        link.set_write_timeout(PATIENCE)?;
        let hello = receive(&mut link, MOST_HELLO, Instant::now() + PATIENCE)?;
        let hello = Hello::parse(&hello);
        let let_in = hello.as_ref().map_or_else(
            || Err((Refusal::Malformed, "it doesn't speak as aether does".to_owned())),
            |hello| self.admit(number, hello),
        );
        if let Err((refusal, why)) = let_in {
            return send(&mut link, &Reply::Refused(refusal, why).to_bytes());
        }
        let rank = hello.map_or(0, |it| it.rank);
        let done = send(&mut link, &Reply::Done(Vec::new()).to_bytes())
            .and_then(|()| self.answer_all(&mut link));
        self.see_off(rank);
        done
    }

    fn answer_all(&self, link: &mut Link) -> io::Result<()> {
        while let Some(ask) = receive_some_time(link, MOST_FRAME, PATIENCE)? {
            send(link, &self.answer(&ask).to_bytes())?;
        }
        Ok(())
    }

    /// Whether the stranger is a rank of this world; if so, it is a guest from now on.
    fn admit(&self, number: u64, hello: &Hello) -> Result<(), (Refusal, String)> {
        let Hello { rank, ranks, process, ref token } = *hello;
        // First, so that nobody else learns anything. How long it takes tells no more than the length.
        if !bool::from(token.ct_eq(&self.token)) {
            let why = format!("the token of rank {rank} is not that of this rendezvous");
            return Err((Refusal::WrongToken, why));
        }
        let own = self.ranks as u64;
        if ranks != own {
            let why = format!("rank {rank} says that there are {ranks} ranks, and there are {own}");
            return Err((Refusal::RanksDiffer, why));
        }
        if rank >= own {
            let why = format!("rank {rank} is out of range: there are {own} ranks");
            return Err((Refusal::RankOutOfRange, why));
        }
        let mut inside = self.inside();
        let (known, streams) = inside.processes.get(&rank).copied().unwrap_or((process, 0));
        if known != process {
            let why = format!("another process is rank {rank} already");
            return Err((Refusal::RankTwice, why));
        }
        if inside.guests.len() >= 16 + 4 * self.ranks {
            let why = format!("rank {rank} comes too often: all streams are taken");
            return Err((Refusal::TooMuch, why));
        }
        let at = inside.strangers.iter().position(|(it, _)| *it == number);
        let Some((_, link)) = at.and_then(|it| inside.strangers.remove(it)) else {
            return Err((Refusal::TooMuch, "too many came at once".to_owned()));
        };
        inside.guests.insert(number, link);
        inside.processes.insert(rank, (process, streams + 1));
        Ok(())
    }

    fn see_off(&self, rank: u64) {
        let mut inside = self.inside();
        if let Some((_, streams)) = inside.processes.get_mut(&rank) {
            *streams -= 1;
            if *streams == 0 {
                inside.processes.remove(&rank);
            }
        }
    }

    fn answer(&self, ask: &[u8]) -> Reply {
        let mut inside = self.inside();
        match Ask::parse(ask) {
            None => Reply::Refused(Refusal::Malformed, "that is no question".to_owned()),
            Some(Ask::LookUp(key)) => match inside.posted.get(&key) {
                Some(value) => Reply::Done(value.clone()),
                None => Reply::Absent,
            },
            Some(Ask::Post(key, _)) if inside.posted.contains_key(&key) => Reply::Twice,
            Some(Ask::Post(key, value)) => {
                // What an entry costs beside its bytes, about.
                let bytes = inside.bytes + key.len() + value.len() + 128;
                if bytes > MOST_BYTES {
                    let why = format!("all ranks together posted {MOST_BYTES} bytes: it is full");
                    return Reply::Refused(Refusal::TooMuch, why);
                }
                inside.bytes = bytes;
                inside.posted.insert(key, value);
                Reply::Done(Vec::new())
            }
        }
    }
}

//! The two kinds of stream that a served rendezvous speaks over, as one.
//!
//! TCP is for whoever knows an address. A local name is an address in Linux's abstract namespace of
//! unix sockets: nothing in the file system stands for it, so nothing is left of it after its process,
//! however that ended, and both ends know from the kernel whose process the other one is.

use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::time::{Duration, Instant};

#[cfg(target_os = "linux")]
use std::os::{
    linux::net::SocketAddrExt,
    unix::net::{SocketAddr as LocalAddr, UnixListener, UnixStream},
};

/// How long one attempt to connect may take.
const ATTEMPT: Duration = Duration::from_secs(5);

/// Where a rendezvous is served.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Spot {
    /// `host:port`.
    Tcp(String),
    /// A name that processes of one user on one machine know.
    Local(String),
}

impl std::fmt::Display for Spot {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Tcp(address) => write!(f, "tcp://{address}"),
            Self::Local(name) => write!(f, "local:{name}"),
        }
    }
}

/// A stream.
#[derive(Debug)]
pub(super) enum Link {
    Tcp(TcpStream),
    #[cfg(target_os = "linux")]
    Local(UnixStream),
}

/// Where streams come in.
#[derive(Debug)]
pub(super) enum Door {
    Tcp(TcpListener),
    #[cfg(target_os = "linux")]
    Local(UnixListener, String),
}

impl Door {
    /// Opens the door; nobody else has it open.
    pub(super) fn open(spot: &Spot) -> io::Result<Self> {
        match spot {
            Spot::Tcp(address) => TcpListener::bind(address).map(Self::Tcp),
            #[cfg(target_os = "linux")]
            Spot::Local(name) => {
                let address = LocalAddr::from_abstract_name(name)?;
                Ok(Self::Local(UnixListener::bind_addr(&address)?, name.clone()))
            }
            #[cfg(not(target_os = "linux"))]
            Spot::Local(_) => Err(no_local_names()),
        }
    }

    /// Where it is; the port is known even where any was asked for.
    pub(super) fn spot(&self) -> io::Result<Spot> {
        match self {
            Self::Tcp(door) => Ok(Spot::Tcp(door.local_addr()?.to_string())),
            #[cfg(target_os = "linux")]
            Self::Local(_, name) => Ok(Spot::Local(name.clone())),
        }
    }

    /// The address, of TCP.
    pub(super) fn address(&self) -> Option<SocketAddr> {
        match self {
            Self::Tcp(door) => door.local_addr().ok(),
            #[cfg(target_os = "linux")]
            Self::Local(..) => None,
        }
    }

    /// Waits for the next stream.
    ///
    /// # Errors
    /// `PermissionDenied` if it comes from a process of another user; there may be others behind it.
    pub(super) fn next(&self) -> io::Result<Link> {
        match self {
            Self::Tcp(door) => Link::of_tcp(door.accept()?.0),
            #[cfg(target_os = "linux")]
            Self::Local(door, _) => Link::of_local(door.accept()?.0),
        }
    }
}

impl Link {
    /// Goes through the door at the spot.
    pub(super) fn open(spot: &Spot) -> io::Result<Self> {
        match spot {
            Spot::Tcp(address) => {
                let mut refused = None;
                for address in address.to_socket_addrs()? {
                    match TcpStream::connect_timeout(&address, ATTEMPT) {
                        Ok(stream) => return Self::of_tcp(stream),
                        Err(error) => refused = Some(error),
                    }
                }
                Err(refused.unwrap_or_else(|| io::ErrorKind::AddrNotAvailable.into()))
            }
            #[cfg(target_os = "linux")]
            Spot::Local(name) => {
                let address = LocalAddr::from_abstract_name(name)?;
                Self::of_local(UnixStream::connect_addr(&address)?)
            }
            #[cfg(not(target_os = "linux"))]
            Spot::Local(_) => Err(no_local_names()),
        }
    }

    fn of_tcp(stream: TcpStream) -> io::Result<Self> {
        stream.set_nodelay(true)?;
        Ok(Self::Tcp(stream))
    }

    #[cfg(target_os = "linux")]
    fn of_local(stream: UnixStream) -> io::Result<Self> {
        let other = rustix::net::sockopt::socket_peercred(&stream)?.uid;
        if other != rustix::process::geteuid() {
            let why = format!("the process at the other end is of user {}", other.as_raw());
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, why));
        }
        Ok(Self::Local(stream))
    }

    /// Fills the buffer until then.
    ///
    /// # Errors
    /// `TimedOut`, `UnexpectedEof`.
    pub(super) fn fill(&mut self, buffer: &mut [u8], until: Instant) -> io::Result<()> {
        let mut done = 0;
        while done < buffer.len() {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(io::ErrorKind::TimedOut.into());
            }
            self.set_read_timeout(Some(left))?;
            match self.read(&mut buffer[done..]) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(count) => done += count,
                Err(error) if is_no_news(&error) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Waits, for ever, for one byte; none at the end of the stream.
    pub(super) fn first(&mut self) -> io::Result<Option<u8>> {
        self.set_read_timeout(None)?;
        let mut byte = [0];
        loop {
            match self.read(&mut byte) {
                Ok(0) => return Ok(None),
                Ok(_) => return Ok(Some(byte[0])),
                Err(error) if is_no_news(&error) => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// The same stream for another thread.
    pub(super) fn again(&self) -> io::Result<Self> {
        match self {
            Self::Tcp(stream) => stream.try_clone().map(Self::Tcp),
            #[cfg(target_os = "linux")]
            Self::Local(stream) => stream.try_clone().map(Self::Local),
        }
    }

    /// Ends the stream for both sides, and for every thread that waits in it.
    pub(super) fn end(&self) {
        // It may have ended already.
        let _ = match self {
            Self::Tcp(stream) => stream.shutdown(Shutdown::Both),
            #[cfg(target_os = "linux")]
            Self::Local(stream) => stream.shutdown(Shutdown::Both),
        };
    }

    /// How long a write may wait for a reader that doesn't read.
    pub(super) fn set_write_timeout(&self, timeout: Duration) -> io::Result<()> {
        match self {
            Self::Tcp(stream) => stream.set_write_timeout(Some(timeout)),
            #[cfg(target_os = "linux")]
            Self::Local(stream) => stream.set_write_timeout(Some(timeout)),
        }
    }

    fn set_read_timeout(&self, timeout: Option<Duration>) -> io::Result<()> {
        match self {
            Self::Tcp(stream) => stream.set_read_timeout(timeout),
            #[cfg(target_os = "linux")]
            Self::Local(stream) => stream.set_read_timeout(timeout),
        }
    }
}

impl Read for Link {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(stream) => stream.read(buffer),
            #[cfg(target_os = "linux")]
            Self::Local(stream) => stream.read(buffer),
        }
    }
}

impl Write for Link {
    fn write(&mut self, buffer: &[u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(stream) => stream.write(buffer),
            #[cfg(target_os = "linux")]
            Self::Local(stream) => stream.write(buffer),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::Tcp(stream) => stream.flush(),
            #[cfg(target_os = "linux")]
            Self::Local(stream) => stream.flush(),
        }
    }
}

/// A read that ended without a byte and without a failure. The time is looked at elsewhere.
fn is_no_news(error: &io::Error) -> bool {
    use io::ErrorKind::{Interrupted, TimedOut, WouldBlock};
    matches!(error.kind(), Interrupted | TimedOut | WouldBlock)
}

#[cfg(not(target_os = "linux"))]
fn no_local_names() -> io::Error {
    io::Error::new(io::ErrorKind::Unsupported, "this system has no abstract unix sockets")
}

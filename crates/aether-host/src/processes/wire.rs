//! Messages with file descriptors between the processes of one machine, over unix sockets that keep the
//! bounds of messages.

use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use aether_core::{Error, ErrorKind, Result};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketFlags, SocketType, sockopt,
};

/// The most file descriptors of one message.
const MOST_FILES: usize = 4;
/// The most bytes of one message.
const MOST_BYTES: usize = 4 << 10;

/// One end of a connection, or a listener.
pub(crate) struct Socket(OwnedFd);

/// What came in one message.
pub(crate) struct Packet {
    pub(crate) bytes: Vec<u8>,
    pub(crate) files: Vec<OwnedFd>,
}

/// A failure of the system, in words.
pub(crate) fn failed(what: &str, error: Errno) -> Error {
    Error::new(ErrorKind::Io, "join a group", format!("{what}: {error}"))
        .on("a unix socket")
        .caused_by(std::io::Error::from(error))
}

impl Socket {
    /// A listener under this name, which is no path: nothing is left of it.
    ///
    /// # Errors
    /// `Io`.
    pub(crate) fn listen(name: &str) -> Result<Self> {
        let socket = Self::new()?;
        let address = address(name)?;
        rustix::net::bind(&socket.0, &address).map_err(|error| failed("bind", error))?;
        rustix::net::listen(&socket.0, 256).map_err(|error| failed("listen", error))?;
        Ok(socket)
    }

    /// A connection to the listener of this name, if there is one and it has room.
    ///
    /// # Errors
    /// `Io`.
    pub(crate) fn connect(name: &str) -> Result<Option<Self>> {
        let socket = Self::new()?;
        match rustix::net::connect(&socket.0, &address(name)?) {
            Ok(()) => Ok(Some(socket)),
            Err(Errno::CONNREFUSED | Errno::AGAIN | Errno::INTR) => Ok(None),
            Err(error) => Err(failed("connect", error)),
        }
    }

    /// The next connection, if one waits. Those of other users are dropped.
    ///
    /// # Errors
    /// `Io`.
    pub(crate) fn accept(&self) -> Result<Option<Self>> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        match rustix::net::accept_with(&self.0, flags) {
            Ok(socket) => {
                let socket = Self(socket);
                Ok(if socket.is_own_user() { Some(socket) } else { None })
            }
            Err(Errno::AGAIN | Errno::INTR | Errno::CONNABORTED) => Ok(None),
            Err(error) => Err(failed("accept", error)),
        }
    }

    /// Whether a process of this user is at the other end.
    pub(crate) fn is_own_user(&self) -> bool {
        sockopt::socket_peercred(&self.0).is_ok_and(|it| it.uid == rustix::process::geteuid())
    }

    /// Sends one message, waiting for room; false if nobody is there any more, or the time is over.
    pub(crate) fn send(
        &self,
        bytes: &[u8],
        files: &[BorrowedFd<'_>],
        until: Option<Instant>,
    ) -> bool {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST_FILES))];
        let mut rights = SendAncillaryBuffer::new(&mut space);
        if !files.is_empty() && !rights.push(SendAncillaryMessage::ScmRights(files)) {
            return false;
        }
        loop {
            let parts = [IoSlice::new(bytes)];
            match rustix::net::sendmsg(&self.0, &parts, &mut rights, SendFlags::NOSIGNAL) {
                Ok(_) => return true,
                Err(Errno::INTR) => {}
                // TOOMANYREFS: others have yet to take what is under way.
                Err(Errno::AGAIN | Errno::NOBUFS | Errno::TOOMANYREFS) => {
                    if is_over(until) {
                        return false;
                    }
                    wait(&[(self, PollFlags::OUT)], Some(Duration::from_millis(1)));
                }
                Err(_) => return false,
            }
        }
    }

    /// The next message if one is there; nothing if not yet.
    ///
    /// # Errors
    /// `Io`; `RankDied` if nobody is there any more.
    pub(crate) fn receive(&self) -> Result<Option<Packet>> {
        let mut bytes = vec![0; MOST_BYTES];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST_FILES))];
        let mut rights = RecvAncillaryBuffer::new(&mut space);
        let flags = RecvFlags::CMSG_CLOEXEC | RecvFlags::DONTWAIT;
        let mut parts = [IoSliceMut::new(&mut bytes)];
        let length = match rustix::net::recvmsg(&self.0, &mut parts, &mut rights, flags) {
            Ok(message) => message.bytes,
            Err(Errno::AGAIN | Errno::INTR) => return Ok(None),
            Err(Errno::CONNRESET) => 0,
            Err(error) => return Err(failed("receive", error)),
        };
        if length == 0 {
            let reason = "its process ended";
            return Err(Error::new(ErrorKind::RankDied, "join a group", reason));
        }
        let messages = rights.drain().flat_map(|it| match it {
            RecvAncillaryMessage::ScmRights(files) => files.collect(),
            _ => Vec::new(),
        });
        let files = messages.collect();
        bytes.truncate(length);
        Ok(Some(Packet { bytes, files }))
    }

    fn new() -> Result<Self> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket =
            rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None);
        socket.map(Self).map_err(|error| failed("socket", error))
    }
}

/// Waits until one of the sockets has what is asked for, or the time is over. It may end early.
pub(crate) fn wait(sockets: &[(&Socket, PollFlags)], most: Option<Duration>) {
    let mut watched: Vec<PollFd<'_>> =
        sockets.iter().map(|(it, flags)| PollFd::from_borrowed_fd(it.0.as_fd(), *flags)).collect();
    let most = most.and_then(|it| Timespec::try_from(it).ok());
    // Whoever waits looks again, whatever this says.
    let _ = poll(&mut watched, most.as_ref());
}

/// Whether the time is over.
pub(crate) fn is_over(until: Option<Instant>) -> bool {
    until.is_some_and(|until| Instant::now() >= until)
}

/// How much time there is left, at most a while.
pub(crate) fn left(until: Option<Instant>) -> Duration {
    let most = Duration::from_secs(1);
    until.map_or(most, |it| it.saturating_duration_since(Instant::now()).min(most))
}

fn address(name: &str) -> Result<SocketAddrUnix> {
    SocketAddrUnix::new_abstract_name(name.as_bytes()).map_err(|error| failed("name", error))
}

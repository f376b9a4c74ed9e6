//! The workers: started when they are needed, one a device while it is in a group, and kept for the next.

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::net::Shutdown;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use aether_core::{DeviceId, Error, ErrorKind, Result};

use super::seat::{Seat, lock};
use super::wire::{Answer, Ask};
use super::{Remote, serve};

/// The variable that tells a worker whose it is.
const VARIABLE: &str = "AETHER_CONFORMANCE_WORKER";

/// The workers of every [`Remote`], by its name.
static POOLS: Mutex<BTreeMap<&'static str, Workers>> = Mutex::new(BTreeMap::new());

#[derive(Default)]
struct Workers {
    idle: Vec<Arc<Link>>,
    /// Those whose device is in a group, and in how many.
    busy: HashMap<DeviceId, (Arc<Link>, usize)>,
}

/// The connection to a worker.
pub(super) struct Link {
    socket: Mutex<UnixStream>,
    seats: Mutex<HashMap<u64, Arc<Seat>>>,
    ended: AtomicBool,
    /// The thread that listens, and waits for the process.
    listener: Mutex<Option<JoinHandle<()>>>,
}

/// A worker for a device, as long as the device is in a group.
pub(super) struct Lease {
    of: &'static str,
    device: DeviceId,
    pub(super) link: Arc<Link>,
}

/// Whether this process was started as a worker.
pub(super) fn is_worker_of<R: Remote>() -> bool {
    std::env::var_os(VARIABLE).is_some_and(|it| it == R::NAME)
}

/// Has all workers end, and waits for them.
pub(super) fn dismiss() {
    let pools = std::mem::take(&mut *lock(&POOLS));
    for workers in pools.into_values() {
        let busy = workers.busy.into_values().map(|it| it.0);
        for link in workers.idle.into_iter().chain(busy) {
            // One that has ended has closed it.
            drop(lock(&link.socket).shutdown(Shutdown::Both));
            let listener = lock(&link.listener).take();
            drop(listener.map(JoinHandle::join));
        }
    }
}

impl Lease {
    /// The device's worker.
    ///
    /// # Errors
    /// `Io` if none can be started.
    pub(super) fn new<R: Remote>(device: DeviceId) -> Result<Self> {
        let mut pools = lock(&POOLS);
        let workers = pools.entry(R::NAME).or_default();
        if let Some((link, groups)) = workers.busy.get_mut(&device) {
            *groups += 1;
            return Ok(Self { of: R::NAME, device, link: Arc::clone(link) });
        }
        workers.idle.retain(|it| !it.ended.load(Ordering::Acquire));
        let link = match workers.idle.pop() {
            Some(link) => link,
            None => Link::open::<R>().map_err(|error| {
                Error::new(ErrorKind::Io, "start a worker", error.to_string()).caused_by(error)
            })?,
        };
        workers.busy.insert(device, (Arc::clone(&link), 1));
        Ok(Self { of: R::NAME, device, link })
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        let mut pools = lock(&POOLS);
        let Some(workers) = pools.get_mut(self.of) else { return };
        let Some((_, groups)) = workers.busy.get_mut(&self.device) else { return };
        *groups -= 1;
        if *groups == 0
            && let Some((link, _)) = workers.busy.remove(&self.device)
        {
            workers.idle.push(link);
        }
    }
}

impl Link {
    /// Starts a worker and listens to it.
    fn open<R: Remote>() -> io::Result<Arc<Self>> {
        let (ours, theirs) = UnixStream::pair()?;
        let listening = ours.try_clone()?;
        let child = if R::IN_THREADS {
            std::thread::Builder::new().spawn(move || serve::serve::<R>(theirs))?;
            None
        } else {
            // The socket is the worker's standard input, and no other process has this end of it: so
            // either sees the other's end.
            let mut command = Command::new(std::env::current_exe()?);
            command.env(VARIABLE, R::NAME).stdin(Stdio::from(OwnedFd::from(theirs)));
            Some(command.spawn()?)
        };
        let link = Arc::new(Self {
            socket: Mutex::new(ours),
            seats: Mutex::default(),
            ended: AtomicBool::new(false),
            listener: Mutex::default(),
        });
        let listener = Arc::clone(&link);
        let spawned =
            std::thread::Builder::new().spawn(move || listener.listen(listening, child))?;
        *lock(&link.listener) = Some(spawned);
        Ok(link)
    }

    /// Asks something of the worker.
    ///
    /// # Errors
    /// `RankDied` if it has ended.
    pub(super) fn send(&self, ask: &Ask) -> Result<()> {
        ask.send(&mut *lock(&self.socket)).map_err(|error| {
            let reason = format!("the worker has ended: {error}");
            Error::new(ErrorKind::RankDied, "ask a worker", reason).caused_by(error)
        })
    }

    /// A place for the answers to a member.
    pub(super) fn enter(&self, member: u64) -> Arc<Seat> {
        let seat = Arc::<Seat>::default();
        lock(&self.seats).insert(member, Arc::clone(&seat));
        if self.ended.load(Ordering::Acquire) {
            seat.lose();
        }
        seat
    }

    pub(super) fn leave(&self, member: u64) {
        lock(&self.seats).remove(&member);
    }

    /// Hands out the worker's answers until it ends.
    fn listen(&self, mut socket: UnixStream, child: Option<Child>) {
        while let Ok(answer) = Answer::receive(&mut socket) {
            let seat = lock(&self.seats).get(&answer.member).cloned();
            if let Some(seat) = seat {
                seat.take(answer);
            }
        }
        self.ended.store(true, Ordering::Release);
        lock(&self.seats).values().for_each(|it| it.lose());
        if let Some(mut child) = child {
            // How it ended was told by its last answers, or by their absence.
            drop(child.wait());
        }
    }
}

//! The ear: one thread of the process that hears when somebody rings or dies, for all its groups.
//!
//! It is parked in the system, and ends when there is no group.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use aether_core::{Error, ErrorKind, Result, progress};
use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
use rustix::io::Errno;

use super::wire::failed;
use crate::shared::lock;

/// How long the ear waits where the system doesn't let it listen.
const DEAF: Duration = Duration::from_millis(5);

/// What the ear listens to for one participant.
pub(crate) struct Watch {
    /// Rung by whoever wants this rank to look.
    bell: OwnedFd,
    others: Box<[Other]>,
}

struct Other {
    life: OwnedFd,
    is_dead: AtomicBool,
}

impl Watch {
    /// A watch over the rank's bell and the signs of life of all.
    pub(crate) fn new(bell: OwnedFd, lives: impl Iterator<Item = OwnedFd>) -> Arc<Self> {
        let other = |life| Other { life, is_dead: AtomicBool::new(false) };
        Arc::new(Self { bell, others: lives.map(other).collect() })
    }

    /// Whether the process of the rank has ended.
    pub(crate) fn is_dead(&self, rank: usize) -> bool {
        self.others.get(rank).is_some_and(|it| it.is_dead.load(Ordering::Acquire))
    }
}

struct Ear {
    /// Rung to have the thread look at the list.
    control: OwnedFd,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    is_running: bool,
    watches: Vec<Arc<Watch>>,
}

fn ear() -> Result<&'static Ear> {
    static EAR: OnceLock<Ear> = OnceLock::new();
    if let Some(ear) = EAR.get() {
        return Ok(ear);
    }
    let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
    let control = eventfd(0, flags).map_err(|error| failed("eventfd", error))?;
    Ok(EAR.get_or_init(|| Ear { control, state: Mutex::default() }))
}

/// Has the ear listen.
///
/// # Errors
/// `Io` if the process gets no thread, or no file.
pub(crate) fn listen(watch: &Arc<Watch>) -> Result<()> {
    let ear = ear()?;
    let mut state = lock(&ear.state);
    state.watches.push(watch.clone());
    if !state.is_running {
        let thread = std::thread::Builder::new().name("aether-ear".to_owned());
        if let Err(error) = thread.spawn(|| ear.run()) {
            state.watches.retain(|it| !Arc::ptr_eq(it, watch));
            let reason = format!("no thread to hear of the death of ranks: {error}");
            return Err(Error::new(ErrorKind::Io, "join a group", reason).caused_by(error));
        }
        state.is_running = true;
    }
    drop(state);
    ring(&ear.control);
    Ok(())
}

/// Has the ear listen no more.
pub(crate) fn forget(watch: &Arc<Watch>) {
    if let Ok(ear) = ear() {
        lock(&ear.state).watches.retain(|it| !Arc::ptr_eq(it, watch));
        ring(&ear.control);
    }
}

/// Rings a bell.
pub(crate) fn ring(bell: &OwnedFd) {
    // It fails if it was rung 2^64 - 2 times and not heard, which is as good.
    let _ = rustix::io::write(bell, &1u64.to_ne_bytes());
}

/// Silences a bell.
fn hear(bell: &OwnedFd) {
    let _ = rustix::io::read(bell, &mut [0u8; 8]);
}

impl Ear {
    fn run(&self) {
        loop {
            let mut state = lock(&self.state);
            if state.watches.is_empty() {
                state.is_running = false;
                return;
            }
            let watches = state.watches.clone();
            drop(state);
            hear(&self.control);
            let mut sources: Vec<(&OwnedFd, Option<&AtomicBool>)> = vec![(&self.control, None)];
            for watch in &watches {
                sources.push((&watch.bell, None));
                let alive = watch.others.iter().filter(|it| !it.is_dead.load(Ordering::Acquire));
                sources.extend(alive.map(|it| (&it.life, Some(&it.is_dead))));
            }
            let fds =
                sources.iter().map(|(it, _)| PollFd::from_borrowed_fd(it.as_fd(), PollFlags::IN));
            let mut fds: Vec<PollFd<'_>> = fds.collect();
            if let Err(error) = poll(&mut fds, None) {
                if error != Errno::INTR {
                    // Short of kernel memory, or of files allowed: told late rather than at full speed.
                    std::thread::sleep(DEAF);
                }
                continue;
            }
            for (fd, (source, is_dead)) in fds.iter().zip(&sources).skip(1) {
                match is_dead {
                    _ if fd.revents().is_empty() => {}
                    Some(is_dead) => is_dead.store(true, Ordering::Release),
                    None => hear(source),
                }
            }
            progress::announce();
            progress::summon();
        }
    }
}

//! What the members of one group share.

use std::cell::UnsafeCell;
use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{
    Arc, Mutex, MutexGuard, OnceLock, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard,
};
use std::thread::ThreadId;
use std::time::Instant;

use aether_collective::{GroupConfig, OpName, Signature};
use aether_core::{DType, DeviceId, Error, ErrorKind, Result, progress};
use smallvec::SmallVec;

use crate::lane::{End, Half, Lane};
use crate::layout::Layout;
use crate::mail::Mailbox;
use crate::resource::HostRange;
use crate::round::Round;

/// How many calls of a group exist at once: a rank can be one ahead of one that has not yet seen the
/// end of its call.
pub(crate) const ROUNDS: u64 = 2;

/// Work of so many slices is shared with the workers, where members have fewer threads than there are
/// cores.
const SHARED_SLICES: u64 = 4;
/// And where they have enough. As long as these come, workers only take their place; but what is started
/// by the last of them need not be what the others wait for, and large work should not wait for them.
const MANY_SLICES: u64 = 256;

/// What the members of one group share.
pub(crate) struct Shared {
    pub(crate) ranks: usize,
    pub(crate) config: GroupConfig,
    pub(crate) seats: Box<[Seat]>,
    pub(crate) slots: [Slot; ROUNDS as usize],
    lanes: Mutex<Lanes>,
    broken: OnceLock<Error>,
    worth_workers: OnceLock<u64>,
    /// How many members are gone.
    pub(crate) gone: AtomicUsize,
}

/// The lanes that were used, by sender and receiver.
type Lanes = HashMap<(usize, usize), Arc<Mutex<Lane>>>;

/// One rank's place. Apart from others by two cache lines, because processors fetch lines in pairs.
#[repr(align(128))]
pub(crate) struct Seat {
    /// What the rank gives to small collectives.
    pub(crate) mail: Mailbox,
    /// Who sits there: the device, and the thread that joined with it.
    pub(crate) party: OnceLock<Party>,
    pub(crate) taken: AtomicBool,
    pub(crate) gone: AtomicBool,
    pub(crate) panicked: AtomicBool,
    /// How many collectives the rank has arrived at.
    pub(crate) calls: AtomicU64,
    /// How many of them had a round.
    pub(crate) rounds: AtomicU64,
    /// Messages are being collected.
    pub(crate) collects: AtomicBool,
    /// The counts of all ranks, as this rank gave them to its last vector call.
    pub(crate) counts: Mutex<Vec<u64>>,
    /// Why this rank's call can't end, if a group that it stood in a circle with has found out: told at
    /// the deadline, should the call still wait then.
    pub(crate) suspicion: Mutex<Option<Suspicion>>,
    pub(crate) current: Mutex<Current>,
    /// The messages that the rank has posted last. Written only between two operations; whoever moves
    /// them reads, and so does whoever looks for circles. Lanes are locked while it is held, and no
    /// memory moves meanwhile.
    pub(crate) posts: RwLock<Posts>,
}

/// A call, in words, and the circle in which it was seen.
pub(crate) struct Suspicion {
    pub(crate) call: String,
    pub(crate) circle: Error,
}

/// Who waits and is waited for, in whatever group. Two groups of one device may be led by two threads,
/// neither of which waits for the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Party {
    pub(crate) device: DeviceId,
    pub(crate) thread: ThreadId,
}

pub(crate) type Posts = SmallVec<[Post; 2]>;

/// The operation that a rank has enqueued and that has not ended.
#[derive(Default)]
pub(crate) struct Current {
    pub(crate) operation: Option<Pending>,
    /// Nobody has looked at it yet.
    pub(crate) fresh: bool,
    /// When the rank's call was first seen waiting.
    pub(crate) since: Option<Instant>,
    pub(crate) looks: u32,
    /// The batch that is open.
    pub(crate) batch: Option<Batch>,
}

/// Messages that are collected.
#[derive(Default)]
pub(crate) struct Batch {
    pub(crate) posts: Posts,
    /// One of them was refused, so that the batch will be too.
    pub(crate) refusal: Option<Error>,
}

/// What a rank waits for.
#[derive(Clone, Copy)]
pub(crate) enum Pending {
    /// This collective, by its number, and the number of its round if it has one.
    Collective { call: u64, round: Option<u64>, signature: Signature },
    /// The messages that the rank has posted.
    Messages,
}

/// One end of a message that a rank has posted.
#[derive(Clone)]
pub(crate) struct Post {
    pub(crate) lane: Arc<Mutex<Lane>>,
    pub(crate) end: End,
    pub(crate) peer: usize,
    pub(crate) half: Half,
    pub(crate) number: u64,
}

/// The place of one collective: its round, what each rank asked for, and the work that it is.
pub(crate) struct Slot {
    pub(crate) round: Round,
    pub(crate) entries: Box<[UnsafeCell<Entry>]>,
    pub(crate) layout: UnsafeCell<Layout>,
}

/// What one rank asked for.
#[derive(Clone, Copy)]
pub(crate) struct Entry {
    pub(crate) signature: Signature,
    pub(crate) src: Option<HostRange>,
    pub(crate) dst: Option<HostRange>,
}

// SAFETY: `entries[rank]` is written by that rank alone, before it arrives at the round, and read only
// by the rank that arrives last, after the others' arrivals ("what it wrote before is seen by the
// last") and before any of them can write again, as `Communicator::begin` says. `layout` is written by
// the rank that arrives last, before it starts the round, and read by threads that took a slice of it
// ("whoever takes a slice sees the total and what the slices are"); the next call of the slot is laid
// out only when every slice of this one has ended. The raw pointers in both are only numbers until
// unsafe code uses them.
unsafe impl Sync for Slot {}
// SAFETY: as for `Sync`: nothing in it belongs to a thread.
unsafe impl Send for Slot {}

impl Shared {
    pub(crate) fn new(ranks: usize, config: &GroupConfig) -> Self {
        let signature = Signature::new(OpName::Barrier, DType::U8, 0);
        let seat = |_| Seat {
            mail: Mailbox::new(signature),
            party: OnceLock::new(),
            taken: AtomicBool::new(false),
            gone: AtomicBool::new(false),
            panicked: AtomicBool::new(false),
            calls: AtomicU64::new(0),
            rounds: AtomicU64::new(0),
            collects: AtomicBool::new(false),
            counts: Mutex::default(),
            suspicion: Mutex::default(),
            current: Mutex::default(),
            posts: RwLock::default(),
        };
        let nothing = Entry { signature, src: None, dst: None };
        let slot = |first| Slot {
            round: Round::new(first),
            entries: (0..ranks).map(|_| UnsafeCell::new(nothing)).collect(),
            layout: UnsafeCell::new(Layout::new(ranks.min(cores()))),
        };
        Self {
            ranks,
            config: config.clone(),
            seats: (0..ranks).map(seat).collect(),
            slots: [slot(0), slot(1)],
            lanes: Mutex::default(),
            broken: OnceLock::new(),
            worth_workers: OnceLock::new(),
            gone: AtomicUsize::new(0),
        }
    }

    /// The slot of a round, by its number.
    pub(crate) fn slot(&self, round: u64) -> &Slot {
        let [even, odd] = &self.slots;
        if round.is_multiple_of(ROUNDS) { even } else { odd }
    }

    /// How many slices a call has that is to be shared with the workers. Asked when all ranks have joined.
    pub(crate) fn worth_workers(&self) -> u64 {
        *self.worth_workers.get_or_init(|| {
            let threads = self.seats.iter().filter_map(|it| it.party.get().map(|it| it.thread));
            let threads = threads.collect::<HashSet<_>>().len();
            if threads < cores() { SHARED_SLICES } else { MANY_SLICES }
        })
    }

    /// The lane from one rank to another.
    pub(crate) fn lane(&self, from: usize, to: usize) -> Arc<Mutex<Lane>> {
        lock(&self.lanes).entry((from, to)).or_default().clone()
    }

    /// The group's first failure.
    pub(crate) fn failure(&self) -> Option<&Error> {
        self.broken.get()
    }

    /// Breaks the group, unless it is broken already.
    pub(crate) fn fail(&self, error: Error) {
        // The first failure counts. It stands before anybody is told: a subscriber is other people's
        // code, and may panic.
        if self.broken.set(error.clone()).is_err() {
            return;
        }
        progress::announce();
        let told = || tracing::debug!(%error, "a group breaks");
        drop(std::panic::catch_unwind(std::panic::AssertUnwindSafe(told)));
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

    pub(crate) fn seat(&self, rank: usize) -> Option<&Seat> {
        self.seats.get(rank)
    }

    /// `rank 2 (cpu:2)`.
    pub(crate) fn name_of(&self, rank: usize) -> String {
        match self.seat(rank).and_then(|it| it.party.get()) {
            Some(Party { device, .. }) => format!("rank {rank} ({device})"),
            None => format!("rank {rank}"),
        }
    }

    /// `rank 0 (cpu:0), rank 2 (cpu:2)`.
    pub(crate) fn names_of(&self, ranks: &[usize]) -> String {
        ranks.iter().map(|&it| self.name_of(it)).collect::<Vec<_>>().join(", ")
    }

    /// Whether every rank has joined, and left.
    pub(crate) fn is_left(&self) -> bool {
        self.gone.load(Ordering::Acquire) >= self.ranks
    }

    /// The ranks that the operation of this rank waits for.
    pub(crate) fn absent(&self, rank: usize, operation: Pending) -> Vec<usize> {
        match operation {
            Pending::Collective { call, .. } => {
                let absent = |it: &Seat| it.calls.load(Ordering::Acquire) <= call;
                let seats = self.seats.iter().enumerate();
                seats.filter(|(_, it)| absent(it)).map(|(rank, _)| rank).collect()
            }
            Pending::Messages => {
                let Some(seat) = self.seat(rank) else { return Vec::new() };
                let open = |it: &&Post| !lock(&it.lane).is_met(it.end, it.number);
                let posts = read(&seat.posts);
                let mut peers: Vec<usize> = posts.iter().filter(open).map(|it| it.peer).collect();
                peers.sort_unstable();
                peers.dedup();
                peers
            }
        }
    }

    /// The operation of this rank in words.
    pub(crate) fn describe(&self, rank: usize, operation: Pending) -> String {
        match operation {
            Pending::Collective { call, signature, .. } => {
                format!("{signature} (call {})", call + 1)
            }
            Pending::Messages => {
                let Some(seat) = self.seat(rank) else { return String::new() };
                let one = |it: &Post| {
                    let verb = if it.end == End::Send { "send to" } else { "recv from" };
                    format!("{verb} rank {} of {} {}", it.peer, it.half.count, it.half.dtype)
                };
                read(&seat.posts).iter().map(one).collect::<Vec<_>>().join(", ")
            }
        }
    }
}

impl Current {
    /// An operation that was enqueued now.
    pub(crate) fn of(operation: Pending) -> Self {
        Self { operation: Some(operation), fresh: true, ..Self::default() }
    }
}

impl Slot {
    /// What all ranks asked for.
    ///
    /// # Safety
    /// Nobody writes an entry while the slice lives.
    pub(crate) unsafe fn all_entries(&self) -> &[Entry] {
        let entries: *const [UnsafeCell<Entry>] = &raw const *self.entries;
        // SAFETY: `UnsafeCell<T>` "has the same in-memory representation as its inner type", so this
        // is a slice of as many entries, initialised by `Shared::new`; the caller promises that none
        // is written.
        unsafe { &*(entries as *const [Entry]) }
    }
}

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

pub(crate) fn read<T>(lock: &RwLock<T>) -> RwLockReadGuard<'_, T> {
    lock.read().unwrap_or_else(PoisonError::into_inner)
}

pub(crate) fn write<T>(lock: &RwLock<T>) -> RwLockWriteGuard<'_, T> {
    lock.write().unwrap_or_else(PoisonError::into_inner)
}

/// How many threads of this process can run at once.
fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, |it| it.get())
}

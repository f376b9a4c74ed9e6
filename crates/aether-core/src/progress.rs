//! Progress: whoever looks runs what is ready, and a few workers do when nobody looks.
//!
//! A waiting thread advances the queue that it waits for, then every other queue of the process that
//! has work, and sleeps only when nothing moves. Sleepers are woken by [`announce`]. The workers look
//! at intervals that grow while nothing moves, and sleep for good when no queue has work; waking one
//! costs microseconds, so no call that is waited for at once depends on it.

use std::cell::Cell;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, Once, OnceLock};
use std::time::{Duration, Instant};

use crate::gate::Gate;
use crate::memory::Retired;
use crate::queue::Queue;
use crate::sweep;
use crate::sync::lock;
use crate::unwind::{contain, log};

/// Wakes the threads that sleep until something happens. A driver calls it after a change that makes
/// a pending call of another thread go on.
#[inline]
pub fn announce() {
    engine().waiters.ring();
}

/// Runs what is ready in the whole process, one step of each queue, and says whether anything moved.
pub fn look() -> bool {
    look_until(None)
}

/// Wakes the workers: there is enough to do for more threads than those that look.
pub fn summon() {
    let engine = engine();
    if !engine.are_many_waiting() {
        engine.workers.ring();
    }
}

/// Tells that the look under way got some operation further, though not to its end: whoever waits then
/// goes on to look, rather than to sleep. A driver calls it from within a step.
pub fn moved() {
    MOVED.set(true);
}

thread_local! {
    /// A step of the look under way has called [`moved`].
    static MOVED: Cell<bool> = const { Cell::new(false) };
}

/// Says, for as long as it lives, that what is waited for is done by other processes that need this
/// one's cores: waiters then give their core away at once.
#[derive(Debug)]
pub struct Crowd(());

/// How many [`Crowd`]s live.
static CROWDS: AtomicUsize = AtomicUsize::new(0);

impl Crowd {
    /// There is a crowd from now on.
    pub fn enter() -> Self {
        CROWDS.fetch_add(1, Ordering::Relaxed);
        Self(())
    }
}

impl Drop for Crowd {
    fn drop(&mut self) {
        CROWDS.fetch_sub(1, Ordering::Relaxed);
    }
}

/// How long a waiter looks without giving its core away, then how long it yields before it sleeps.
const SPINS: u32 = 64;
/// How long it looks where more threads wait for each other than there are cores: what they wait for
/// needs one.
const FEW_SPINS: u32 = 2;
/// How long it looks before it asks whether as many threads wait as there are cores.
const SOME_SPINS: u32 = 16;
const YIELDS: u32 = 256;
/// How long sleepers sleep at most: deadlines and devices that ring no bell are seen at this pace.
const SHORTEST_SLEEP: Duration = Duration::from_micros(200);
const LONGEST_SLEEP: Duration = Duration::from_millis(5);
/// How often workers look while some queue has work.
const QUICKEST_TICK: Duration = Duration::from_micros(50);
const SLOWEST_TICK: Duration = Duration::from_millis(2);
/// How long a worker goes on looking after something moved: about as long as a piece of a copy takes.
const PATIENCE: Duration = Duration::from_micros(100);

/// One look, ended early when the time is over: a queue may have a long copy before it.
fn look_until(until: Option<Instant>) -> bool {
    let engine = engine();
    let mut moved = engine.free_retired() | sweep::help(until);
    // One look ends although others enlist queues meanwhile.
    let count = lock(&engine.busy).len();
    for at in 0..count {
        // The lock is not held while a queue runs.
        let Some(queue) = lock(&engine.busy).get(at).cloned() else { break };
        if queue.advance() {
            moved = true;
            if is_over(until) {
                break;
            }
        }
    }
    moved
}

fn is_over(until: Option<Instant>) -> bool {
    until.is_some_and(|until| Instant::now() >= until)
}

struct Engine {
    waiters: Gate,
    workers: Gate,
    started: Once,
    cores: usize,
    /// How many threads have waited for longer than a few looks, and look still.
    waiting: AtomicUsize,
    busy: Mutex<Vec<Arc<Queue>>>,
    retired: Mutex<Vec<Retired>>,
    retired_count: AtomicUsize,
}

fn engine() -> &'static Engine {
    static ENGINE: OnceLock<Engine> = OnceLock::new();
    ENGINE.get_or_init(|| Engine {
        waiters: Gate::new(),
        workers: Gate::new(),
        started: Once::new(),
        cores: std::thread::available_parallelism().map_or(1, |it| it.get()),
        waiting: AtomicUsize::new(0),
        busy: Mutex::default(),
        retired: Mutex::default(),
        retired_count: AtomicUsize::new(0),
    })
}

/// Puts the queue in the list of those that have work. Call it after the push.
pub(crate) fn enlist(queue: &Arc<Queue>) {
    // A queue stays listed for a while after it has run empty, so this is mostly one access.
    if !queue.listed.claim() {
        return;
    }
    let engine = engine();
    lock(&engine.busy).push(queue.clone());
    engine.start_workers();
    engine.workers.ring();
}

/// Has the memory freed when the work that touches it has ended.
pub(crate) fn retire(it: Retired) {
    let engine = engine();
    let mut retired = lock(&engine.retired);
    retired.push(it);
    engine.retired_count.store(retired.len(), Ordering::SeqCst);
    drop(retired);
    engine.start_workers();
    engine.workers.ring();
}

/// What a look at something that is waited for came to.
pub(crate) enum Look {
    /// It is there.
    Reached,
    /// Something moved, and may move again.
    Moved,
    Idle,
}

/// Waits until the ticket of the queue has ended; false if the time is over first.
pub(crate) fn wait_until(queue: &Queue, ticket: u64, until: Option<Instant>) -> bool {
    wait_for_queue(queue, until, || queue.is_done(ticket))
}

/// Waits until the ticket of the queue was issued: the stream is then ordered behind all that the
/// operation depends on.
pub(crate) fn wait_until_issued(queue: &Queue, ticket: u64) {
    wait_for_queue(queue, None, || queue.is_issued(ticket));
}

fn wait_for_queue(queue: &Queue, until: Option<Instant>, reached: impl Fn() -> bool) -> bool {
    wait_for(until, 1, || {
        if reached() {
            return Look::Reached;
        }
        let moved = queue.advance();
        match reached() {
            true => Look::Reached,
            false if moved => Look::Moved,
            false => Look::Idle,
        }
    })
}

/// Looks until what is looked for is there, and between the looks runs what is ready in the process,
/// and sleeps when nothing moves; false if the time is over first. `parties` is how many threads may
/// wait for each other here.
pub(crate) fn wait_for(
    until: Option<Instant>,
    parties: usize,
    mut look: impl FnMut() -> Look,
) -> bool {
    let mut found = look();
    let mut round = 0u32;
    let mut waiting = None;
    let mut sleep = SHORTEST_SLEEP;
    loop {
        let mut moved = match found {
            Look::Reached => return true,
            Look::Moved => true,
            Look::Idle => false,
        };
        moved |= MOVED.take();
        // The own work first: a short call is mostly over before the others would be looked at.
        if round >= SPINS {
            moved |= look_until(until);
        }
        if (moved || round >= SPINS) && is_over(until) {
            return matches!(look(), Look::Reached);
        }
        if moved {
            round = round.min(SPINS);
            sleep = SHORTEST_SLEEP;
            found = look();
            continue;
        }
        round = round.saturating_add(1);
        if round == FEW_SPINS && (parties > engine().cores || CROWDS.load(Ordering::Relaxed) > 0) {
            round = SPINS;
        }
        // Counted late: the count is one for all threads, and most waits are over sooner.
        if round >= SOME_SPINS && waiting.get_or_insert_with(Waiting::enter).0.are_many_waiting() {
            round = round.max(SPINS);
        }
        if round < SPINS {
            // A pause takes as long as a small call, and is not worth it before some looks.
            if round >= SOME_SPINS {
                std::hint::spin_loop();
            }
        } else if round < SPINS + YIELDS {
            std::thread::yield_now();
        } else {
            let entered = engine().waiters.enter();
            found = look();
            if !matches!(found, Look::Idle) || look_until(until) {
                continue;
            }
            // Who sleeps looks no more.
            waiting = None;
            let left = until.map_or(sleep, |it| it.saturating_duration_since(Instant::now()));
            entered.sleep(left.min(sleep));
            sleep = (sleep * 2).min(LONGEST_SLEEP);
        }
        found = look();
    }
}

/// A thread that waits and looks, counted.
struct Waiting(&'static Engine);

impl Waiting {
    fn enter() -> Self {
        let engine = engine();
        engine.waiting.fetch_add(1, Ordering::Relaxed);
        Self(engine)
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        self.0.waiting.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Engine {
    /// Whether as many threads wait, awake, as there are cores: one more that looks keeps a core from
    /// somebody.
    fn are_many_waiting(&self) -> bool {
        self.waiting.load(Ordering::Relaxed) >= self.cores
    }

    fn start_workers(&'static self) {
        self.started.call_once(|| {
            // Miri takes a thread that outlives `main` for a leak; its tests look for themselves.
            if cfg!(miri) {
                return;
            }
            for at in 0..(self.cores - 1).clamp(1, 8) {
                let name = format!("aether-worker-{at}");
                // Without workers everything still runs when somebody looks.
                let started = std::thread::Builder::new().name(name).spawn(|| self.work());
                if let Err(error) = started {
                    let so = "no worker thread: work runs only when it is waited for";
                    log(|| tracing::warn!(%error, "{so}"));
                }
            }
        });
    }

    fn work(&self) {
        let mut tick = QUICKEST_TICK;
        let mut moved_at = None;
        loop {
            // Panics are contained where they come from. Should one get this far, the worker stays.
            let looked = contain(|| {
                // Those who wait look, too.
                if !self.are_many_waiting() && look() {
                    return true;
                }
                if tick >= SLOWEST_TICK {
                    self.delist_idle();
                }
                false
            });
            if matches!(looked, Ok(true)) {
                tick = QUICKEST_TICK;
                moved_at = Some(Instant::now());
                continue;
            }
            // What it has just done may be what others waited for, who leave the next to it.
            let patient = moved_at.is_some_and(|it| it.elapsed() < PATIENCE);
            if patient && !self.are_many_waiting() {
                std::thread::yield_now();
                continue;
            }
            moved_at = None;
            let entered = self.workers.enter();
            let nothing =
                lock(&self.busy).is_empty() && self.retired_count.load(Ordering::SeqCst) == 0;
            entered.sleep(if nothing { Duration::MAX } else { tick });
            tick = if nothing { QUICKEST_TICK } else { (tick * 2).min(SLOWEST_TICK) };
        }
    }

    /// Takes the queues out of the list that have nothing to do.
    fn delist_idle(&self) {
        let mut idle = Vec::new();
        let mut busy = lock(&self.busy);
        let mut at = 0;
        while let Some(queue) = busy.get(at) {
            if !queue.is_idle() {
                at += 1;
                continue;
            }
            match queue.listed.release(|| queue.is_idle()) {
                true => idle.push(busy.swap_remove(at)),
                false => at += 1,
            }
        }
        drop(busy);
        // The last handle of a stream may go here; closing it is the backend's code.
        drop(idle);
    }

    fn free_retired(&self) -> bool {
        thread_local! {
            /// This thread is dropping an owner, whose destructor may wait, and so look: what is
            /// retired then is left to others, and to later, or each would be dropped within the last.
            static FREEING: Cell<bool> = const { Cell::new(false) };
        }
        if self.retired_count.load(Ordering::Relaxed) == 0 || FREEING.get() {
            return false;
        }
        let mut over = Vec::new();
        let mut retired = lock(&self.retired);
        let mut at = 0;
        while at < retired.len() {
            if retired.get(at).is_some_and(Retired::is_over) {
                over.push(retired.swap_remove(at));
            } else {
                at += 1;
            }
        }
        self.retired_count.store(retired.len(), Ordering::SeqCst);
        drop(retired);
        // Owners are dropped without a lock: they are other people's code.
        let freed = !over.is_empty();
        FREEING.set(true);
        // A `Retired` contains the panics of what it drops.
        drop(over);
        FREEING.set(false);
        freed
    }
}

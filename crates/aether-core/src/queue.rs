//! The queue behind a stream: operations in order, each with what it waits for.
//!
//! An operation is *waiting* until everything before it was issued and what it depends on has ended
//! (or was ordered behind by the device). It is then *issued*: handed to the backend or, for a
//! collective, to its driver, and advanced until only the device itself has work left. It has
//! *ended* when the device says so. Nobody blocks in here: who advances a queue does one step of
//! work, and who finds it being advanced goes elsewhere.

use std::collections::{BTreeMap, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use smallvec::SmallVec;

use crate::backend::{NativeStream, Ordered, Point, Region, Rows};
use crate::stream::{Completion, Status};
use crate::{Device, Error, ErrorKind, Result, progress};

/// An operation that a driver puts on a stream: one object for many calls, each told by a token, so
/// that enqueueing allocates nothing.
///
/// # Safety
/// An implementation touches the memory of call `token` only between [`Operation::issue`] and the first
/// answer that is not [`Step::Pending`] (and, after [`Step::Issued`], until the stream's backend says
/// that the stream has come so far).
pub unsafe trait Operation: Send + Sync {
    /// Begins the call: puts it on the device's stream, or tells the other ranks that this one has
    /// arrived. Called once, when all earlier operations of the stream were issued and everything
    /// that the call depends on is ordered. It is quick: whoever enqueues does it, so the work itself
    /// belongs into [`Operation::advance`].
    ///
    /// # Errors
    /// The call has failed. Nobody touches its memory any more.
    fn issue(&self, token: u64) -> Result<Step>;

    /// Does what can be done now without waiting for anybody. Called after `issue` until an answer
    /// is not [`Step::Pending`]; never twice at a time for one token.
    ///
    /// # Errors
    /// The call has failed. Nobody touches its memory any more.
    fn advance(&self, token: u64) -> Result<Step>;

    /// The call failed with this error before it began, because what it reads was never written. It
    /// is neither issued nor advanced any more.
    fn refused(&self, token: u64, error: &Error);
}

/// What [`Operation::issue`] or [`Operation::advance`] came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// It waits for others. Whoever looks will ask again; [`progress::announce`] wakes the sleepers.
    Pending,
    /// Whatever is left is on the stream of the device.
    Issued,
}

/// What a queue holds.
pub(crate) enum Task {
    Call { operation: Arc<dyn Operation>, token: u64 },
    Copy { dst: Region, src: Region },
    CopyRows { dst: Region, src: Region, rows: Rows },
    Fill { dst: Region, pattern: [u8; 8], width: u8 },
}

/// Work that must have ended before an operation is issued.
pub(crate) struct Dependency {
    pub(crate) on: Completion,
    /// Whether the operation reads what that work writes: its failure is then the operation's.
    pub(crate) reads: bool,
    ordered: Option<Ordered>,
}

impl Dependency {
    pub(crate) fn new(on: Completion, reads: bool) -> Self {
        Self { on, reads, ordered: None }
    }
}

pub(crate) type Dependencies = SmallVec<[Dependency; 2]>;

struct Waiting {
    ticket: u64,
    task: Task,
    needs: Dependencies,
    begun: bool,
}

struct Issued {
    ticket: u64,
    needs: Dependencies,
    outcome: Result<()>,
}

#[derive(Default)]
struct Lists {
    last: u64,
    waiting: VecDeque<Waiting>,
    issued: VecDeque<Issued>,
    /// Somebody is advancing the queue and has its front in hands.
    busy: bool,
}

/// The queue behind a [`Stream`](crate::Stream).
pub(crate) struct Queue {
    device: Device,
    native: NativeStream,
    lists: Mutex<Lists>,
    /// Every operation up to this ticket was issued or has ended.
    issued: AtomicU64,
    /// Every operation up to this ticket has ended.
    ended: AtomicU64,
    failed: AtomicBool,
    failures: Mutex<BTreeMap<u64, Error>>,
    /// The device can't tell any more what has ended.
    lost: AtomicBool,
    /// The queue stands in the list of those that have work.
    pub(crate) listed: AtomicBool,
}

impl Queue {
    pub(crate) fn open(device: &Device) -> Result<Self> {
        Ok(Self {
            device: device.clone(),
            native: device.backend().open_stream(device.id())?,
            lists: Mutex::default(),
            issued: AtomicU64::new(0),
            ended: AtomicU64::new(0),
            failed: AtomicBool::new(false),
            failures: Mutex::default(),
            lost: AtomicBool::new(false),
            listed: AtomicBool::new(false),
        })
    }

    pub(crate) fn device(&self) -> &Device {
        &self.device
    }

    pub(crate) fn native(&self) -> NativeStream {
        self.native
    }

    pub(crate) fn last_ticket(&self) -> u64 {
        self.lock().last
    }

    pub(crate) fn is_done(&self, ticket: u64) -> bool {
        self.ended.load(Ordering::Acquire) >= ticket
    }

    /// Whether nothing is waiting or running.
    pub(crate) fn is_idle(&self) -> bool {
        let lists = self.lock();
        lists.waiting.is_empty() && lists.issued.is_empty() && !lists.busy
    }

    /// Whether the device can't tell any more what has ended.
    pub(crate) fn is_lost(&self) -> bool {
        self.lost.load(Ordering::Acquire)
    }

    pub(crate) fn status(&self, ticket: u64) -> Status {
        if !self.is_done(ticket) {
            return Status::Pending;
        }
        match self.outcome(ticket) {
            Ok(()) => Status::Done,
            Err(error) => Status::Failed(error),
        }
    }

    /// How an operation that has ended came out.
    pub(crate) fn outcome(&self, ticket: u64) -> Result<()> {
        if !self.failed.load(Ordering::Acquire) {
            return Ok(());
        }
        let failures = self.failures.lock().unwrap_or_else(PoisonError::into_inner);
        failures.get(&ticket).map_or(Ok(()), |error| Err(error.clone()))
    }

    /// Appends an operation. Record its accesses, then call [`Queue::begin`].
    pub(crate) fn push(self: &Arc<Self>, task: Task, needs: Dependencies) -> Completion {
        let mut lists = self.lock();
        lists.last += 1;
        let ticket = lists.last;
        lists.waiting.push_back(Waiting { ticket, task, needs, begun: false });
        drop(lists);
        progress::enlist(self);
        Completion { queue: self.clone(), ticket }
    }

    /// Does for what was just pushed the part that is quick, where nothing keeps it waiting: a call
    /// arrives, an asynchronous backend gets its copy.
    pub(crate) fn begin(&self) {
        self.go(true);
    }

    /// Advances the queue as far as it goes without waiting, and says whether anything moved.
    pub(crate) fn advance(&self) -> bool {
        self.go(false)
    }

    fn go(&self, only_begin: bool) -> bool {
        let mut moved = false;
        let Ok(mut lists) = self.lists.try_lock() else {
            return false;
        };
        if lists.busy {
            return false;
        }
        loop {
            moved |= self.retire(&mut lists);
            let Some(front) = lists.waiting.front_mut() else { break };
            if only_begin && (front.begun || self.takes_long(&front.task)) {
                break;
            }
            if !front.begun {
                match self.order(&mut front.needs) {
                    Ok(true) => {}
                    Ok(false) => break,
                    Err(error) => {
                        let Some(front) = lists.waiting.pop_front() else { break };
                        if let Task::Call { operation, token } = &front.task {
                            operation.refused(*token, &error);
                        }
                        self.hand_over(&mut lists, front, Err(error));
                        moved = true;
                        continue;
                    }
                }
            }
            let Some(mut front) = lists.waiting.pop_front() else { break };
            lists.busy = true;
            drop(lists);
            let first = !front.begun;
            front.begun = true;
            let step = self.run(&front.task, front.ticket, first);
            lists = self.lock();
            lists.busy = false;
            match step {
                Ok(Step::Pending) => {
                    lists.waiting.push_front(front);
                    moved |= first;
                    break;
                }
                Ok(Step::Issued) => self.hand_over(&mut lists, front, Ok(())),
                Err(error) => self.hand_over(&mut lists, front, Err(error)),
            }
            moved = true;
        }
        moved
    }

    /// Whether everything is ended or ordered; an error if the operation would read what failed.
    fn order(&self, needs: &mut Dependencies) -> Result<bool> {
        let mut ready = true;
        for need in needs.iter_mut() {
            let (on, ticket) = (&need.on.queue, need.on.ticket);
            if need.ordered.is_none() {
                if on.issued.load(Ordering::Acquire) < ticket {
                    ready = false;
                    continue;
                }
                need.ordered = Some(match on.device.shares_backend(&self.device) {
                    true => self.device.backend().wait(self.native, need.on.point())?,
                    false => Ordered::ByHost,
                });
            }
            if on.is_done(ticket) {
                if need.reads {
                    on.outcome(ticket)?;
                }
            } else if need.ordered == Some(Ordered::ByHost) {
                ready = false;
            }
        }
        if ready {
            let foreign = |it: &&Dependency| !it.on.device().shares_backend(&self.device);
            needs.iter().filter(foreign).for_each(|it| it.on.acquire());
        }
        Ok(ready)
    }

    /// Whether the first step does the work itself.
    fn takes_long(&self, task: &Task) -> bool {
        !matches!(task, Task::Call { .. }) && !self.device.backend().is_asynchronous()
    }

    fn run(&self, task: &Task, ticket: u64, first: bool) -> Result<Step> {
        let step = self.step(task, first);
        if matches!(step, Ok(Step::Pending)) {
            return step;
        }
        // After a failure too: some rows may be on the device already.
        let marked = self.device.backend().mark(Point { stream: self.native, ticket });
        step.and_then(|step| marked.map(|()| step))
    }

    fn step(&self, task: &Task, first: bool) -> Result<Step> {
        let backend = self.device.backend();
        match task {
            Task::Call { operation, token } => {
                let call = || match first {
                    true => operation.issue(*token),
                    false => operation.advance(*token),
                };
                // A driver that panics must not take the queue with it: the call has failed.
                return catch_unwind(AssertUnwindSafe(call)).unwrap_or_else(|_| {
                    let reason = "the operation panicked";
                    Err(Error::new(ErrorKind::Panicked, "run an operation", reason)
                        .on(&self.device))
                });
            }
            &Task::Copy { dst, src } => {
                // SAFETY: who pushed the task promised valid regions that the hazard records keep
                // alive and free of conflicts until the operation has ended, and a legal pair.
                unsafe { backend.copy(self.native, dst, src) }?;
            }
            &Task::CopyRows { dst, src, rows } => {
                // SAFETY: as for a plain copy, for every row.
                unsafe { backend.copy_rows(self.native, dst, src, rows) }?;
            }
            Task::Fill { dst, pattern, width } => {
                let pattern = pattern.get(..usize::from(*width)).unwrap_or(pattern);
                // SAFETY: as for the destination of a plain copy.
                unsafe { backend.fill(self.native, *dst, pattern) }?;
            }
        }
        Ok(Step::Issued)
    }

    /// Moves an operation that left the waiting list to the issued ones.
    fn hand_over(&self, lists: &mut Lists, it: Waiting, outcome: Result<()>) {
        lists.issued.push_back(Issued { ticket: it.ticket, needs: it.needs, outcome });
        self.issued.store(it.ticket, Ordering::Release);
    }

    /// Ends what the device has ended, in order.
    fn retire(&self, lists: &mut Lists) -> bool {
        let mut moved = false;
        while let Some(front) = lists.issued.front() {
            let ticket = front.ticket;
            let ended = match self.device.backend().is_done(Point { stream: self.native, ticket }) {
                Ok(false) => break,
                Ok(true) => Ok(()),
                Err(error) => {
                    self.lost.store(true, Ordering::Release);
                    Err(error)
                }
            };
            let Some(front) = lists.issued.pop_front() else { break };
            let reads = front.needs.iter().filter(|it| it.reads);
            let inherited = || {
                reads
                    .map(|it| it.on.queue.outcome(it.on.ticket))
                    .find(Result::is_err)
                    .unwrap_or(Ok(()))
            };
            if let Err(error) = front.outcome.and(ended).and_then(|()| inherited()) {
                let mut failures = self.failures.lock().unwrap_or_else(PoisonError::into_inner);
                failures.insert(ticket, error);
                self.failed.store(true, Ordering::Release);
            }
            self.ended.store(ticket, Ordering::Release);
            moved = true;
        }
        if moved {
            progress::announce();
        }
        moved
    }

    fn lock(&self) -> MutexGuard<'_, Lists> {
        self.lists.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Queue {
    fn drop(&mut self) {
        self.device.backend().close_stream(self.native);
    }
}

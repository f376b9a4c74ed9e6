//! The queue behind a stream: operations in order, each with what it waits for.
//!
//! An operation is *waiting* until everything before it was issued and what it depends on has ended
//! (or was ordered behind by the device). It is then *issued*: handed to the backend or, for a
//! collective, to its driver, and advanced until only the device itself has work left. It has
//! *ended* when the device says so. Nobody blocks in here: who advances a queue does one step of
//! work, and who finds it being advanced goes elsewhere.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, TryLockError};

use smallvec::SmallVec;

use crate::backend::{NativeStream, Ordered, Point};
use crate::failures::{Failure, Failures};
use crate::listed::Listed;
use crate::stream::{Completion, Status};
use crate::sync::lock;
pub(crate) use crate::task::{Dependencies, Dependency, Task};
use crate::unwind::{Panic, contain, shield};
use crate::{Device, Error, ErrorKind, Result, Step, progress};

struct Waiting {
    ticket: u64,
    task: Task,
    /// Whether what it needs has to have ended, rather than only to be ordered by the device.
    on_host: bool,
    needs: Dependencies,
    begun: bool,
    /// Why it will never begin, once what it needs has ended.
    refusal: Option<Failure>,
}

struct Issued {
    ticket: u64,
    needs: Dependencies,
}

#[derive(Default)]
struct Lists {
    last: u64,
    waiting: VecDeque<Waiting>,
    issued: VecDeque<Issued>,
    /// Somebody is advancing the queue and has its front in hands.
    busy: bool,
}

/// What running the front came to.
enum Ran {
    Pending,
    Over(Result<(), Failure>),
}

/// The queue behind a [`Stream`](crate::Stream).
pub(crate) struct Queue {
    device: Device,
    native: NativeStream,
    /// What the backend said once and for all.
    asynchronous: bool,
    lists: Mutex<Lists>,
    /// Every operation up to this ticket was issued or has ended.
    issued: AtomicU64,
    /// Every operation up to this ticket has ended.
    ended: AtomicU64,
    failures: Failures,
    /// Whether the queue stands in the list of those that have work.
    pub(crate) listed: Listed,
}

impl Queue {
    pub(crate) fn open(device: &Device) -> Result<Self> {
        Ok(Self {
            device: device.clone(),
            // Asked first: a panic would leave the stream open.
            asynchronous: device.backend().is_asynchronous(),
            native: device.backend().open_stream(device.id())?,
            lists: Mutex::default(),
            issued: AtomicU64::new(0),
            ended: AtomicU64::new(0),
            failures: Failures::default(),
            listed: Listed::new(),
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

    /// Whether the operation was handed over; what it depends on is then ordered.
    pub(crate) fn is_issued(&self, ticket: u64) -> bool {
        self.issued.load(Ordering::Acquire) >= ticket
    }

    /// Whether nothing is waiting or running.
    pub(crate) fn is_idle(&self) -> bool {
        let lists = self.lock();
        lists.waiting.is_empty() && lists.issued.is_empty() && !lists.busy
    }

    /// Whether nobody can tell any more that an operation, taken as ended, has let go of its memory.
    pub(crate) fn is_unproved(&self, ticket: u64) -> bool {
        self.failures.is_unproved(ticket)
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
        self.failures.of(ticket).map_or(Ok(()), |it| Err(it.error))
    }

    /// Appends an operation. Record its accesses, then call [`Queue::begin`]. Nothing unwinds out of
    /// here once the operation is queued.
    pub(crate) fn push(self: &Arc<Self>, task: Task, needs: Dependencies) -> Completion {
        // Other people's code, so it is asked while nothing is queued, and not under the lock.
        let on_host = task.works_on_host();
        let mut lists = self.lock();
        lists.last += 1;
        let ticket = lists.last;
        let begun = false;
        lists.waiting.push_back(Waiting { ticket, task, on_host, needs, begun, refusal: None });
        drop(lists);
        progress::enlist(self);
        Completion { queue: self.clone(), ticket }
    }

    /// Takes the stream in hand for one call, and gives its ticket, if nothing is before it. Nothing that
    /// is pushed meanwhile begins before [`Queue::give_back`].
    pub(crate) fn take(&self) -> Option<u64> {
        // Where work has to be moved, and may be to be waited for, the call is queued behind it.
        if self.asynchronous {
            return None;
        }
        let mut lists = self.lists.try_lock().ok()?;
        if lists.busy || !lists.waiting.is_empty() || !lists.issued.is_empty() {
            return None;
        }
        lists.busy = true;
        lists.last += 1;
        Some(lists.last)
    }

    /// Ends the call for which the stream was taken in hand, and says how it came out.
    pub(crate) fn give_back(&self, ticket: u64, outcome: Result<(), Failure>) {
        let outcome = self.mark(ticket, outcome);
        let mut over = SmallVec::new();
        let mut lists = self.lock();
        lists.busy = false;
        self.hand_over(&mut lists, ticket, Dependencies::new(), outcome);
        let ended = self.retire_silently(&mut lists, &mut over);
        // The caller knows, and it is the only one who waits, unless something was pushed behind.
        let alone = lists.waiting.is_empty();
        drop(lists);
        if ended && !alone {
            progress::announce();
        }
    }

    /// Tells the backend that the host relies on the end of the operation.
    pub(crate) fn acquire(&self, ticket: u64) {
        let point = Point { stream: self.native, ticket };
        // Contained: whoever goes on may have more work to wait for, and must not unwind past it.
        let tell = || self.device.backend().acquired(point);
        shield(&self.device, "a backend that was told of an end", tell);
    }

    /// Does for what was just pushed the part that is quick, where nothing keeps it waiting: a call
    /// arrives, an asynchronous backend gets its copy.
    pub(crate) fn begin(&self) {
        self.go(true);
    }

    /// Advances the queue as far as it goes without waiting, or by one operation that takes long,
    /// and says whether anything moved.
    pub(crate) fn advance(&self) -> bool {
        self.go(false)
    }

    fn go(&self, only_begin: bool) -> bool {
        let mut moved = false;
        // Dropped after the lock: among them may be the last handle of another stream.
        let mut over = SmallVec::<[Dependencies; 1]>::new();
        let mut lists = match self.lists.try_lock() {
            Ok(lists) => lists,
            Err(TryLockError::Poisoned(lists)) => lists.into_inner(),
            Err(TryLockError::WouldBlock) => return false,
        };
        if lists.busy {
            return false;
        }
        loop {
            moved |= self.retire(&mut lists, &mut over);
            let before_ended = lists.issued.is_empty();
            let Some(front) = lists.waiting.front_mut() else { break };
            let long = self.takes_long(&front.task);
            if !before_ended && front.on_host {
                break;
            }
            let quick = !long || front.task.begins_quickly() && !front.begun;
            if only_begin && (front.begun || !quick) || !front.begun && !self.order(front) {
                break;
            }
            let Some(mut front) = lists.waiting.pop_front() else { break };
            // The lock is not held meanwhile: the step takes its time, and is other people's code.
            lists.busy = true;
            drop(lists);
            let first = !std::mem::replace(&mut front.begun, true);
            let Ran::Over(outcome) = self.run(&front, first) else {
                lists = self.lock();
                lists.busy = false;
                lists.waiting.push_front(front);
                moved |= first;
                break;
            };
            let Waiting { ticket, task, needs, .. } = front;
            shield(&self.device, "an operation that was dropped", || drop(task));
            lists = self.lock();
            lists.busy = false;
            self.hand_over(&mut lists, ticket, needs, outcome);
            moved = true;
            if long {
                // Whoever looks has other queues to look at, and perhaps a deadline.
                self.retire(&mut lists, &mut over);
                break;
            }
        }
        drop(lists);
        moved
    }

    /// Whether everything that the operation needs has ended or is ordered by the device. One that
    /// is to be refused waits for all ends: its own end implies them, because later accesses to the
    /// same memory are ordered behind it alone.
    fn order(&self, front: &mut Waiting) -> bool {
        let Waiting { needs, refusal, on_host, .. } = front;
        // The first reason stays; one doubt about an end is enough.
        let mut refuse = |failure: Failure| {
            let unproved = failure.unproved;
            refusal.get_or_insert(failure).unproved |= unproved;
        };
        let (mut all_ended, mut all_ordered) = (true, true);
        for need in needs.iter_mut() {
            let (on, ticket) = (&need.on.queue, need.on.ticket);
            // What has ended was issued, so the end is looked for first: one that came between the
            // looks would pass for ordered, and the backend would not be told. A failure is noted
            // before either, so it is looked for last.
            let ended = on.is_done(ticket);
            let issued = on.is_issued(ticket);
            if let Some(failure) = on.failures.of(ticket)
                && (failure.unproved || need.reads && ended)
            {
                refuse(failure);
            } else if need.ordered.is_none() && issued {
                match self.order_behind(need) {
                    Ok(by) => need.ordered = Some(by),
                    Err(error) => {
                        // Not asked again: the operation waits for all ends now.
                        need.ordered = Some(Ordered::ByHost);
                        refuse(Failure { error, unproved: false });
                    }
                }
            }
            all_ended &= ended;
            all_ordered &= ended || need.ordered == Some(Ordered::ByDevice);
        }
        let need_ends = refusal.is_some() || *on_host;
        let ready = if need_ends { all_ended } else { all_ordered };
        if ready {
            let foreign = |it: &&Dependency| !it.on.device().shares_backend(&self.device);
            needs.iter().filter(foreign).for_each(|it| it.on.acquire());
        }
        ready
    }

    /// Has the stream ordered behind something that was issued.
    fn order_behind(&self, need: &Dependency) -> Result<Ordered> {
        if std::ptr::eq(Arc::as_ptr(&need.on.queue), self) {
            // "What it issues on one stream runs in the order in which it was issued."
            return Ok(Ordered::ByDevice);
        }
        if !need.on.device().shares_backend(&self.device) {
            return Ok(Ordered::ByHost);
        }
        let wait = || self.device.backend().wait(self.native, need.on.point());
        contain(wait)
            .unwrap_or_else(|panic| Err(self.panicked("order a stream", "backend", &panic)))
    }

    /// Whether the first step does the work itself.
    fn takes_long(&self, task: &Task) -> bool {
        !matches!(task, Task::Call { .. }) && !self.asynchronous
    }

    fn run(&self, front: &Waiting, first: bool) -> Ran {
        let outcome = match &front.refusal {
            None => match self.guarded_step(&front.task, first) {
                Ok(Step::Pending) => return Ran::Pending,
                Ok(Step::Issued) => Ok(()),
                Err(error) => Err(Failure { error, unproved: false }),
            },
            Some(failure) => {
                if let Task::Call { operation, token } = &front.task {
                    let refuse = || operation.refused(*token, &failure.error);
                    shield(&self.device, "an operation that was refused", refuse);
                }
                Err(failure.clone())
            }
        };
        Ran::Over(self.mark(front.ticket, outcome))
    }

    /// Marks the end of an operation on the stream, after a failure too: some rows may be on the device
    /// already, and what came before is told by the end of this one.
    fn mark(&self, ticket: u64, outcome: Result<(), Failure>) -> Result<(), Failure> {
        let point = Point { stream: self.native, ticket };
        let marked = contain(|| self.device.backend().mark(point))
            .unwrap_or_else(|panic| Err(self.panicked("mark a stream", "backend", &panic)));
        match (outcome, marked) {
            (outcome, Ok(())) => outcome,
            (Ok(()), Err(error)) => Err(Failure { error, unproved: true }),
            (Err(Failure { error, .. }), Err(_)) => Err(Failure { error, unproved: true }),
        }
    }

    /// Runs a step of an operation; its panic is an error.
    pub(crate) fn contained(&self, step: impl FnOnce() -> Result<Step>) -> Result<Step> {
        contain(step)
            .unwrap_or_else(|panic| Err(self.panicked("run an operation", "operation", &panic)))
    }

    fn guarded_step(&self, task: &Task, first: bool) -> Result<Step> {
        let backend = &**self.device.backend();
        contain(|| task.step(backend, self.native, first)).unwrap_or_else(|panic| {
            let who = if matches!(task, Task::Call { .. }) { "operation" } else { "backend" };
            Err(self.panicked("run an operation", who, &panic))
        })
    }

    fn panicked(&self, attempted: &'static str, who: &str, panic: &Panic) -> Error {
        Error::new(ErrorKind::Panicked, attempted, format!("the {who} {panic}")).on(&self.device)
    }

    /// Moves an operation that left the waiting list to the issued ones.
    fn hand_over(
        &self,
        lists: &mut Lists,
        ticket: u64,
        needs: Dependencies,
        outcome: Result<(), Failure>,
    ) {
        if let Err(failure) = outcome {
            // Noted before anybody can take the operation for issued, and order behind it.
            self.failures.note(ticket, failure);
        }
        lists.issued.push_back(Issued { ticket, needs });
        self.issued.store(ticket, Ordering::Release);
    }

    /// Ends what the device has ended, in order, and tells those who wait.
    fn retire(&self, lists: &mut Lists, over: &mut SmallVec<[Dependencies; 1]>) -> bool {
        let moved = self.retire_silently(lists, over);
        if moved {
            progress::announce();
        }
        moved
    }

    fn retire_silently(&self, lists: &mut Lists, over: &mut SmallVec<[Dependencies; 1]>) -> bool {
        let mut moved = false;
        while let Some(front) = lists.issued.front() {
            let point = Point { stream: self.native, ticket: front.ticket };
            let lost = match contain(|| self.device.backend().is_done(point)) {
                Ok(Ok(false)) => break,
                Ok(Ok(true)) => None,
                Ok(Err(error)) => Some(error),
                Err(panic) => Some(self.panicked("ask for the end", "backend", &panic)),
            };
            // What the device ordered has ended too, and its queue sees it at its next look: only
            // then it is known how that came out.
            if lost.is_none() && !front.needs.iter().all(|it| it.on.queue.is_done(it.on.ticket)) {
                break;
            }
            let Some(front) = lists.issued.pop_front() else { break };
            self.note_failure(&front, lost);
            self.ended.store(front.ticket, Ordering::Release);
            moved = true;
            if !front.needs.is_empty() {
                over.push(front.needs);
            }
        }
        moved
    }

    /// Notes what else went wrong with an operation: on the device, or with what it read or could
    /// not be proved ordered behind.
    fn note_failure(&self, front: &Issued, lost: Option<Error>) {
        let lost = lost.map(|error| Failure { error, unproved: true });
        let inherited = front.needs.iter().filter_map(|it| {
            let failure = it.on.queue.failures.of(it.on.ticket);
            failure.filter(|failure| it.reads || failure.unproved)
        });
        for failure in lost.into_iter().chain(inherited) {
            self.failures.note(front.ticket, failure);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Lists> {
        lock(&self.lists)
    }
}

impl Drop for Queue {
    fn drop(&mut self) {
        let close = || self.device.backend().close_stream(self.native);
        shield(&self.device, "a backend that closed a stream", close);
        // The causes of errors are other people's code too.
        let failures = std::mem::take(&mut self.failures);
        shield(&self.device, "the cause of an error, when it was dropped,", || drop(failures));
    }
}

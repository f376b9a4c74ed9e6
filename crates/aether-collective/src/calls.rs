//! The calls of one member: what the operations on its stream stand for.

use std::collections::VecDeque;
use std::mem::ManuallyDrop;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use aether_core::{Error, ErrorKind, Operation, Result, Step, Stream, Touch};
use smallvec::SmallVec;

use crate::CollectiveDriver;
use crate::call::Call;

/// The communicator of one member, and the calls that have not been handed over yet.
pub(crate) struct Calls<D: CollectiveDriver> {
    /// Dropped by `Drop`, which contains its panic.
    comm: ManuallyDrop<D::Communicator>,
    stream: Stream,
    pending: Mutex<Pending<D>>,
    /// The first failure that this member had or was told: a driver need not remember any.
    failed: OnceLock<Error>,
}

struct Pending<D: CollectiveDriver> {
    last: u64,
    /// In the order of their tokens, which is that of the stream.
    calls: VecDeque<PendingCall<D>>,
}

pub(crate) struct PendingCall<D: CollectiveDriver> {
    token: u64,
    call: Call<D>,
    touches: SmallVec<[Touch; 2]>,
}

impl<D: CollectiveDriver> Calls<D> {
    pub(crate) fn new(comm: D::Communicator, stream: Stream) -> Self {
        let pending = Mutex::new(Pending { last: 0, calls: VecDeque::new() });
        let comm = ManuallyDrop::new(comm);
        Self { comm, stream, pending, failed: OnceLock::new() }
    }

    /// Notes a call, and gives the token that its operation carries.
    pub(crate) fn put(&self, call: Call<D>, touches: SmallVec<[Touch; 2]>) -> u64 {
        let mut pending = self.pending();
        pending.last += 1;
        let token = pending.last;
        pending.calls.push_back(PendingCall { token, call, touches });
        token
    }

    /// Takes a call off the notes: its turn has come, or it was never queued.
    pub(crate) fn take(&self, token: u64) -> Option<PendingCall<D>> {
        let mut pending = self.pending();
        // Calls go in their order, so it is mostly the first, and otherwise the last.
        let at = pending.calls.iter().position(|it| it.token == token)?;
        pending.calls.remove(at)
    }

    /// The group's first failure.
    pub(crate) fn failure(&self) -> Option<Error> {
        let told = self.contain("ask for a failure", || Ok(D::failure(&self.comm)));
        told.unwrap_or_else(Some).or_else(|| self.failed.get().cloned())
    }

    /// Breaks the group because of `why`.
    pub(crate) fn fail(&self, why: &Error) {
        let first = self.failed.set(why.clone()).is_ok();
        // Contained: whoever gets here has work to wait for, and must not unwind past it.
        let told = self.contain("abort a group", || D::abort(&self.comm, why));
        if let Err(error) = told
            && first
        {
            tracing::warn!(%error, %why, "the other ranks can't be told of a failure");
        }
    }

    /// Tells the driver that no call follows.
    ///
    /// # Errors
    /// The group's failure, if it has failed.
    pub(crate) fn finish(&self) -> Result<()> {
        let told = self.contain("finish a group", || D::finish(&self.comm));
        told.and_then(|()| self.failed.get().cloned().map_or(Ok(()), Err))
    }

    /// The owner lets go of the communicator.
    pub(crate) fn leaving(&self) {
        let panicking = std::thread::panicking();
        // Called by a destructor, which doesn't panic.
        let told = self.contain("leave a group", || {
            D::leaving(&self.comm, panicking);
            Ok(())
        });
        if let Err(error) = told {
            tracing::warn!(%error, "a member left all the same");
        }
    }

    /// Asks the driver. Its panic is an error.
    fn contain<T>(&self, attempted: &'static str, ask: impl FnOnce() -> Result<T>) -> Result<T> {
        catch_unwind(AssertUnwindSafe(ask)).unwrap_or_else(|payload| {
            // The payload is the driver's as well. One that panics when it is dropped is leaked.
            if let Err(second) = catch_unwind(AssertUnwindSafe(|| drop(payload))) {
                std::mem::forget(second);
            }
            let error = Error::new(ErrorKind::Panicked, attempted, "the driver panicked");
            Err(error.on(self.stream.device()))
        })
    }

    fn pending(&self) -> MutexGuard<'_, Pending<D>> {
        self.pending.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Tells the device's backend of the call, hands it to the driver, and asks how far it is.
    ///
    /// # Safety
    /// As [`Call::enqueue`]; the accesses are all of the call's.
    unsafe fn begin(&self, call: &Call<D>, touches: &[Touch]) -> Result<bool> {
        let backend = self.stream.device().backend();
        backend.observe(Some(self.stream.native()), touches);
        // SAFETY: the caller promises the driver's contract for the call's resources.
        unsafe { call.enqueue(&self.comm, D::comm_stream(&self.stream)) }?;
        D::issued(&self.comm)
    }

    /// Begins a call that its caller carries out in hand, and goes on by [`Operation::advance`].
    ///
    /// # Errors
    /// The call has failed, and the group with it. Nobody touches the call's memory any more.
    ///
    /// # Safety
    /// As [`Call::enqueue`]; the accesses are all of the call's; the stream is in hand.
    pub(crate) unsafe fn begin_in_hand(&self, call: &Call<D>, touches: &[Touch]) -> Result<Step> {
        // SAFETY: the caller's promise is the same.
        self.step(|| unsafe { self.begin(call, touches) })
    }

    /// Asks the driver; if the call has failed, so has the group.
    fn step(&self, ask: impl FnOnce() -> Result<bool>) -> Result<Step> {
        let answer = self.contain("run a collective", ask);
        let step = answer.map(|over| if over { Step::Issued } else { Step::Pending });
        // The other ranks make this call too, and can't without this one.
        step.inspect_err(|error| self.fail(error))
    }
}

// SAFETY: the memory of a call is touched by the driver alone, which promises to do so only "between
// the call that enqueues and the answer of `issued` that is not `false` — or, for a driver that works
// on the device's stream, the end of what is on the stream then". That is what `Operation` asks.
unsafe impl<D: CollectiveDriver> Operation for Calls<D> {
    fn issue(&self, token: u64) -> Result<Step> {
        self.step(|| {
            let Some(it) = self.take(token) else {
                let reason = "the call is not on record";
                let error = Error::new(ErrorKind::Backend, "issue a call", reason);
                return Err(error.on(self.stream.device()));
            };
            // SAFETY: `Member::put` recorded every access of the call before it was issued: memory of
            // chunks stays until the completion, borrowed memory is kept by who waits for it, and what
            // conflicts is ordered. The planner checked alignment, sizes and overlap.
            unsafe { self.begin(&it.call, &it.touches) }
        })
    }

    fn advance(&self, _: u64) -> Result<Step> {
        self.step(|| D::issued(&self.comm))
    }

    fn works_on_host(&self) -> bool {
        !D::capabilities().on_stream
    }

    fn refused(&self, token: u64, error: &Error) {
        drop(self.take(token));
        self.fail(error);
    }
}

impl<D: CollectiveDriver> Drop for Calls<D> {
    fn drop(&mut self) {
        // SAFETY: this is the destructor, and it doesn't use `comm` again: nobody does.
        let comm = unsafe { ManuallyDrop::take(&mut self.comm) };
        // Whoever lets go last may be a worker, or a thread that unwinds: a panic would end the
        // process.
        let dropped = self.contain("drop a communicator", || {
            drop(comm);
            Ok(())
        });
        if let Err(error) = dropped {
            tracing::warn!(%error, "what the communicator held may be lost");
        }
    }
}

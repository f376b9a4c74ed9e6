//! One member of a group: its communicator, its communication stream, and the calls on it.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use aether_core::{
    Completion, Device, Error, ErrorKind, Operation, Result, Span, SpanMut, Step, Stream, Touch,
    check_tracked, enqueue,
};
use smallvec::SmallVec;

use crate::call::Call;
use crate::plan::{Asker, Plan};
use crate::{CollectiveDriver, CommunicationId, GroupConfig};

/// One member of a group. Shared by its handle and the operations on its stream.
pub(crate) struct Member<D: CollectiveDriver> {
    pub(crate) id: CommunicationId,
    pub(crate) device: Device,
    pub(crate) rank: usize,
    pub(crate) ranks: usize,
    pub(crate) stream: Stream,
    calls: Arc<Calls<D>>,
}

/// The calls of one member: what its stream's operations stand for.
struct Calls<D: CollectiveDriver> {
    comm: D::Communicator,
    device: Device,
    stream: Stream,
    pending: Mutex<Pending<D>>,
}

struct Pending<D: CollectiveDriver> {
    last: u64,
    calls: VecDeque<PendingCall<D>>,
}

struct PendingCall<D: CollectiveDriver> {
    token: u64,
    call: Call<D>,
    touches: SmallVec<[Touch; 2]>,
}

impl<D: CollectiveDriver> Member<D> {
    /// Joins the group as one rank, with a communication stream of its own.
    ///
    /// # Errors
    /// The driver's refusal; `Unsupported` if it doesn't run on the device.
    pub(crate) fn join(
        id: CommunicationId,
        unique: D::UniqueId,
        device: &Device,
        rank: usize,
        config: &GroupConfig,
    ) -> Result<Self> {
        if !D::supports(device) {
            let reason = format!("{} does not run collectives there", D::name());
            return Err(Error::new(ErrorKind::Unsupported, "join a group", reason).on(device));
        }
        let ranks = id.devices().len();
        let stream = Stream::new(device)?;
        let comm = D::join(unique, ranks, rank, device, config)?;
        let pending = Mutex::new(Pending { last: 0, calls: VecDeque::new() });
        let calls = Calls { comm, device: device.clone(), stream: stream.clone(), pending };
        Ok(Self { id, device: device.clone(), rank, ranks, stream, calls: Arc::new(calls) })
    }

    pub(crate) fn asker(&self) -> Asker<'_> {
        Asker { device: &self.device, rank: self.rank, ranks: self.ranks }
    }

    /// The group's first failure, as the error of a call that is refused because of it.
    ///
    /// # Errors
    /// `GroupBroken`, naming the first failure.
    pub(crate) fn check_alive(&self, attempted: &'static str) -> Result<()> {
        let Some(first) = D::failure(&self.calls.comm) else { return Ok(()) };
        let reason = format!("the group failed earlier ({first})");
        Err(Error::new(ErrorKind::GroupBroken, attempted, reason)
            .on(format!("rank {} of {}", self.rank, self.id))
            .about_ranks(first.ranks())
            .caused_by(first))
    }

    /// Refuses memory that is only borrowed.
    ///
    /// # Errors
    /// `BorrowedMemory`.
    pub(crate) fn check_tracked(plan: &Plan<'_, D>) -> Result<()> {
        let name = plan.operation.name();
        plan.reads.iter().try_for_each(|span| check_tracked(name, span))?;
        plan.writes.iter().try_for_each(|span| check_tracked(name, &span.as_span()))
    }

    /// Everything that can be refused about the memory before anything is queued: it may be written,
    /// and what is read was not left by a failed write.
    ///
    /// # Errors
    /// `ReadOnly`, `Exported`, the failure of a write.
    pub(crate) fn check_memory(plan: &Plan<'_, D>) -> Result<()> {
        let name = plan.operation.name();
        plan.writes.iter().try_for_each(|span| span.check_writable(name))?;
        plan.reads.iter().try_for_each(Span::check_readable)
    }

    /// Puts a checked call on the member's stream.
    ///
    /// # Errors
    /// Nothing was queued: memory that may not be written, or a read of what a failed write left.
    ///
    /// # Safety
    /// Spans of the plan that are not tracked outlive the completion.
    pub(crate) unsafe fn enqueue(&self, plan: Plan<'_, D>) -> Result<Completion> {
        let touches = plan.reads.iter().map(Span::touch);
        let touches = touches.chain(plan.writes.iter().map(SpanMut::touch)).collect();
        let token = self.calls.put(plan.call, touches);
        // SAFETY: the call touches what the plan lists and nothing else ("reads only what the method's
        // documentation says is read and writes only what is written"), and is done when the driver
        // says so; the caller keeps what is not tracked.
        let queued =
            unsafe { enqueue(&self.stream, &plan.reads, &plan.writes, self.calls.clone(), token) };
        if queued.is_err() {
            self.calls.forget(token);
        }
        queued
    }

    /// Breaks the group because a call of it can't go on.
    pub(crate) fn abort(&self, why: &Error) {
        if let Err(error) = D::abort(&self.calls.comm, why) {
            tracing::warn!(%error, %why, "the group can't be told of a failure");
        }
    }

    /// Waits for this member's calls, then tells the driver that none follows.
    ///
    /// # Errors
    /// The failure of its last call, or one of the group that it has not seen yet.
    pub(crate) fn finish(&self) -> Result<()> {
        let ended = self.stream.synchronize();
        D::finish(&self.calls.comm).and(ended)
    }
}

impl<D: CollectiveDriver> Drop for Member<D> {
    fn drop(&mut self) {
        D::leaving(&self.calls.comm, std::thread::panicking());
    }
}

impl<D: CollectiveDriver> Calls<D> {
    fn pending(&self) -> MutexGuard<'_, Pending<D>> {
        self.pending.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn put(&self, call: Call<D>, touches: SmallVec<[Touch; 2]>) -> u64 {
        let mut pending = self.pending();
        pending.last += 1;
        let token = pending.last;
        pending.calls.push_back(PendingCall { token, call, touches });
        token
    }

    fn forget(&self, token: u64) {
        self.pending().calls.retain(|it| it.token != token);
    }

    /// The call is over unless it waits for others.
    fn settle(&self, token: u64, step: Result<bool>) -> Result<Step> {
        match step {
            Ok(false) => Ok(Step::Pending),
            Ok(true) => {
                self.forget(token);
                Ok(Step::Issued)
            }
            Err(error) => {
                self.forget(token);
                Err(error)
            }
        }
    }
}

// SAFETY: the memory of a call is touched by the driver alone, which promises to do so only "between
// the call that enqueues and the answer of `issued` that is not `false` — or, for a driver that works
// on the device's stream, the end of what is on the stream then". That is what `Operation` asks.
unsafe impl<D: CollectiveDriver> Operation for Calls<D> {
    fn issue(&self, token: u64) -> Result<Step> {
        let pending = self.pending();
        let Some(it) = pending.calls.iter().find(|it| it.token == token) else {
            let reason = "the call is not on record";
            return Err(Error::new(ErrorKind::Backend, "issue a call", reason).on(&self.device));
        };
        self.device.backend().observe(Some(self.stream.native()), &it.touches);
        // SAFETY: `Member::enqueue` recorded every access of the call before it was issued: memory of
        // chunks stays until the completion, borrowed memory is kept by who waits for it, and what
        // conflicts is ordered. The planner checked alignment, sizes and overlap.
        let issued = unsafe { it.call.enqueue(&self.comm, D::comm_stream(&self.stream)) };
        drop(pending);
        let step = issued.and_then(|()| D::issued(&self.comm));
        self.settle(token, step)
    }

    fn advance(&self, token: u64) -> Result<Step> {
        self.settle(token, D::issued(&self.comm))
    }

    fn refused(&self, token: u64, error: &Error) {
        self.forget(token);
        if let Err(why) = D::abort(&self.comm, error) {
            tracing::warn!(error = %why, %error, "the group can't be told of a failure");
        }
    }
}

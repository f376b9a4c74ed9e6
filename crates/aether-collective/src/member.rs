//! One member of a group: its communicator, its communication stream, and the calls on it.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use aether_core::{
    Chunk, Completion, Device, Error, ErrorKind, InHand, Operation, Result, Span, SpanMut, Step,
    Steps, Stream, Touch, check_tracked, enqueue,
};
use smallvec::SmallVec;

use crate::call::Call;
use crate::calls::Calls;
use crate::plan::{Asker, Plan};
use crate::{CollectiveDriver, CommunicationId, GroupConfig, OpName};

/// One member of a group.
pub(crate) struct Member<D: CollectiveDriver> {
    pub(crate) id: CommunicationId,
    pub(crate) device: Device,
    pub(crate) rank: usize,
    pub(crate) ranks: usize,
    stream: Stream,
    /// Outlives the member where work is still queued.
    calls: Arc<Calls<D>>,
    /// The element that a composed barrier reduces.
    beat: Mutex<Option<Chunk>>,
}

impl<D: CollectiveDriver> Member<D> {
    /// Joins the group as one rank, with a communication stream of its own.
    ///
    /// # Errors
    /// The driver's refusal; `Unsupported` if it doesn't run on the device.
    pub(crate) fn join(
        id: &CommunicationId,
        unique: D::UniqueId,
        device: &Device,
        rank: usize,
        config: &GroupConfig,
    ) -> Result<Self> {
        check_supported::<D>(device)?;
        let ranks = id.devices().len();
        let stream = Stream::new(device)?;
        let comm = D::join(unique, ranks, rank, device, config)?;
        Ok(Self::new(id, comm, stream, rank))
    }

    /// Joins the group as all of its ranks, for one caller.
    ///
    /// # Errors
    /// Those of [`Member::join`].
    pub(crate) fn join_all(
        id: &CommunicationId,
        unique: D::UniqueId,
        devices: &[Device],
        config: &GroupConfig,
    ) -> Result<Vec<Self>> {
        devices.iter().try_for_each(check_supported::<D>)?;
        let streams: Vec<Stream> = devices.iter().map(Stream::new).collect::<Result<_>>()?;
        let by_rank: Vec<(usize, &Device)> = devices.iter().enumerate().collect();
        let comms = D::join_all(unique, devices.len(), &by_rank, config)?;
        if comms.len() != devices.len() {
            let reason = format!("{} of {} ranks joined", comms.len(), devices.len());
            return Err(Error::new(ErrorKind::Backend, "join a group", reason).on(D::name()));
        }
        let members = comms.into_iter().zip(streams).enumerate();
        Ok(members.map(|(rank, (comm, stream))| Self::new(id, comm, stream, rank)).collect())
    }

    fn new(id: &CommunicationId, comm: D::Communicator, stream: Stream, rank: usize) -> Self {
        Self {
            id: id.clone(),
            device: stream.device().clone(),
            rank,
            ranks: id.devices().len(),
            calls: Arc::new(Calls::new(comm, stream.clone())),
            stream,
            beat: Mutex::default(),
        }
    }

    pub(crate) fn asker(&self) -> Asker<'_> {
        Asker { device: &self.device, rank: self.rank, ranks: self.ranks }
    }

    /// The group's first failure, as the error of a call that is refused because of it.
    ///
    /// # Errors
    /// `GroupBroken`, naming the first failure.
    pub(crate) fn check_alive(&self, attempted: &'static str) -> Result<()> {
        let Some(first) = self.calls.failure() else { return Ok(()) };
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

    /// Puts a checked call on the member's stream. The plan is used up.
    ///
    /// # Errors
    /// Nothing was queued: memory that may not be written, or a read of what a failed write left. Or,
    /// for a composed call, all that was queued has ended and the group is broken.
    ///
    /// # Safety
    /// Spans of the plan that are not tracked outlive the completion.
    pub(crate) unsafe fn enqueue(&self, plan: &mut Plan<'_, D>) -> Result<Completion> {
        match plan.scratch.take() {
            // SAFETY: the caller keeps what is not tracked.
            None => unsafe { self.put(plan.take_call(), &plan.reads, &plan.writes) },
            // SAFETY: as above.
            Some(scratch) => unsafe { self.enqueue_composed(plan, *scratch) },
        }
    }

    /// Puts a call of the driver on the member's stream.
    ///
    /// # Errors
    /// Nothing was queued: memory that may not be written, or a read of what a failed write left.
    ///
    /// # Safety
    /// The call was resolved from these spans, reads nothing else, and writes only those to write. Spans
    /// that are not tracked outlive the completion.
    pub(crate) unsafe fn put(
        &self,
        call: Call<D>,
        reads: &[Span<'_>],
        writes: &[SpanMut<'_>],
    ) -> Result<Completion> {
        let touches = reads.iter().map(Span::touch).chain(writes.iter().map(SpanMut::touch));
        let token = self.calls.put(call, touches.collect());
        // SAFETY: the call touches these spans and nothing else, as the caller promises for the call and
        // the driver for what it does ("reads only what the method's documentation says is read and
        // writes only what is written"), and is done when the driver says so; the caller keeps what is
        // not tracked.
        let queued = unsafe { enqueue(&self.stream, reads, writes, self.calls.clone(), token) };
        if queued.is_err() {
            drop(self.calls.take(token));
        }
        queued
    }

    /// Takes the member's stream in hand for a checked call, if the call is small and nothing is before
    /// it; false if it has to be queued.
    ///
    /// # Safety
    /// As for [`Member::enqueue`], until the call was waited for.
    pub(crate) unsafe fn take_in_hand<'a>(
        &'a self,
        plan: &'a Plan<'_, D>,
        hand: &mut InHand<'a, Held<'a, D>>,
    ) -> bool {
        if D::capabilities().on_stream || plan.scratch.is_some() {
            return false;
        }
        let (reads, writes) = (&*plan.reads, &*plan.writes);
        let held = Held { calls: &self.calls, call: &plan.call, reads, writes };
        // SAFETY: the call was resolved from these spans, and the driver "reads only what the method's
        // documentation says is read and writes only what is written", and is done when it says so.
        unsafe { hand.take(&self.stream, reads, writes, held) }
    }

    /// Breaks the group because of `why`: for the other ranks too, where the driver can.
    pub(crate) fn abort(&self, why: &Error) {
        self.calls.fail(why);
    }

    /// Waits for this member's calls, then tells the driver that none follows.
    ///
    /// # Errors
    /// The group's failure, if it has failed.
    pub(crate) fn finish(&self) -> Result<()> {
        let ended = self.stream.synchronize();
        self.calls.finish().and(ended)
    }

    /// The element that a composed barrier reduces, lent until [`Member::keep_beat`].
    ///
    /// # Errors
    /// What allocating it comes to.
    pub(crate) fn beat(&self) -> Result<Chunk> {
        let kept = self.lock_beat().take();
        kept.map_or_else(|| Chunk::from_vec(&self.device, vec![0f32]), Ok)
    }

    /// Keeps the element of a barrier for the next one.
    pub(crate) fn keep_beat(&self, operation: OpName, memory: Chunk) {
        if operation == OpName::Barrier {
            *self.lock_beat() = Some(memory);
        }
    }

    fn lock_beat(&self) -> MutexGuard<'_, Option<Chunk>> {
        self.beat.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A call that its caller carries out in hand. Made by [`Member::take_in_hand`] alone.
pub(crate) struct Held<'a, D: CollectiveDriver> {
    calls: &'a Calls<D>,
    call: &'a Call<D>,
    reads: &'a [Span<'a>],
    writes: &'a [SpanMut<'a>],
}

impl<D: CollectiveDriver> Steps for Held<'_, D> {
    fn step(&mut self, first: bool) -> Result<Step> {
        let Self { calls, call, reads, writes } = *self;
        if !first {
            return calls.advance(0);
        }
        let mut touches = SmallVec::<[Touch; 2]>::new();
        reads.iter().for_each(|it| touches.push(it.touch()));
        writes.iter().for_each(|it| touches.push(it.touch()));
        // SAFETY: who took the stream in hand borrows the spans, and excludes what conflicts with them,
        // until the call was waited for, which is what the driver's contract asks; the planner checked
        // alignment, sizes and overlap; the touches are those of all spans.
        unsafe { calls.begin_in_hand(call, &touches) }
    }
}

impl<D: CollectiveDriver> Drop for Member<D> {
    fn drop(&mut self) {
        self.calls.leaving();
    }
}

/// Refuses a device on which the driver doesn't run collectives.
///
/// # Errors
/// `Unsupported`.
pub(crate) fn check_supported<D: CollectiveDriver>(device: &Device) -> Result<()> {
    if D::supports(device) {
        return Ok(());
    }
    let reason = format!("{} does not run collectives there", D::name());
    Err(Error::new(ErrorKind::Unsupported, "join a group", reason).on(device))
}

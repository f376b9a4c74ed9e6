//! One member's side of the group: it arrives, and then does what can be done without waiting.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use aether_collective::{GroupConfig, OpName, Signature};
use aether_core::{DType, Device, Error, ErrorKind, Result, progress};

use crate::call::lay_out;
use crate::lane::{End, Found, Half};
use crate::registry::{self, HostId};
use crate::resource::HostRange;
use crate::round::Claim;
use crate::shared::{Current, Entry, Pending, Post, ROUNDS, Shared, lock};
use crate::trouble;

/// One member of a host group.
pub struct Communicator {
    id: HostId,
    rank: usize,
    shared: Arc<Shared>,
}

/// How many looks at a call that waits pass between looks at the clock.
const LOOKS: u32 = 16;
/// Work of so many slices is shared with the workers.
const SHARED_SLICES: u64 = 4;

impl Communicator {
    pub(crate) fn join(
        id: HostId,
        ranks: usize,
        rank: usize,
        device: &Device,
        config: &GroupConfig,
    ) -> Result<Self> {
        let shared = registry::enter(id, ranks, config)?;
        let Some(seat) = shared.seat(rank) else {
            let reason = format!("rank {rank} is out of range: there are {ranks} ranks");
            return Err(Error::new(ErrorKind::RankOutOfRange, "join a group", reason)
                .on(device)
                .about_ranks([rank]));
        };
        if seat.taken.swap(true, Ordering::AcqRel) {
            let reason = format!("rank {rank} has joined already");
            return Err(Error::new(ErrorKind::InvalidArgument, "join a group", reason)
                .on(device)
                .about_ranks([rank]));
        }
        let _ = seat.device.set(device.id());
        Ok(Self { id, rank, shared })
    }

    pub(crate) fn failure(&self) -> Option<Error> {
        self.shared.failure().cloned()
    }

    pub(crate) fn abort(&self, why: &Error) {
        self.shared.fail(why.clone());
    }

    /// This rank's thread unwinds: that is why it will leave.
    pub(crate) fn panicked(&self) {
        if let Some(seat) = self.shared.seat(self.rank) {
            seat.panicked.store(true, Ordering::Release);
        }
    }

    /// Arrives at the next collective.
    ///
    /// # Errors
    /// `GroupBroken`; `RankMismatch` if this rank is the last and the calls differ.
    pub(crate) fn arrive(
        &self,
        signature: Signature,
        src: Option<HostRange>,
        dst: Option<HostRange>,
        counts: &[u64],
    ) -> Result<()> {
        self.shared.check_alive(signature.operation.name())?;
        let Some(seat) = self.shared.seat(self.rank) else { return Ok(()) };
        let call = seat.calls.load(Ordering::Relaxed);
        let mut current = lock(&seat.current);
        *current =
            Current { operation: Some(Pending::Round(call, signature)), ..Current::default() };
        drop(current);
        let slot = self.shared.slot(call);
        slot.round.open(call);
        if let Some(entry) = slot.entries.get(self.rank) {
            // SAFETY: only this rank writes its entry, one call at a time, and nobody reads it before
            // this rank arrives at the round, which is below.
            unsafe { *entry.get() = Entry { signature, src, dst } };
        }
        seat.calls.store(call + 1, Ordering::Release);
        if slot.round.arrive(self.shared.ranks as u64, call / ROUNDS) {
            self.begin(call, counts);
        }
        Ok(())
    }

    /// All ranks have arrived, and this one is the last: compares the calls and lets the work begin.
    fn begin(&self, call: u64, counts: &[u64]) {
        let slot = self.shared.slot(call);
        let entries: smallvec::SmallVec<[Entry; 8]> = slot
            .entries
            .iter()
            // SAFETY: every rank has written its entry before it arrived, all have arrived, and none
            // writes again before this call has ended.
            .map(|it| unsafe { *it.get() })
            .collect();
        if let Err(error) = trouble::compare(&self.shared, call, &entries) {
            self.shared.fail(error);
            slot.round.close(call);
            return;
        }
        // SAFETY: the slices of the slot's call before have ended, and those of this one can't be
        // taken before `start`: nobody else reads or writes the layout.
        let layout = unsafe { &mut *slot.layout.get() };
        lay_out(layout, &entries, counts);
        let slices = layout.cut();
        // False if a deadline closed the round meanwhile; everybody will see that.
        slot.round.start(call, slices);
        if slices >= SHARED_SLICES {
            progress::summon();
        }
        progress::announce();
    }

    /// Opens a batch of messages.
    ///
    /// # Errors
    /// `GroupBroken`; `InvalidArgument` if one is open.
    pub(crate) fn batch_begin(&self) -> Result<()> {
        self.shared.check_alive("begin a batch")?;
        let Some(seat) = self.shared.seat(self.rank) else { return Ok(()) };
        let mut current = lock(&seat.current);
        if current.batch.is_some() {
            let reason = "a batch is open already";
            return Err(Error::new(ErrorKind::InvalidArgument, "begin a batch", reason).on("host"));
        }
        current.batch = Some(smallvec::SmallVec::new());
        Ok(())
    }

    /// Ends the batch, and posts its messages.
    ///
    /// # Errors
    /// `InvalidArgument` if none is open.
    pub(crate) fn batch_end(&self) -> Result<()> {
        let Some(seat) = self.shared.seat(self.rank) else { return Ok(()) };
        let mut current = lock(&seat.current);
        let Some(mut posts) = current.batch.take() else {
            let reason = "no batch is open";
            return Err(Error::new(ErrorKind::InvalidArgument, "end a batch", reason).on("host"));
        };
        for post in &mut posts {
            post.number = lock(&post.lane).post(post.end, post.half);
        }
        *current = Current { operation: Some(Pending::Messages(posts)), ..Current::default() };
        drop(current);
        progress::announce();
        Ok(())
    }

    /// Adds a message to the open batch, or makes it one of its own.
    ///
    /// # Errors
    /// `GroupBroken`, `RankOutOfRange`.
    pub(crate) fn message(
        &self,
        end: End,
        memory: HostRange,
        dtype: DType,
        count: u64,
        peer: usize,
    ) -> Result<()> {
        let name = if end == End::Send { "send" } else { "recv" };
        self.shared.check_alive(name)?;
        if peer >= self.shared.ranks {
            let reason =
                format!("peer {peer} is out of range: there are {} ranks", self.shared.ranks);
            return Err(Error::new(ErrorKind::RankOutOfRange, name, reason).about_ranks([peer]));
        }
        let lane = match end {
            End::Send => self.shared.lane(self.rank, peer),
            End::Recv => self.shared.lane(peer, self.rank),
        };
        let post = Post { lane, end, peer, half: Half { memory, dtype, count }, number: 0 };
        let Some(seat) = self.shared.seat(self.rank) else { return Ok(()) };
        let mut current = lock(&seat.current);
        if let Some(batch) = &mut current.batch {
            batch.push(post);
            return Ok(());
        }
        drop(current);
        self.batch_begin()?;
        if let Some(batch) = &mut lock(&seat.current).batch {
            batch.push(post);
        }
        self.batch_end()
    }

    /// Does what can be done for the current operation, and says whether it has ended.
    ///
    /// # Errors
    /// The operation failed, and nobody is inside its memory any more.
    pub(crate) fn poll(&self) -> Result<bool> {
        let Some(seat) = self.shared.seat(self.rank) else { return Ok(true) };
        let mut current = lock(&seat.current);
        let (over, waits) = match &current.operation {
            None => return Ok(true),
            &Some(Pending::Round(call, _)) => {
                let mut since = current.since;
                drop(current);
                let found = self.poll_round(call, &mut since);
                current = lock(&seat.current);
                current.since = since;
                found?
            }
            Some(Pending::Messages(posts)) => {
                let posts = posts.clone();
                drop(current);
                let found = self.poll_messages(&posts);
                current = lock(&seat.current);
                found?
            }
        };
        if over {
            current.operation = None;
            return Ok(true);
        }
        if waits {
            self.look_for_trouble(current);
        }
        Ok(false)
    }

    /// Whether the collective is over, and if not, whether it waits for others.
    fn poll_round(&self, call: u64, since: &mut Option<Instant>) -> Result<(bool, bool)> {
        let slot = self.shared.slot(call);
        loop {
            if self.shared.failure().is_some() {
                slot.round.close(call);
            }
            match slot.round.claim(call) {
                Claim::Slice(slice) => {
                    // SAFETY: this thread took a slice, so the layout was written before and is not
                    // written again until the slice has ended.
                    let layout = unsafe { &*slot.layout.get() };
                    // SAFETY: the ranks' calls gave memory under the driver's contract until the
                    // operation has ended, which no rank is told before this slice has; the signatures
                    // agree, so every range is as long as the layout says.
                    unsafe { layout.run(slice) };
                    if slot.round.end_slice() || self.shared.failure().is_some() {
                        progress::announce();
                    } else if self.is_late(since) {
                        trouble::report_late(&self.shared, self.rank, "a collective", &[]);
                    }
                }
                Claim::Over => return Ok((true, false)),
                Claim::AllTaken => return Ok((false, false)),
                Claim::Waiting => return Ok((false, true)),
                Claim::Closing => return Ok((false, false)),
                Claim::Closed => return Err(self.why()),
            }
        }
    }

    /// As [`Communicator::poll_round`], for messages.
    fn poll_messages(&self, posts: &[Post]) -> Result<(bool, bool)> {
        let mut over = true;
        for post in posts {
            loop {
                let mut lane = lock(&post.lane);
                if self.shared.failure().is_some() {
                    // No piece is taken any more; those that were end first.
                    over = false;
                    break;
                }
                match lane.look(post.number) {
                    Found::Over => break,
                    Found::Waiting => {
                        over = false;
                        break;
                    }
                    Found::Piece(piece) => {
                        drop(lane);
                        // SAFETY: both ends were posted under the driver's contract, of one size, and
                        // neither is told that the message has ended before `end_piece`; sender and
                        // receiver ranges don't overlap: they are disjoint buffers of two ranks, or
                        // checked by the planner within one rank.
                        unsafe { std::ptr::copy_nonoverlapping(piece.from, piece.to, piece.bytes) };
                        if lock(&post.lane).end_piece(piece.bytes)
                            || self.shared.failure().is_some()
                        {
                            progress::announce();
                        }
                    }
                    Found::Disagree(send, recv) => {
                        drop(lane);
                        let (from, to) = match post.end {
                            End::Send => (self.rank, post.peer),
                            End::Recv => (post.peer, self.rank),
                        };
                        self.shared.fail(trouble::disagree(&self.shared, from, to, send, recv));
                    }
                }
            }
        }
        if self.shared.failure().is_some() && !over {
            let inside = posts.iter().any(|post| lock(&post.lane).is_busy());
            return if inside { Ok((false, false)) } else { Err(self.why()) };
        }
        Ok((over, true))
    }

    /// Looks, now and then, whether what the operation waits for will never come.
    fn look_for_trouble(&self, mut current: std::sync::MutexGuard<'_, Current>) {
        let gone = self.shared.gone.load(Ordering::Acquire) > 0;
        let looks = current.looks;
        current.looks = looks.wrapping_add(1);
        if !gone && !looks.is_multiple_of(LOOKS) {
            return;
        }
        let late = self.is_late(&mut current.since);
        if !late && !gone {
            return;
        }
        let Some(operation) = &current.operation else { return };
        let (absent, call) = (operation.absent(&self.shared), operation.describe());
        // Others' operations are looked at next, and each lock is held alone.
        drop(current);
        if gone {
            trouble::report_gone(&self.shared, &call, &absent);
        }
        if late && self.shared.failure().is_none() {
            trouble::report_late(&self.shared, self.rank, &call, &absent);
        }
    }

    /// Whether the deadline has passed since the call was first seen unfinished.
    fn is_late(&self, since: &mut Option<Instant>) -> bool {
        let now = Instant::now();
        let since = *since.get_or_insert(now);
        now.saturating_duration_since(since) >= self.shared.config.deadline
    }

    fn why(&self) -> Error {
        let unknown = || Error::new(ErrorKind::GroupBroken, "a collective", "the group failed");
        self.failure().unwrap_or_else(unknown)
    }

    /// The signature of a call without elements.
    pub(crate) fn barrier_signature() -> Signature {
        Signature::new(OpName::Barrier, DType::U8, 0)
    }
}

impl Drop for Communicator {
    fn drop(&mut self) {
        if let Some(seat) = self.shared.seat(self.rank) {
            seat.gone.store(true, Ordering::Release);
        }
        self.shared.gone.fetch_add(1, Ordering::AcqRel);
        registry::leave(self.id);
        // Whoever waits for this rank can stop.
        progress::announce();
    }
}

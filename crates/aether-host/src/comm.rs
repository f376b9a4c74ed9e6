//! One member's side of the group: it arrives, and then does what can be done without waiting.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use aether_collective::{GroupConfig, OpName, Signature};
use aether_core::{DType, Device, Error, ErrorKind, Result, progress};

use crate::call::lay_out;
use crate::registry::{self, HostId};
use crate::resource::HostRange;
use crate::round::Claim;
use crate::shared::{Current, Entry, Party, Pending, ROUNDS, Seat, Shared, lock};
use crate::small::{Turn, letter_size};
use crate::trouble;

/// One member of a host group.
pub(crate) struct Communicator {
    id: HostId,
    pub(crate) rank: usize,
    pub(crate) shared: Arc<Shared>,
    pub(crate) turn: Box<Turn>,
}

impl fmt::Debug for Communicator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Communicator({} of {})", self.shared.name_of(self.rank), self.shared.ranks)
    }
}

/// How many looks at a call that waits pass between looks at the clock.
const LOOKS: u32 = 16;

/// What a look at the current operation came to.
pub(crate) enum Look {
    /// It has ended.
    Over,
    /// It is under way; others are inside its memory, or there is more to do.
    Busy,
    /// It waits for other ranks.
    Waits,
    /// It is under way, and its deadline has passed.
    Late,
}

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
        let party = Party { device: device.id(), thread: std::thread::current().id() };
        let _ = seat.party.set(party);
        Ok(Self { id, rank, shared, turn: Box::new(Turn::new()) })
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
    /// `GroupBroken`; `Unsupported` within a batch.
    pub(crate) fn arrive(
        &self,
        signature: Signature,
        src: Option<HostRange>,
        dst: Option<HostRange>,
        counts: &[u64],
    ) -> Result<()> {
        let name = signature.operation.name();
        self.shared.check_alive(name)?;
        let Some(seat) = self.shared.seat(self.rank) else { return Ok(()) };
        if seat.collects.load(Ordering::Acquire) {
            let reason = "a batch is of messages alone";
            return Err(Error::new(ErrorKind::Unsupported, name, reason).on("host"));
        }
        let call = seat.calls.load(Ordering::Relaxed);
        let checked = self.shared.config.checked;
        let letter = letter_size(&signature, self.shared.ranks).filter(|_| !checked);
        // Nothing is given by ranks that are not the root, and with large calls, which have a round.
        let given = src.zip(letter).filter(|(src, _)| src.bytes > 0);
        let nowhere = std::ptr::NonNull::<u8>::dangling().as_ptr().cast_const();
        let (from, bytes) =
            given.map_or((nowhere, 0), |(src, bytes)| (src.address.as_ptr().cast_const(), bytes));
        // SAFETY: a rank has one communicator, whose calls are made one after the other; that the last one
        // failed would have shown in `check_alive`. The source is as long as the driver's contract says.
        unsafe { seat.mail.post(call, signature, from, bytes) };
        seat.calls.store(call + 1, Ordering::Release);
        if letter.is_some() {
            // SAFETY: as above, for the destination.
            unsafe { self.begin_small(call, dst) };
            return Ok(());
        }
        if signature.counts != 0 {
            let mut own = lock(&seat.counts);
            own.clear();
            own.extend_from_slice(counts);
        }
        let round = seat.rounds.load(Ordering::Relaxed);
        seat.rounds.store(round + 1, Ordering::Relaxed);
        let operation = Pending::Collective { call, round: Some(round), signature };
        *lock(&seat.current) = Current::of(operation);
        let slot = self.shared.slot(round);
        slot.round.open(round);
        if let Some(entry) = slot.entries.get(self.rank) {
            // SAFETY: only this rank writes its entry, one call at a time. Nobody reads it for this
            // call before this rank arrives at the round, which is below; and nobody reads it any
            // more for the slot's call before: see `begin`.
            unsafe { *entry.get() = Entry { signature, src, dst } };
        }
        if slot.round.arrive(self.shared.ranks as u64, round / ROUNDS) {
            self.begin(call, round, counts);
        } else {
            // A rank whose call is small waits for this one's letter, to find that they differ.
            progress::announce();
        }
        Ok(())
    }

    /// All ranks have arrived, and this one is the last: compares the calls and lets the work begin.
    fn begin(&self, call: u64, round: u64, counts: &[u64]) {
        let slot = self.shared.slot(round);
        // SAFETY: every rank has written its entry before it arrived, and all have arrived. None
        // writes again while this function reads, though a deadline may end the others' calls
        // meanwhile: a rank writes its entry for a later call only when its call here has ended.
        // That ends well only after `start`, below, and badly only when the round is found closed.
        // Whoever closes one has seen, or set, the group's failure before, and "closed" is read by
        // acquire: so the `arrive` of that rank's next call finds the failure in `check_alive`,
        // before it writes anything.
        let entries = unsafe { slot.all_entries() };
        let compared = trouble::compare(&self.shared, call, entries);
        if let Err(error) =
            compared.and_then(|()| trouble::compare_counts(&self.shared, call, entries))
        {
            self.shared.fail(error);
            slot.round.close(round);
            return;
        }
        // SAFETY: the slices of the slot's call before have ended, and those of this one can't be
        // taken before `start`: nobody else reads or writes the layout.
        let layout = unsafe { &mut *slot.layout.get() };
        lay_out(layout, entries, counts);
        let slices = layout.cut();
        // False if a deadline closed the round meanwhile; everybody will see that.
        slot.round.start(round, slices);
        if slices >= self.shared.worth_workers() {
            progress::summon();
        }
        // A single slice is done by this thread next, and its end is news; its beginning isn't.
        if slices != 1 {
            progress::announce();
        }
    }

    /// Does what can be done for the current operation, and says whether it has ended. Just after the
    /// call was made that is little, because the caller wants to go on.
    ///
    /// # Errors
    /// The operation failed, and nobody is inside its memory any more.
    pub(crate) fn poll(&self) -> Result<bool> {
        let Some(seat) = self.shared.seat(self.rank) else { return Ok(true) };
        if let Some(call) = self.turn.pending() {
            return self.poll_small(seat, call);
        }
        loop {
            let mut current = lock(&seat.current);
            let Some(operation) = current.operation else { return Ok(true) };
            let fresh = std::mem::replace(&mut current.fresh, false);
            let mut since = current.since;
            // The lock is for a glance: others look here for circles.
            drop(current);
            let look = match operation {
                Pending::Collective { round: Some(round), .. } => {
                    self.poll_round(round, fresh, &mut since)
                }
                // Small, and just ended by another thread.
                Pending::Collective { round: None, .. } => return Ok(false),
                Pending::Messages => self.poll_messages(seat, fresh, &mut since),
            };
            let mut current = lock(&seat.current);
            current.since = since;
            match look {
                Ok(Look::Busy) => return Ok(false),
                Ok(Look::Late) => {
                    drop(current);
                    let call = self.shared.describe(self.rank, operation);
                    trouble::report_late(&self.shared, self.rank, &call, &[]);
                }
                Ok(Look::Waits) => {
                    drop(current);
                    if self.is_time_to_look(seat) {
                        self.look_for_trouble(seat, operation);
                    }
                    if self.shared.failure().is_none() {
                        return Ok(false);
                    }
                }
                Ok(Look::Over) => {
                    current.operation = None;
                    return Ok(true);
                }
                Err(error) => {
                    current.operation = None;
                    return Err(error);
                }
            }
        }
    }

    fn poll_round(&self, round: u64, fresh: bool, since: &mut Option<Instant>) -> Result<Look> {
        let slot = self.shared.slot(round);
        loop {
            if self.shared.failure().is_some() {
                slot.round.close(round);
            }
            match slot.round.claim(round) {
                Claim::Slice(_) => {
                    // SAFETY: this thread took a slice, so the layout was written before and is not
                    // written again until the slice has ended.
                    let layout = unsafe { &*slot.layout.get() };
                    // SAFETY: the ranks' calls gave memory under the driver's contract until the
                    // operation has ended, which no rank is told before this slice has; the signatures
                    // agree, so every range is as long as the layout says.
                    unsafe { layout.run(self.rank) };
                    if slot.round.end_slice() || self.shared.failure().is_some() {
                        progress::announce();
                    } else if self.is_late(since) {
                        return Ok(Look::Late);
                    } else if fresh {
                        // There is more than one slice: that is for whoever waits, and the workers.
                        return Ok(Look::Busy);
                    }
                }
                Claim::Over => return Ok(Look::Over),
                Claim::AllTaken | Claim::Closing => return Ok(Look::Busy),
                Claim::Waiting => return Ok(Look::Waits),
                Claim::Closed => return Err(self.why()),
            }
        }
    }

    /// Whether to look for trouble: now and then, and always when somebody is gone.
    fn is_time_to_look(&self, seat: &Seat) -> bool {
        let mut current = lock(&seat.current);
        let looks = current.looks;
        current.looks = looks.wrapping_add(1);
        looks.is_multiple_of(LOOKS) || self.shared.gone.load(Ordering::Acquire) > 0
    }

    /// Looks whether what the operation waits for will never come.
    pub(crate) fn look_for_trouble(&self, seat: &Seat, operation: Pending) {
        let gone = self.shared.gone.load(Ordering::Acquire) > 0;
        let mut current = lock(&seat.current);
        let late = self.is_late(&mut current.since);
        drop(current);
        if gone {
            trouble::report_gone(&self.shared, self.rank, operation);
        }
        if late && self.shared.failure().is_none() {
            let absent = self.shared.absent(self.rank, operation);
            let call = self.shared.describe(self.rank, operation);
            trouble::report_late(&self.shared, self.rank, &call, &absent);
        }
    }

    /// Whether the deadline has passed since the call was first seen unfinished.
    pub(crate) fn is_late(&self, since: &mut Option<Instant>) -> bool {
        let now = Instant::now();
        let since = *since.get_or_insert(now);
        now.saturating_duration_since(since) >= self.shared.config.deadline
    }

    pub(crate) fn why(&self) -> Error {
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

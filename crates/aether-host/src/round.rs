//! The life of one collective call: ranks arrive, any thread takes slices, and somebody is last.
//!
//! All of it is four counters. A round serves call after call; each call has a number, and the word
//! `claim` carries that number, so that a thread that comes late for an earlier call can't take a
//! slice of this one. Closing a round, because a deadline passed or the group broke, stops the taking
//! of slices; the call is over when those that were taken have ended. Checked by loom in
//! `tests/loom.rs`.

use crate::sync::{AtomicU64, Ordering};

/// The counters of one call at a time.
#[derive(Debug)]
pub(crate) struct Round {
    /// The call's number above, and below how many slices were taken, or that the round is open (not
    /// all ranks have arrived), with a flag when it is closed.
    claim: AtomicU64,
    /// How many ranks have arrived, over all calls of this round.
    arrived: AtomicU64,
    /// How many slices the call has.
    total: AtomicU64,
    /// How many slices have ended.
    ended: AtomicU64,
}

/// What a thread that looks at a call finds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Claim {
    /// This slice is now the caller's: do it, then say so by [`Round::end_slice`].
    Slice(u64),
    /// All slices are taken, and some have not ended.
    AllTaken,
    /// The call has ended well.
    Over,
    /// Not all ranks have arrived.
    Waiting,
    /// The call failed, and some slices that were taken before have not ended.
    Closing,
    /// The call failed, and nobody is inside the memory any more.
    Closed,
}

const LOW: u64 = 0xFFFF_FFFF;
const OPEN: u64 = 0x7FFF_FFFF;
const CLOSED: u64 = 0x8000_0000;

/// The most slices that a call can have.
pub(crate) const MOST_SLICES: u64 = OPEN - 1;

impl Round {
    /// A round whose first call has number `first`.
    pub(crate) fn new(first: u64) -> Self {
        Self {
            claim: AtomicU64::new(word(first, OPEN)),
            arrived: AtomicU64::new(0),
            total: AtomicU64::new(0),
            ended: AtomicU64::new(0),
        }
    }

    /// Makes the round ready for call `call`, which every rank does before it arrives. The call before
    /// has ended on every rank then, because each makes its calls in order.
    pub(crate) fn open(&self, call: u64) {
        let now = self.claim.load(Ordering::Acquire);
        if now >> 32 != call & LOW {
            // Who loses the exchange finds the round opened, or already closed, by another.
            let to = word(call, OPEN);
            let _ = self.claim.compare_exchange(now, to, Ordering::AcqRel, Ordering::Acquire);
        }
    }

    /// One rank has arrived; what it wrote before is seen by the last. True if it is the last of
    /// `ranks`, for the `use_`th call of this round.
    pub(crate) fn arrive(&self, ranks: u64, use_: u64) -> bool {
        let before = self.arrived.fetch_add(1, Ordering::AcqRel);
        before + 1 == ranks * (use_ + 1)
    }

    /// Lets slices be taken: for the last that arrived, when it has written what the slices are. False
    /// if the round was closed meanwhile.
    pub(crate) fn start(&self, call: u64, slices: u64) -> bool {
        self.total.store(slices, Ordering::Relaxed);
        self.ended.store(0, Ordering::Relaxed);
        let (from, to) = (word(call, OPEN), word(call, 0));
        // Release: whoever takes a slice sees the total and what the slices are.
        self.claim.compare_exchange(from, to, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }

    /// Takes a slice, or says why there is none.
    pub(crate) fn claim(&self, call: u64) -> Claim {
        let mut now = self.claim.load(Ordering::Acquire);
        loop {
            if now >> 32 != call & LOW {
                // The round has gone on to a later call, so this one ended well.
                return Claim::Over;
            }
            let low = now & LOW;
            if low & CLOSED != 0 {
                let taken = low & !CLOSED;
                let over = taken == 0 || self.ended.load(Ordering::Acquire) >= taken;
                return if over { Claim::Closed } else { Claim::Closing };
            }
            if low == OPEN {
                return Claim::Waiting;
            }
            if low >= self.total.load(Ordering::Relaxed) {
                let over = self.ended.load(Ordering::Acquire) >= low;
                return if over { Claim::Over } else { Claim::AllTaken };
            }
            match self.claim.compare_exchange_weak(
                now,
                now + 1,
                Ordering::AcqRel,
                Ordering::Acquire,
            ) {
                Ok(_) => return Claim::Slice(low),
                Err(other) => now = other,
            }
        }
    }

    /// A slice that was taken has ended; what it wrote is seen by whoever finds the call over. True if
    /// it was the last.
    pub(crate) fn end_slice(&self) -> bool {
        let ended = self.ended.fetch_add(1, Ordering::AcqRel) + 1;
        ended == self.total.load(Ordering::Relaxed)
    }

    /// No slice of the call is taken any more, and it will not end well unless it has.
    pub(crate) fn close(&self, call: u64) {
        let mut now = self.claim.load(Ordering::Acquire);
        while now >> 32 == call & LOW && now & CLOSED == 0 {
            let low = now & LOW;
            let taken = if low == OPEN { 0 } else { low };
            if low != OPEN && low >= self.total.load(Ordering::Relaxed) {
                // Every slice is taken: the call ends by itself.
                return;
            }
            let to = word(call, CLOSED | taken);
            match self.claim.compare_exchange_weak(now, to, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => return,
                Err(other) => now = other,
            }
        }
    }
}

fn word(call: u64, low: u64) -> u64 {
    (call & LOW) << 32 | low
}

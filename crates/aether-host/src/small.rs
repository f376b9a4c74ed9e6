//! Small collectives: every rank posts a letter, waits for those of all others, and works out its own
//! result from them. Nobody touches another rank's memory, and nobody waits for a second time.

use std::cell::UnsafeCell;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use aether_collective::{OpName, Signature};
use aether_core::{Result, Stores, progress};
use smallvec::SmallVec;

use crate::comm::Communicator;
use crate::kernels::Kernel;
use crate::mail::{Letter, ROOM};
use crate::resource::HostRange;
use crate::shared::{Current, Entry, Pending, Seat, lock};
use crate::trouble;

/// How many bytes the letters of all ranks have together at most: every rank reads all of them.
const ALL: usize = 4 * ROOM;
/// How many looks at a call pass between looks for trouble.
const LOOKS: u32 = 16;

/// The small call of one rank that has not ended.
#[repr(align(128))]
pub(crate) struct Turn {
    /// The call's number above [`KIND`], and below whether there is one and somebody has it in hands.
    word: AtomicU64,
    looks: AtomicU32,
    /// Where the result goes. Written when the call is made, read by who has it in hands.
    dst: UnsafeCell<Option<HostRange>>,
}

/// No small call is pending.
const NONE: u64 = 0;
/// The call waits for letters, or for somebody to look.
const WAITS: u64 = 1;
/// One thread has the call in hands.
const TAKEN: u64 = 2;
const KIND: u64 = 3;

// SAFETY: `dst` is written while no call is pending, by the one thread that makes the next, and then
// `word` is stored by release; it is read by the one thread that changed `word` from waiting to taken, by
// acquire, until it changes it again. The call's memory is touched under the driver's contract.
unsafe impl Sync for Turn {}
// SAFETY: as for `Sync`: nothing in it belongs to a thread.
unsafe impl Send for Turn {}

impl Turn {
    pub(crate) fn new() -> Self {
        Self { word: AtomicU64::new(NONE), looks: AtomicU32::new(0), dst: UnsafeCell::new(None) }
    }

    /// The number of the small call that is pending, if one is.
    pub(crate) fn pending(&self) -> Option<u64> {
        let word = self.word.load(Ordering::Acquire);
        (word & KIND != NONE).then_some(word >> 2)
    }

    /// Takes the call in hands; false if somebody else has it, or has ended it.
    fn take(&self, call: u64) -> bool {
        let (from, to) = (call << 2 | WAITS, call << 2 | TAKEN);
        self.word.compare_exchange(from, to, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }

    fn set(&self, call: u64, kind: u64) {
        self.word.store(call << 2 | kind, Ordering::Release);
    }
}

/// How many bytes each rank that gives any gives to the call, if it is small. The same on all ranks that
/// agree on the call.
pub(crate) fn letter_size(signature: &Signature, ranks: usize) -> Option<usize> {
    let chunks = match signature.operation {
        OpName::AllGather | OpName::AllReduce | OpName::Broadcast | OpName::Gather => 1,
        OpName::AllToAll | OpName::ReduceScatter | OpName::Scatter => ranks,
        OpName::Reduce => 1,
        OpName::Barrier => 0,
        _ => return None,
    };
    let each = usize::try_from(signature.count).ok()?.saturating_mul(signature.dtype.size());
    let bytes = each.saturating_mul(chunks);
    (bytes <= ROOM && bytes.saturating_mul(ranks) <= ALL).then_some(bytes)
}

impl Communicator {
    /// Makes a small call, whose letter was posted.
    ///
    /// # Safety
    /// No call of the communicator is pending, and none is made meanwhile. The memory is given under the
    /// driver's contract.
    pub(crate) unsafe fn begin_small(&self, call: u64, dst: Option<HostRange>) {
        // SAFETY: no call is pending, so nobody reads it.
        unsafe { *self.turn.dst.get() = dst };
        self.turn.looks.store(0, Ordering::Relaxed);
        self.turn.set(call, WAITS);
        // Others may sleep until this rank has come.
        progress::announce();
    }

    /// Does what can be done for a small call, and says whether it has ended.
    ///
    /// # Errors
    /// The call failed.
    pub(crate) fn poll_small(&self, seat: &Seat, call: u64) -> Result<bool> {
        let all = self.shared.seats.iter().all(|it| it.mail.has(call));
        if !all {
            let looks = self.turn.looks.load(Ordering::Relaxed).wrapping_add(1);
            self.turn.looks.store(looks, Ordering::Relaxed);
            let gone = self.shared.gone.load(Ordering::Acquire) > 0;
            if !gone && !looks.is_multiple_of(LOOKS) && self.shared.failure().is_none() {
                return Ok(false);
            }
        }
        if !self.turn.take(call) {
            return Ok(false);
        }
        let outcome = match all {
            // SAFETY: this thread has the call in hands, and all letters are there.
            true => unsafe { self.exchange(call) },
            false => {
                // SAFETY: this rank's letter was posted when the call was made, which has not ended.
                let signature = unsafe { seat.mail.letter(call) }.signature;
                self.look_at_small(seat, Pending::Collective { call, round: None, signature });
                if self.shared.failure().is_none() {
                    self.turn.set(call, WAITS);
                    return Ok(false);
                }
                Err(self.why())
            }
        };
        if self.turn.looks.load(Ordering::Relaxed) >= LOOKS {
            // Others may have seen it wait.
            lock(&seat.current).operation = None;
        }
        self.turn.set(call, NONE);
        outcome.map(|()| true)
    }

    /// Shows others that the call waits, and looks whether it will for ever.
    fn look_at_small(&self, seat: &Seat, operation: Pending) {
        let mut current = lock(&seat.current);
        if current.operation.is_none() {
            *current = Current::of(operation);
            self.turn.looks.fetch_max(LOOKS, Ordering::Relaxed);
        }
        drop(current);
        self.look_for_trouble(seat, operation);
    }

    /// Works out this rank's result from all letters.
    ///
    /// # Errors
    /// `RankMismatch`; the group is then broken.
    ///
    /// # Safety
    /// The calling thread has the call in hands, and all letters are there.
    unsafe fn exchange(&self, call: u64) -> Result<()> {
        let letters = self.shared.seats.iter().map(|it| {
            // SAFETY: the letter is there, and this rank's call has not ended.
            unsafe { it.mail.letter(call) }
        });
        let letters: SmallVec<[&Letter; 16]> = letters.collect();
        let Some(own) = letters.get(self.rank) else { return Ok(()) };
        let signature = own.signature;
        if letters.iter().any(|it| it.signature != signature) {
            let entry = |it: &&Letter| Entry { signature: it.signature, src: None, dst: None };
            let entries: Vec<Entry> = letters.iter().map(entry).collect();
            if let Err(error) = trouble::compare(&self.shared, call, &entries) {
                self.shared.fail(error);
            }
            return Err(self.why());
        }
        // SAFETY: this thread has the call in hands.
        let Some(dst) = (unsafe { *self.turn.dst.get() }) else { return Ok(()) };
        // SAFETY: the signatures agree, so each letter has the bytes that the operation takes from it,
        // and the destination is as long as the driver's contract says, and nobody else's.
        unsafe { self.receive(&letters, signature, dst) };
        Ok(())
    }

    /// Writes the result.
    ///
    /// # Safety
    /// All letters have the signature and the bytes that belong to it; the destination is that of this
    /// rank's call, under the driver's contract.
    unsafe fn receive(&self, letters: &[&Letter], signature: Signature, dst: HostRange) {
        let count = signature.count as usize;
        let bytes = count * signature.dtype.size();
        let (rank, ranks) = (self.rank, letters.len());
        let dst = dst.address.as_ptr();
        let copy = |from: usize, at: usize, to: usize| {
            let Some(letter) = letters.get(from) else { return };
            let (from, to) = (letter.bytes().wrapping_add(at), dst.wrapping_add(to));
            // SAFETY: the caller vouches for the letter's bytes and for the destination, which is not in a
            // letter: both hold a chunk at each of the places that are named below.
            unsafe { to.copy_from_nonoverlapping(from, bytes) };
        };
        let chunk = match signature.operation {
            OpName::AllReduce | OpName::Reduce => 0,
            OpName::ReduceScatter => rank * bytes,
            OpName::Broadcast => return copy(signature.root.unwrap_or(0), 0, 0),
            OpName::Scatter => return copy(signature.root.unwrap_or(0), rank * bytes, 0),
            OpName::AllGather | OpName::Gather => {
                return (0..ranks).for_each(|from| copy(from, 0, from * bytes));
            }
            OpName::AllToAll => {
                return (0..ranks).for_each(|from| copy(from, rank * bytes, from * bytes));
            }
            _ => return,
        };
        let Some(kernel) = signature.op.and_then(|op| Kernel::select(signature.dtype, op)) else {
            return;
        };
        let sources: SmallVec<[*const u8; 16]> =
            letters.iter().map(|it| it.bytes().wrapping_add(chunk)).collect();
        // SAFETY: the caller vouches for the chunk of each letter and for the destination; letters are
        // aligned for every type, and chunks are whole elements; no destination is in a letter.
        unsafe { kernel.reduce(&sources, &[dst], count, ranks, Stores::Ordinary) };
    }
}

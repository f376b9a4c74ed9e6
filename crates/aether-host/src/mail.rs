//! Letters: what a rank gives to a small collective, where the other ranks find it.
//!
//! A letter and the word that says which call it belongs to lie side by side, so that a small one
//! travels in one cache line. Each rank has two places for letters, for even and for odd calls: no rank
//! arrives at a call before its last one ended, which needs everybody to have arrived at that, so when it
//! writes a letter, everybody has done with the one that lay there before.

use std::cell::UnsafeCell;
use std::mem::MaybeUninit;

use aether_collective::Signature;

use crate::sync::{AtomicU64, Ordering};

/// How many bytes a letter carries at most.
pub(crate) const ROOM: usize = 2048;

/// One rank's places for letters.
pub(crate) struct Mailbox {
    places: [Place; 2],
}

/// Apart from others by two cache lines, because processors fetch lines in pairs.
#[repr(C, align(128))]
struct Place {
    /// The number of the call after the one that the letter is for, or 0.
    posted: AtomicU64,
    letter: UnsafeCell<Letter>,
}

/// What a rank says of its call, and the bytes that it gives.
#[repr(C)]
pub(crate) struct Letter {
    pub(crate) signature: Signature,
    bytes: Bytes,
}

/// Aligned for every element type.
#[repr(align(8))]
struct Bytes([MaybeUninit<u8>; ROOM]);

// SAFETY: a letter is written by its rank alone, before `posted` is stored by release, and read only
// by those who loaded that call's number from it by acquire and have not ended that call; the rank
// writes there again only when all have, as the module says.
unsafe impl Sync for Mailbox {}

impl Mailbox {
    /// Without a letter: the signature is any.
    pub(crate) fn new(signature: Signature) -> Self {
        let place = || Place {
            posted: AtomicU64::new(0),
            letter: UnsafeCell::new(Letter {
                signature,
                bytes: Bytes([MaybeUninit::uninit(); ROOM]),
            }),
        };
        Self { places: [place(), place()] }
    }

    /// Writes this rank's letter for the call, with so many bytes, at most [`ROOM`], from this address.
    ///
    /// # Safety
    /// Only the mailbox's rank calls it, one call after the other, and not before its last call has ended
    /// well. The address is valid for reads of so many bytes, and isn't in the letter.
    pub(crate) unsafe fn post(
        &self,
        call: u64,
        signature: Signature,
        from: *const u8,
        bytes: usize,
    ) {
        let place = self.place(call);
        let letter = place.letter.get();
        // SAFETY: nobody else writes the letter, and nobody reads it, until `posted` says so: all have
        // done with the call before it, because this rank's last call has ended, as the caller says.
        let letter = unsafe { &mut *letter };
        letter.signature = signature;
        let to = letter.bytes.0.as_mut_ptr().cast::<u8>();
        // SAFETY: the caller vouches for the source; the letter has `ROOM` bytes.
        unsafe { to.copy_from_nonoverlapping(from, bytes.min(ROOM)) };
        place.posted.store(call + 1, Ordering::Release);
    }

    /// Whether the rank's letter for the call is there.
    pub(crate) fn has(&self, call: u64) -> bool {
        self.place(call).posted.load(Ordering::Acquire) == call + 1
    }

    /// The rank's letter for the call.
    ///
    /// # Safety
    /// [`Mailbox::has`] it, and the rank that reads doesn't end its own call while the letter lives.
    pub(crate) unsafe fn letter(&self, call: u64) -> &Letter {
        // SAFETY: the letter was written before it was posted, and isn't written again while a rank has
        // not ended the call.
        unsafe { &*self.place(call).letter.get() }
    }

    fn place(&self, call: u64) -> &Place {
        let [even, odd] = &self.places;
        if call.is_multiple_of(2) { even } else { odd }
    }
}

impl Letter {
    /// The bytes, of which as many are written as were posted.
    pub(crate) fn bytes(&self) -> *const u8 {
        self.bytes.0.as_ptr().cast()
    }
}

//! What a rank shows of itself: words that it alone writes and all others read.
//!
//! A peer maps them read-only. Its loads are relaxed and followed by a fence, because an atomic access to
//! memory that can't be written is defined for relaxed loads alone. A value that says that other memory
//! may be read is stored by release.

use std::sync::atomic::{AtomicU64, Ordering, fence};

/// One word of shared memory.
#[derive(Debug, Default)]
#[repr(transparent)]
pub(crate) struct Word(AtomicU64);

impl Word {
    /// What it holds; what its owner wrote before is seen.
    pub(crate) fn get(&self) -> u64 {
        let value = self.0.load(Ordering::Relaxed);
        fence(Ordering::Acquire);
        value
    }

    /// Holds this from now on; whoever sees it sees what was written before. For the owner alone: a
    /// peer's mapping may only be read.
    pub(crate) fn set(&self, value: u64) {
        self.0.store(value, Ordering::Release);
    }

    /// As [`Word::get`], without the order.
    pub(crate) fn peek(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// How a rank is: the value of [`Progress::state`].
pub(crate) mod state {
    pub(crate) const ALIVE: u64 = 0;
    /// It left the group.
    pub(crate) const LEFT: u64 = 1;
    /// It left the group because its thread panicked.
    pub(crate) const PANICKED: u64 = 2;
    /// The group has failed for it; [`Header::failure`](super::Header::failure) says why.
    pub(crate) const BROKEN: u64 = 3;
}

/// How far a rank is.
#[derive(Debug, Default)]
#[repr(C, align(64))]
pub(crate) struct Progress {
    pub(crate) state: Word,
    /// Steps whose sources it has staged, over all calls.
    pub(crate) staged: Word,
    /// Steps whose part it has reduced.
    pub(crate) reduced: Word,
    /// Steps of which it needs nothing of anybody any more.
    pub(crate) consumed: Word,
}

/// What a rank asked for in one call.
#[derive(Debug, Default)]
#[repr(C, align(64))]
pub(crate) struct Call {
    /// The number of the call, from 1, when all else is written.
    pub(crate) number: Word,
    /// Operation, element type, reduction and root.
    pub(crate) what: Word,
    pub(crate) count: Word,
    pub(crate) digest: Word,
    /// Where the source is.
    pub(crate) source: Word,
    /// Where the destination is, if others can read it.
    pub(crate) target: Word,
    /// How many counts are listed.
    pub(crate) listed: Word,
    /// The source, if it is no longer than this.
    pub(crate) tiny: Word,
}

/// One end of a message.
#[derive(Debug, Default)]
#[repr(C)]
pub(crate) struct Half {
    /// The number of the message in its lane, from 1, when all else is written.
    pub(crate) number: Word,
    pub(crate) dtype: Word,
    pub(crate) count: Word,
    /// Where the memory of a send is.
    pub(crate) source: Word,
}

/// The messages from one rank to another, as one of the two shows them.
///
/// The messages of a lane go one by one. Two places are enough: a rank shows message n + 2 when n + 1 has
/// ended, which needs the other to show n + 1, and so to be done with n.
#[derive(Debug, Default)]
#[repr(C, align(64))]
pub(crate) struct Lane {
    pub(crate) halves: [Half; 2],
    /// How many bytes were put into the ring, or taken out of it or of the source, over all messages.
    pub(crate) moved: Word,
    /// How many messages were posted, those that are not shown yet too.
    pub(crate) posted: Word,
}

/// Words in which text is kept.
pub(crate) const TEXT: usize = 384;
/// Words of the set of ranks that are waited for.
const RANKS: usize = super::shape::MOST_RANKS / 64;

/// Text in shared memory: its length in bytes, and as many.
#[derive(Debug)]
#[repr(C, align(64))]
pub(crate) struct Text {
    length: Word,
    words: [Word; TEXT],
}

impl Text {
    /// Keeps the bytes, as many as there is room for.
    pub(crate) fn write(&self, bytes: &[u8]) {
        let bytes = bytes.get(..TEXT * 8).unwrap_or(bytes);
        for (word, part) in self.words.iter().zip(bytes.chunks(8)) {
            let mut padded = [0; 8];
            padded.iter_mut().zip(part).for_each(|(to, from)| *to = *from);
            word.set(u64::from_le_bytes(padded));
        }
        self.length.set(bytes.len() as u64);
    }

    /// The bytes that it keeps.
    pub(crate) fn read(&self) -> Vec<u8> {
        let length = (self.length.get() as usize).min(TEXT * 8);
        let words = self.words.iter().take(length.div_ceil(8));
        let mut bytes: Vec<u8> = words.flat_map(|it| it.get().to_le_bytes()).collect();
        bytes.truncate(length);
        bytes
    }
}

/// What a rank waits for, if it has waited for long.
#[derive(Debug)]
#[repr(C, align(64))]
pub(crate) struct Wait {
    /// Odd while it is written; zero before the first.
    version: Word,
    ranks: [Word; RANKS],
    call: Text,
}

impl Wait {
    /// Says that the call, in words, waits for these ranks: for none, if it is over.
    pub(crate) fn write(&self, call: &str, ranks: &[usize]) {
        let version = self.version.peek();
        self.version.set(version + 1);
        fence(Ordering::Release);
        for (at, word) in self.ranks.iter().enumerate() {
            let mine = ranks.iter().filter(|it| **it / 64 == at);
            word.set(mine.fold(0, |set, it| set | 1 << (it % 64)));
        }
        self.call.write(call.as_bytes());
        self.version.set(version + 2);
    }

    /// The call and the ranks that it waits for; nothing if there is none, or it changes just now.
    pub(crate) fn read(&self) -> Option<(String, Vec<usize>)> {
        let version = self.version.get();
        let words = self.ranks.iter().enumerate();
        let ranks: Vec<usize> = words
            .flat_map(|(at, word)| {
                let set = word.get();
                (0..64).filter(move |bit| set >> bit & 1 == 1).map(move |bit| at * 64 + bit)
            })
            .collect();
        let call = self.call.read();
        fence(Ordering::Acquire);
        if version % 2 == 1 || self.version.peek() != version || ranks.is_empty() {
            return None;
        }
        Some((String::from_utf8_lossy(&call).into_owned(), ranks))
    }
}

/// The first part of a rank's segment.
#[derive(Debug)]
#[repr(C, align(64))]
pub(crate) struct Header {
    pub(crate) progress: Progress,
    pub(crate) calls: [Call; 2],
    /// Not zero while a ring of the rank's bell would make it go on sooner.
    pub(crate) asleep: Asleep,
    pub(crate) wait: Wait,
    pub(crate) failure: Text,
}

/// A flag on a line of its own.
#[derive(Debug, Default)]
#[repr(C, align(64))]
pub(crate) struct Asleep(Word);

impl Asleep {
    /// Says that the owner sleeps soon, or that it is awake. What it looks at after that was published
    /// by somebody who then saw the flag, or is seen.
    ///
    /// Who publishes stores its progress, makes a fence, and loads the flag; who sleeps stores the flag,
    /// makes a fence, and looks at the progress. Both fences are sequentially consistent, so one of the
    /// two sees what the other stored.
    pub(crate) fn set(&self, asleep: bool) {
        self.0.set(u64::from(asleep));
        fence(Ordering::SeqCst);
    }

    /// Whether the owner sleeps. After a fence that follows what was published.
    pub(crate) fn is_set(&self) -> bool {
        self.0.peek() != 0
    }
}

//! What the tests of the core share.
#![allow(dead_code, unused_imports, clippy::unwrap_used, clippy::panic, clippy::expect_used)]

mod manual;

pub(crate) use manual::{Manual, Pump};

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use aether_core::{
    Chunk, Completion, DType, Error, ErrorKind, Operation, Result, Step, Stream, enqueue, progress,
};

/// An operation that ends when it is told to, well or not.
#[derive(Debug, Default)]
pub(crate) struct Held {
    open: AtomicBool,
    fails: AtomicBool,
    panics: AtomicBool,
    pub(crate) begun: AtomicUsize,
    pub(crate) refused: AtomicUsize,
}

impl Held {
    pub(crate) fn new() -> Arc<Self> {
        Arc::default()
    }

    /// One that ends as soon as somebody looks.
    pub(crate) fn open_already() -> Arc<Self> {
        let it = Self::new();
        it.open();
        it
    }

    pub(crate) fn open(&self) {
        self.open.store(true, Ordering::SeqCst);
        progress::announce();
    }

    pub(crate) fn fail(&self) {
        self.fails.store(true, Ordering::SeqCst);
        self.open();
    }

    pub(crate) fn panic(&self) {
        self.panics.store(true, Ordering::SeqCst);
        self.open();
    }

    pub(crate) fn has_begun(&self) -> bool {
        self.begun.load(Ordering::SeqCst) > 0
    }
}

// SAFETY: it touches no memory.
unsafe impl Operation for Held {
    fn issue(&self, _: u64) -> Result<Step> {
        self.begun.fetch_add(1, Ordering::SeqCst);
        Ok(Step::Pending)
    }

    fn advance(&self, _: u64) -> Result<Step> {
        if !self.open.load(Ordering::SeqCst) {
            return Ok(Step::Pending);
        }
        if self.panics.load(Ordering::SeqCst) {
            std::panic::resume_unwind(Box::new("told to panic"));
        }
        match self.fails.load(Ordering::SeqCst) {
            true => Err(Error::new(ErrorKind::Backend, "hold", "told to fail")),
            false => Ok(Step::Issued),
        }
    }

    fn refused(&self, _: u64, _: &Error) {
        self.refused.fetch_add(1, Ordering::SeqCst);
    }
}

/// Puts an operation that reads a range of the chunk onto the stream.
pub(crate) fn reads(
    stream: &Stream,
    chunk: &Chunk,
    range: std::ops::Range<usize>,
    operation: &Arc<Held>,
) -> Completion {
    let span = chunk.span_of(range, DType::U8).unwrap();
    // SAFETY: the operation touches nothing.
    unsafe { enqueue(stream, &[span], &[], operation.clone(), 0) }.unwrap()
}

/// Puts an operation that writes a range of the chunk onto the stream.
pub(crate) fn writes(
    stream: &Stream,
    chunk: &mut Chunk,
    range: std::ops::Range<usize>,
    operation: &Arc<Held>,
) -> Completion {
    let span = chunk.span_of_mut(range, DType::U8).unwrap();
    // SAFETY: the operation touches nothing.
    unsafe { enqueue(stream, &[], &[span], operation.clone(), 0) }.unwrap()
}

/// Numbers that tell their position.
pub(crate) fn numbers(count: usize) -> Vec<u32> {
    (0..count as u32).map(|it| it.wrapping_mul(2_654_435_761) ^ 0x5a5a).collect()
}

/// Bytes that tell their position.
pub(crate) fn bytes(count: usize, salt: u8) -> Vec<u8> {
    (0..count).map(|it| (it as u8).wrapping_mul(31) ^ (it >> 8) as u8 ^ salt).collect()
}

/// Looks a few times, so that whatever can happen has happened.
pub(crate) fn look_hard() {
    for _ in 0..if cfg!(miri) { 4 } else { 20 } {
        progress::look();
        std::thread::yield_now();
    }
}

/// Looks until the condition holds, and fails after ten seconds.
#[track_caller]
pub(crate) fn eventually(what: &str, condition: impl Fn() -> bool) {
    let until = Instant::now() + Duration::from_secs(10);
    while !condition() {
        assert!(Instant::now() < until, "not within ten seconds: {what}");
        progress::look();
        std::thread::yield_now();
    }
}

/// Waits until the condition holds, without looking at any stream, and fails after ten seconds.
#[track_caller]
pub(crate) fn soon(what: &str, condition: impl Fn() -> bool) {
    let until = Instant::now() + Duration::from_secs(10);
    while !condition() {
        assert!(Instant::now() < until, "not within ten seconds: {what}");
        std::thread::sleep(Duration::from_micros(100));
    }
}

/// An owner of bytes that counts how often it was asked for them and dropped.
pub(crate) struct Owner {
    pub(crate) bytes: Vec<u8>,
    pub(crate) counts: Arc<Counts>,
}

#[derive(Debug, Default)]
pub(crate) struct Counts {
    pub(crate) asked: AtomicUsize,
    pub(crate) dropped: AtomicUsize,
    pub(crate) panics: AtomicBool,
}

impl Counts {
    pub(crate) fn dropped(&self) -> usize {
        self.dropped.load(Ordering::SeqCst)
    }

    pub(crate) fn asked(&self) -> usize {
        self.asked.load(Ordering::SeqCst)
    }
}

impl Owner {
    pub(crate) fn new(bytes: Vec<u8>) -> (Self, Arc<Counts>) {
        let counts = Arc::<Counts>::default();
        (Self { bytes, counts: counts.clone() }, counts)
    }
}

impl AsMut<[u8]> for Owner {
    fn as_mut(&mut self) -> &mut [u8] {
        self.counts.asked.fetch_add(1, Ordering::SeqCst);
        &mut self.bytes
    }
}

impl AsRef<[u8]> for Owner {
    fn as_ref(&self) -> &[u8] {
        self.counts.asked.fetch_add(1, Ordering::SeqCst);
        &self.bytes
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        // Whoever still reads the memory reads this.
        self.bytes.fill(0xdd);
        self.counts.dropped.fetch_add(1, Ordering::SeqCst);
        if self.counts.panics.load(Ordering::SeqCst) {
            std::panic::resume_unwind(Box::new("an owner that panics when it is dropped"));
        }
    }
}

/// A small generator of numbers, the same in every run.
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) as usize % limit
    }
}

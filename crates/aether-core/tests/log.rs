//! A subscriber of the log that panics: it is other people's code, and takes nothing with it.
#![allow(clippy::unwrap_used, clippy::panic, clippy::expect_used)]

mod common;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use aether_core::{Chunk, Device, Error, Operation, Result, Step, Stream, copy_async, enqueue};
use common::{Held, Owner, bytes, eventually, writes};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

static TOLD: AtomicUsize = AtomicUsize::new(0);

/// Panics at every error.
struct Deaf;

impl Subscriber for Deaf {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() == Level::ERROR
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, _: &Event<'_>) {
        TOLD.fetch_add(1, Ordering::SeqCst);
        std::panic::resume_unwind(Box::new("a subscriber of the log"));
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

/// Panics when it is dropped, and when it is refused.
struct Panics;

// SAFETY: it touches no memory.
unsafe impl Operation for Panics {
    fn issue(&self, _: u64) -> Result<Step> {
        Ok(Step::Issued)
    }

    fn advance(&self, _: u64) -> Result<Step> {
        Ok(Step::Issued)
    }

    fn refused(&self, _: u64, _: &Error) {
        std::panic::resume_unwind(Box::new("refused"));
    }
}

impl Drop for Panics {
    fn drop(&mut self) {
        std::panic::resume_unwind(Box::new("dropped"));
    }
}

#[test]
fn a_subscriber_that_panics_takes_neither_a_stream_nor_a_caller() {
    tracing::subscriber::set_global_default(Deaf).unwrap();
    let device = Device::cpu(0);
    let stream = Stream::new(&device).unwrap();
    // SAFETY: the operation touches nothing.
    let work = unsafe { enqueue(&stream, &[], &[], Arc::new(Panics), 0) }.unwrap();
    work.wait().unwrap();
    assert_eq!(TOLD.load(Ordering::SeqCst), 1);

    let mut chunk = Chunk::allocate(&device, 64).unwrap();
    let held = Held::new();
    writes(&Stream::new(&device).unwrap(), &mut chunk, 0..64, &held);
    let span = chunk.span_of(.., aether_core::DType::U8).unwrap();
    // SAFETY: as above.
    let work = unsafe { enqueue(&stream, &[span], &[], Arc::new(Panics), 0) }.unwrap();
    held.fail();
    assert_eq!(work.wait().unwrap_err().reason(), "told to fail");
    assert_eq!(TOLD.load(Ordering::SeqCst), 3);

    let (owner, counts) = Owner::new(bytes(64, 4));
    counts.panics.store(true, Ordering::SeqCst);
    let source = Chunk::from_owner(&device, owner).unwrap();
    copy_async(&mut chunk, &source, &stream).unwrap().wait().unwrap();
    drop(source);
    eventually("the owner is gone", || counts.dropped() == 1);
    eventually("and told of", || TOLD.load(Ordering::SeqCst) == 4);
    assert_eq!(chunk.slice::<u8>().unwrap(), bytes(64, 4));
}

//! A write that ends when it is told to.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use aether_core::{Chunk, DType, Error, ErrorKind, Operation, Result, Step, Stream, enqueue};

#[derive(Default)]
pub(crate) struct Held {
    open: AtomicBool,
    fails: bool,
}

// SAFETY: it touches no memory.
unsafe impl Operation for Held {
    fn issue(&self, _: u64) -> Result<Step> {
        Ok(Step::Pending)
    }

    fn advance(&self, _: u64) -> Result<Step> {
        match (self.open.load(Ordering::SeqCst), self.fails) {
            (false, _) => Ok(Step::Pending),
            (true, false) => Ok(Step::Issued),
            (true, true) => Err(Error::new(ErrorKind::Backend, "hold", "told to fail")),
        }
    }

    fn refused(&self, _: u64, _: &Error) {}
}

impl Held {
    /// Puts a write of all of the chunk onto the stream.
    pub(crate) fn write(chunk: &mut Chunk, stream: &Stream, fails: bool) -> Arc<Self> {
        let held = Arc::new(Self { open: AtomicBool::new(false), fails });
        let span = chunk.span_of_mut(.., DType::U8).unwrap();
        // SAFETY: the operation touches nothing.
        drop(unsafe { enqueue(stream, &[], &[span], held.clone(), 0) }.unwrap());
        held
    }

    /// Puts a read of all of the chunk onto the stream.
    pub(crate) fn read(chunk: &Chunk, stream: &Stream) -> Arc<Self> {
        let held = Arc::new(Self::default());
        let span = chunk.span_of(.., DType::U8).unwrap();
        // SAFETY: the operation touches nothing.
        drop(unsafe { enqueue(stream, &[span], &[], held.clone(), 0) }.unwrap());
        held
    }

    pub(crate) fn open(&self) {
        self.open.store(true, Ordering::SeqCst);
    }

    pub(crate) fn is_open(&self) -> bool {
        self.open.load(Ordering::SeqCst)
    }

    /// Opens it from another thread, after whoever doesn't wait would be long gone.
    pub(crate) fn open_later(self: &Arc<Self>) -> JoinHandle<()> {
        let held = self.clone();
        thread::spawn(move || {
            thread::sleep(Duration::from_millis(30));
            held.open();
        })
    }
}

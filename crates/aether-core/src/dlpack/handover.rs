//! Handing memory over to somebody whom aether doesn't see, and getting it back.

use std::ops::Range;
use std::sync::{Arc, OnceLock};

use crate::memory::Memory;
use crate::order::push;
use crate::queue::{Dependencies, Task};
use crate::span::{Span, SpanMut};
use crate::stream::Status;
use crate::{DType, Error, ErrorKind, Operation, Result, Step, Stream, progress};

/// What an exported tensor holds: the memory, and the stream on which it is used.
pub(super) struct Lease {
    memory: Arc<Memory>,
    /// The consumer only reads, and the chunk is still there.
    shared: bool,
    stream: Option<Stream>,
}

impl Lease {
    /// Shares the memory: from here on no write of it begins.
    pub(super) fn share(memory: &Arc<Memory>) -> Self {
        memory.begin_export();
        Self { memory: memory.clone(), shared: true, stream: None }
    }

    /// Takes the memory of a chunk that is given away.
    pub(super) fn take(memory: &Arc<Memory>) -> Self {
        Self { memory: memory.clone(), shared: false, stream: None }
    }

    /// Makes the range ready for the consumer: at once for everybody, or on its stream.
    ///
    /// # Errors
    /// The failure of the last write of some byte; `WrongDevice`.
    pub(super) fn settle(&mut self, range: Range<usize>, stream: Option<&Stream>) -> Result<()> {
        let Some(stream) = stream else {
            return self.memory.wait_for_host(range, !self.shared);
        };
        check_stream("export by DLPack", &self.memory, stream)?;
        order_behind(stream, &self.memory, range, !self.shared && self.memory.is_writable())?;
        self.stream = Some(stream.clone());
        Ok(())
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        if let Some(stream) = &self.stream {
            // The consumer may have dropped the tensor while its stream still uses the memory: what
            // writes the memory, or frees it, comes behind what is on the stream now.
            mark(stream, &self.memory, 0..self.memory.bytes(), false);
        }
        if self.shared {
            self.memory.end_export();
        }
    }
}

/// Records that whatever is on the stream by now accesses the range.
pub(super) fn mark(stream: &Stream, memory: &Memory, range: Range<usize>, writes: bool) {
    if range.is_empty() {
        return;
    }
    let task = Task::Call { operation: Arc::new(Mark::default()), token: 0 };
    let work = stream.queue.push(task, Dependencies::new());
    memory.hazards().record(range.into(), writes, &work);
    stream.queue.begin();
}

/// Refuses a stream of another device than the memory's.
pub(super) fn check_stream(
    attempted: &'static str,
    memory: &Memory,
    stream: &Stream,
) -> Result<()> {
    if stream.device() == memory.device() {
        return Ok(());
    }
    let reason = format!("the stream is one of {}", stream.device());
    Err(Error::new(ErrorKind::WrongDevice, attempted, reason)
        .on(memory.device())
        .of_bytes(memory.bytes() as u64))
}

/// Orders what anybody puts on the stream from now on behind what an access to the range conflicts
/// with.
fn order_behind(stream: &Stream, memory: &Memory, range: Range<usize>, writes: bool) -> Result<()> {
    let (address, bytes) = (memory.address().add(range.start), range.len());
    let reads = [Span::of(memory, address, bytes, DType::U8)];
    let writes = writes.then(|| SpanMut::of(memory, address, bytes, DType::U8));
    let mark = Arc::new(Mark::default());
    let task = || Task::Call { operation: mark.clone(), token: 0 };
    // SAFETY: the mark touches no memory itself; the spans are tracked, and what they stand for, the
    // consumer's use of the memory, is covered by the lease, which holds it.
    let work = unsafe { push(stream, &reads, writes.as_slice(), task) }?;
    // The consumer doesn't come through our queue, so the order has to be on the device's stream
    // before it gets the tensor.
    progress::wait_until_issued(&stream.queue, work.ticket);
    // The queue may be about to note that the mark was refused: the mark itself knows.
    if let Some(error) = mark.refusal.get() {
        return Err(error.clone());
    }
    match work.status() {
        Status::Failed(error) => Err(error),
        Status::Pending | Status::Done => Ok(()),
    }
}

/// A point on a stream, and nothing to do.
#[derive(Default)]
struct Mark {
    /// Why the stream was not ordered.
    refusal: OnceLock<Error>,
}

// SAFETY: it touches no memory.
unsafe impl Operation for Mark {
    fn issue(&self, _: u64) -> Result<Step> {
        Ok(Step::Issued)
    }

    fn advance(&self, _: u64) -> Result<Step> {
        Ok(Step::Issued)
    }

    fn works_on_host(&self) -> bool {
        false
    }

    fn refused(&self, _: u64, error: &Error) {
        self.refusal.get_or_init(|| error.clone());
    }
}

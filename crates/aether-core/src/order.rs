//! The one way by which work gets onto a stream: collect what it conflicts with, queue it, record it.
//!
//! Copies, fills, collectives and waiting exports all come through here. A call with several buffers
//! collects all its dependencies before it records any, so that it never waits for itself.

use std::sync::{Arc, MutexGuard};

use crate::extent::Extent;
use crate::hazard::Hazards;
use crate::memory::Memory;
use crate::stream::Completion;
use crate::task::{Dependencies, Task};
use crate::{Error, ErrorKind, Operation, Result, Span, SpanMut, Stream, progress};

/// Puts call `token` of an operation onto the stream, behind everything that its accesses conflict
/// with. It returns at once.
///
/// The spans may be dropped at once as well: memory of chunks stays until the work on it has ended.
/// Other memory is the caller's to keep, who has to wait for the completion before the span's
/// lifetime ends, however it ends.
///
/// # Errors
/// Nothing was queued: a span to write is read-only or exported, or a span to read holds what a failed
/// write left (that failure).
///
/// # Safety
/// The call touches nothing but `reads` and `writes`, writes only `writes`, and is done when its
/// [`Operation`] says so. Spans that are not [tracked](Span::is_tracked) outlive the completion.
pub unsafe fn enqueue(
    stream: &Stream,
    reads: &[Span<'_>],
    writes: &[SpanMut<'_>],
    operation: Arc<dyn Operation>,
    token: u64,
) -> Result<Completion> {
    // SAFETY: the caller promises what `push` asks: the accesses are all of the task's, and memory
    // that is not tracked is kept by the caller.
    unsafe { push(stream, reads, writes, || Task::Call { operation, token }) }
}

/// What a call touches: all of a span, or rows of it.
pub(crate) trait Access {
    /// The span.
    fn of(&self) -> Span<'_>;

    /// Which bytes of the allocation, all of them in the span.
    fn extent(&self) -> Extent {
        self.of().offsets().into()
    }
}

impl Access for Span<'_> {
    fn of(&self) -> Span<'_> {
        *self
    }
}

impl Access for SpanMut<'_> {
    fn of(&self) -> Span<'_> {
        self.as_span()
    }
}

/// As [`enqueue`], for any task.
///
/// # Safety
/// As for [`enqueue`]; for copies and fills, the regions of the task are those of the spans, of which
/// it touches no more than the extents, and the stream's backend can copy between them.
pub(crate) unsafe fn push<R: Access, W: Access>(
    stream: &Stream,
    reads: &[R],
    writes: &[W],
    task: impl FnOnce() -> Task,
) -> Result<Completion> {
    for it in writes {
        if let Some(memory) = it.of().memory {
            memory.check_writable("enqueue")?;
        }
    }
    let mut needs = Dependencies::new();
    for it in reads {
        collect(it, false, stream, &mut needs)?;
    }
    for it in writes {
        collect(it, true, stream, &mut needs)?;
    }
    let work = stream.queue.push(task(), needs);
    // From here on the work may touch memory that only its lender keeps.
    let tracked = reads.iter().all(|it| it.of().is_tracked());
    let tracked = tracked && writes.iter().all(|it| it.of().is_tracked());
    let ends = (!tracked).then(|| Ends(&work));
    for it in reads {
        record(it, false, &work);
    }
    for it in writes {
        record(it, true, &work);
    }
    stream.queue.begin();
    // Nothing unwound: now it is the caller's to wait.
    std::mem::forget(ends);
    Ok(work)
}

/// Waits for the end when it is dropped, by an unwind too: borrowed memory must not go before.
pub(crate) struct Ends<'a>(pub(crate) &'a Completion);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        // The outcome is told by whoever asks for it. A second panic in here ends the process, which
        // is what is left when nobody can wait.
        progress::wait_until(&self.0.queue, self.0.ticket, None);
    }
}

fn collect(
    access: &impl Access,
    writes: bool,
    stream: &Stream,
    needs: &mut Dependencies,
) -> Result<()> {
    let extent = access.extent();
    match hazards_of(&access.of(), &extent) {
        Some(mut hazards) => hazards.collect(&extent, writes, stream, needs),
        None => Ok(()),
    }
}

fn record(access: &impl Access, writes: bool, work: &Completion) {
    let extent = access.extent();
    if let Some(mut hazards) = hazards_of(&access.of(), &extent) {
        hazards.record(extent, writes, work);
    }
}

/// The record that an access is entered in, if the memory has one and the access any bytes.
fn hazards_of<'a>(span: &Span<'a>, extent: &Extent) -> Option<MutexGuard<'a, Hazards>> {
    span.memory.filter(|_| !extent.is_empty()).map(Memory::hazards)
}

/// Refuses memory that is only borrowed, for calls that return before their work has ended.
///
/// # Errors
/// `BorrowedMemory`.
pub fn check_tracked(attempted: &'static str, span: &Span<'_>) -> Result<()> {
    if span.is_tracked() {
        return Ok(());
    }
    let reason = "the memory is only borrowed, so it can't be used after the call returns: use a \
                  chunk, or the blocking call";
    Err(Error::new(ErrorKind::BorrowedMemory, attempted, reason).of_bytes(span.bytes() as u64))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::panic, reason = "these are tests")]

    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;
    use crate::{Device, Step};

    /// Ends at the last of a few looks.
    struct Late(AtomicU32);

    // SAFETY: it touches no memory.
    unsafe impl Operation for Late {
        fn issue(&self, _: u64) -> Result<Step> {
            Ok(Step::Pending)
        }

        fn advance(&self, _: u64) -> Result<Step> {
            let left = self.0.fetch_sub(1, Ordering::SeqCst);
            Ok(if left > 1 { Step::Pending } else { Step::Issued })
        }

        fn refused(&self, _: u64, _: &Error) {}
    }

    #[test]
    fn who_unwinds_past_queued_work_waits_for_its_end() {
        let stream = Stream::new(&Device::cpu(0)).unwrap();
        let task = Task::Call { operation: Arc::new(Late(AtomicU32::new(500))), token: 0 };
        let work = stream.queue.push(task, Dependencies::new());
        let unwound = catch_unwind(AssertUnwindSafe(|| {
            let _ends = Ends(&work);
            assert!(!work.has_ended());
            std::panic::resume_unwind(Box::new("told to"));
        }));
        assert!(unwound.is_err());
        assert!(work.has_ended());
    }
}

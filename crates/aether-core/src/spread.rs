//! One source copied to several destinations, each an operation and an outcome of its own.

use std::sync::Arc;

use crate::backend::Link;
use crate::copy::{check, check_stream, copier, one_row, put_idle, take_idle};
use crate::order::{Ends, check_tracked, push};
use crate::stream::Completion;
use crate::sweep::{self, Sweep, Target};
use crate::task::Task;
use crate::{Error, ErrorKind, Result, Span, SpanMut, Stream};

/// Copies all bytes of `src` to each of the destinations, in slices that every destination gets while
/// they are in the cache, and returns when that is done. There is an outcome for each destination, and
/// no failure of one keeps another from its copy.
///
/// # Errors
/// For each destination those of [`copy`](crate::copy).
pub fn copy_each(dsts: &mut [SpanMut<'_>], src: &Span<'_>) -> Vec<Result<()>> {
    let stream_for = |dst: &SpanMut<'_>| {
        check(dst, src, Link::Blocking)?;
        take_idle(&copier(&dst.as_span(), src))
    };
    let streams: Vec<Result<Stream>> = dsts.iter().map(stream_for).collect();
    let mut queued = Queued(Vec::with_capacity(dsts.len()));
    let spread = Spread::of(src, dsts.len());
    for (dst, stream) in dsts.iter_mut().zip(&streams) {
        let stream = stream.as_ref().map_err(Error::clone);
        queued.0.push(stream.and_then(|stream| spread.queue(dst, stream)));
    }
    drop(spread);
    let outcomes = queued.wait();
    streams.into_iter().flatten().for_each(put_idle);
    outcomes
}

/// As [`copy_each`], each copy on the stream of the same place and behind everything that touches its
/// memory, and returns at once. A destination that has to wait keeps no other waiting.
///
/// # Errors
/// For each destination those of [`copy_async`](crate::copy_async), and `SizeMismatch` where there is
/// no stream for it. The others are queued all the same.
pub fn copy_each_async(
    dsts: &mut [SpanMut<'_>],
    src: &Span<'_>,
    streams: &[Stream],
) -> Vec<Result<Completion>> {
    let spread = Spread::of(src, dsts.len());
    let count = dsts.len();
    let queue = |(at, dst): (usize, &mut SpanMut<'_>)| {
        check(dst, src, Link::Indirect)?;
        check_tracked("copy_async", &dst.as_span())?;
        check_tracked("copy_async", src)?;
        let stream = streams.get(at).ok_or_else(|| {
            let reason = format!("{} streams for {count} destinations", streams.len());
            Error::new(ErrorKind::SizeMismatch, "copy_async", reason)
        })?;
        check_stream(dst, src, stream)?;
        spread.queue(dst, stream)
    };
    dsts.iter_mut().enumerate().map(queue).collect()
}

/// Copies under way whose memory may go when this is gone: it waits for them, by an unwind too.
struct Queued(Vec<Result<Completion>>);

impl Queued {
    fn wait(self) -> Vec<Result<()>> {
        let outcome = |it: &Result<Completion>| it.as_ref().map_err(Error::clone)?.wait();
        self.0.iter().map(outcome).collect()
    }
}

impl Drop for Queued {
    fn drop(&mut self) {
        self.0.iter().flatten().for_each(|it| drop(Ends(it)));
    }
}

/// The copies of one source. None begins before all of them are queued, so that one pass serves all
/// that are ready.
struct Spread<'a> {
    src: &'a Span<'a>,
    /// How many bytes all destinations get.
    bytes: usize,
    sweep: Arc<Sweep>,
}

impl<'a> Spread<'a> {
    fn of(src: &'a Span<'a>, count: usize) -> Self {
        let bytes = src.bytes().saturating_mul(count);
        Self { src, bytes, sweep: Sweep::new(src.region(), one_row(src.bytes())) }
    }

    /// Queues the copy to one destination, which the caller found the stream able to make between
    /// checked spans; it waits for the end if one of them is not tracked.
    fn queue(&self, dst: &mut SpanMut<'_>, stream: &Stream) -> Result<Completion> {
        let (to, from) = (dst.as_span().region(), self.src.region());
        let in_slices = from.bytes > 0 && sweep::is_worth_it(stream, self.bytes);
        let task = || match in_slices {
            true => {
                let at = self.sweep.add(Target::on(stream, to));
                Task::Sweep { sweep: self.sweep.clone(), at }
            }
            false => Task::Copy { dst: to, src: from },
        };
        // SAFETY: the regions are those of the spans, which the caller checked; it waits for the end
        // if one of them is not tracked, and gave a stream whose backend can make the copy. A sweep
        // only copies to destinations whose task is on such a stream.
        unsafe { push(stream, &[*self.src], &[dst.reborrow()], task) }
    }
}

impl Drop for Spread<'_> {
    fn drop(&mut self) {
        self.sweep.close();
    }
}

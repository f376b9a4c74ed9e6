//! What moves bytes between two devices.

use std::sync::Arc;

use aether_core::{Completion, Error, ErrorKind, Result, Rows, Span, SpanMut, Stream};

use crate::operations;

/// Moves bytes from one device's memory to another's.
///
/// It is safe to implement: an implementation has only spans to work with, and aether-core's copies
/// are what it can do with them, so memory stays valid and ordered whatever an implementation does.
/// What it owes is to move all bytes, or to give an error.
pub trait Transport {
    /// Copies all bytes of `src` to `dst` and returns when that is done. Either side may be plain
    /// memory of the host.
    ///
    /// # Errors
    /// `IllegalPair` if there is no way between the devices; `SizeMismatch`, `Overlap`, `ReadOnly`,
    /// `Exported`; the failure of what last wrote `src`; what a backend says.
    fn copy(&self, dst: SpanMut<'_>, src: Span<'_>) -> Result<()>;

    /// Copies all bytes of `src` to `dst`, behind everything that touches them, and returns at once.
    /// The stream, which belongs to one of the two sides, has come past it when it is done.
    ///
    /// # Errors
    /// Those of [`Transport::copy`]; `BorrowedMemory` for memory that doesn't belong to a chunk;
    /// `IllegalPair` also where only a blocking copy goes; `WrongDevice` for a stream of a device that
    /// can't take part.
    fn copy_async(&self, dst: SpanMut<'_>, src: Span<'_>, stream: &Stream) -> Result<Completion>;

    /// Copies all bytes of `src` to each of the destinations and returns when that is done: an outcome
    /// for each, and no failure of one keeps another from its copy. Provided as one copy after the
    /// other.
    ///
    /// # Errors
    /// For each destination those of [`Transport::copy`].
    fn copy_each(&self, dsts: Vec<SpanMut<'_>>, src: Span<'_>) -> Vec<Result<()>> {
        dsts.into_iter().map(|dst| self.copy(dst, src)).collect()
    }

    /// As [`Transport::copy_each`], each copy on the stream of the same place and behind everything that
    /// touches its memory, and returns at once.
    ///
    /// # Errors
    /// For each destination those of [`Transport::copy_async`], and `SizeMismatch` where there is no
    /// stream for it.
    fn copy_each_async(
        &self,
        dsts: Vec<SpanMut<'_>>,
        src: Span<'_>,
        streams: &[Stream],
    ) -> Vec<Result<Completion>> {
        let count = dsts.len();
        let each = dsts.into_iter().enumerate();
        each.map(|(at, dst)| self.copy_async(dst, src, stream_for(at, streams, count)?)).collect()
    }

    /// Copies rows of bytes, each side with a pitch of its own, and returns when that is done.
    /// Provided as one copy a row; bytes between the rows are never touched.
    ///
    /// # Errors
    /// Those of [`Transport::copy`]; `OutOfBounds` if a row lies outside of its span; `Overlap` if a
    /// pitch is shorter than a row; `Overflow`.
    fn copy_rows(&self, mut dst: SpanMut<'_>, src: Span<'_>, rows: Rows) -> Result<()> {
        check_rows(&dst, &src, rows)?;
        for row in 0..filled(rows) {
            let to = dst.part(row * rows.dst_pitch, rows.bytes)?;
            self.copy(to, src.part(row * rows.src_pitch, rows.bytes)?)?;
        }
        Ok(())
    }

    /// As [`Transport::copy_rows`], behind everything that touches the spans, and returns at once.
    ///
    /// # Errors
    /// Those of [`Transport::copy_async`] and of [`Transport::copy_rows`].
    fn copy_rows_async(
        &self,
        mut dst: SpanMut<'_>,
        src: Span<'_>,
        rows: Rows,
        stream: &Stream,
    ) -> Result<Completion> {
        check_rows(&dst, &src, rows)?;
        for row in 0..filled(rows) {
            let to = dst.part(row * rows.dst_pitch, rows.bytes)?;
            let from = src.part(row * rows.src_pitch, rows.bytes)?;
            if let Err(error) = self.copy_async(to, from, stream) {
                if row == 0 {
                    return Err(error);
                }
                return operations::fail(&mut dst, rows, stream, error);
            }
        }
        operations::arrival(&dst, stream)
    }
}

macro_rules! forward {
    ($($pointer:ty),*) => {$(
        impl<Tr: Transport + ?Sized> Transport for $pointer {
            fn copy(&self, dst: SpanMut<'_>, src: Span<'_>) -> Result<()> {
                (**self).copy(dst, src)
            }

            fn copy_async(
                &self,
                dst: SpanMut<'_>,
                src: Span<'_>,
                stream: &Stream,
            ) -> Result<Completion> {
                (**self).copy_async(dst, src, stream)
            }

            fn copy_each(&self, dsts: Vec<SpanMut<'_>>, src: Span<'_>) -> Vec<Result<()>> {
                (**self).copy_each(dsts, src)
            }

            fn copy_each_async(
                &self,
                dsts: Vec<SpanMut<'_>>,
                src: Span<'_>,
                streams: &[Stream],
            ) -> Vec<Result<Completion>> {
                (**self).copy_each_async(dsts, src, streams)
            }

            fn copy_rows(&self, dst: SpanMut<'_>, src: Span<'_>, rows: Rows) -> Result<()> {
                (**self).copy_rows(dst, src, rows)
            }

            fn copy_rows_async(
                &self,
                dst: SpanMut<'_>,
                src: Span<'_>,
                rows: Rows,
                stream: &Stream,
            ) -> Result<Completion> {
                (**self).copy_rows_async(dst, src, rows, stream)
            }
        }
    )*};
}

forward!(&Tr, Arc<Tr>, Box<Tr>);

/// The stream for the destination of the same place.
pub(crate) fn stream_for(at: usize, streams: &[Stream], count: usize) -> Result<&Stream> {
    streams.get(at).ok_or_else(|| {
        let reason = format!("{} streams for {count} destinations", streams.len());
        Error::new(ErrorKind::SizeMismatch, "copy_async", reason)
    })
}

/// How many rows there are that have a byte.
fn filled(rows: Rows) -> usize {
    if rows.bytes == 0 { 0 } else { rows.count }
}

/// Refuses rows that don't lie within their spans or run into each other.
pub(crate) fn check_rows(dst: &SpanMut<'_>, src: &Span<'_>, rows: Rows) -> Result<()> {
    let refuse = |kind, reason: &str| {
        let all = (rows.count as u64).saturating_mul(rows.bytes as u64);
        Err(Error::new(kind, "copy rows", format!("{reason} ({rows:?})")).of_bytes(all))
    };
    if filled(rows) == 0 {
        return Ok(());
    }
    if rows.count > 1 && rows.dst_pitch.min(rows.src_pitch) < rows.bytes {
        return refuse(ErrorKind::Overlap, "a pitch is shorter than a row");
    }
    let extent =
        |pitch: usize| pitch.checked_mul(rows.count - 1).and_then(|it| it.checked_add(rows.bytes));
    let (Some(to), Some(from)) = (extent(rows.dst_pitch), extent(rows.src_pitch)) else {
        return refuse(ErrorKind::Overflow, "the rows' extent overflows");
    };
    if to > dst.as_span().bytes() || from > src.bytes() {
        return refuse(ErrorKind::OutOfBounds, "a row lies outside of its span");
    }
    Ok(())
}

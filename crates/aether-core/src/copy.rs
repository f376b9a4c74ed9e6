//! Copies: which pairs of devices are legal, and the blocking and the asynchronous form.

use std::sync::Mutex;

use crate::backend::{Link, Region, Rows};
use crate::extent::Extent;
use crate::order::{Access, Ends, check_tracked, push};
use crate::span::{AsSpan, AsSpanMut, Span, SpanMut};
use crate::stream::Completion;
use crate::sweep::{self, Sweep, Target};
use crate::sync::lock;
use crate::task::Task;
use crate::{Chunk, Device, Element, Error, ErrorKind, Result, Stream};

/// How memory gets from one device to the other and back: see [`Link`].
///
/// Memory of the host reaches memory of the host. Where one side can't be addressed by the host, its
/// backend decides: CUDA memory is reached from CUDA memory and from pinned memory, and not from
/// ordinary host memory.
pub fn link(one: &Device, other: &Device) -> Link {
    let answer = |of: &Device, about: &Device| of.backend().link(of.id(), about);
    match (one.host_addressable(), other.host_addressable()) {
        _ if one.shares_backend(other) => answer(one, other),
        (true, true) => answer(one, other).min(answer(other, one)),
        (false, true) => answer(one, other),
        (true, false) => answer(other, one),
        (false, false) => answer(one, other).max(answer(other, one)),
    }
}

/// Copies all bytes of `src` to `dst` and returns when that is done.
///
/// # Errors
/// `IllegalPair` if no single copy goes between the devices, `SizeMismatch`, `Overlap`, `ReadOnly`,
/// `Exported`, the failure of what last wrote `src`, and what the backend says. The pair and the sizes
/// are checked even for zero bytes.
pub fn copy<D, S>(dst: &mut D, src: &S) -> Result<()>
where
    D: AsSpanMut + ?Sized,
    S: AsSpan + ?Sized,
{
    let (dst, src) = (dst.span_mut()?, src.span()?);
    check(&dst, &src, Link::Blocking)?;
    transfer(dst, src, None)
}

/// Copies all bytes of `src` to `dst` on the stream, behind everything that touches them, and returns
/// at once.
///
/// # Errors
/// Those of [`copy`]; `BorrowedMemory` for memory that doesn't belong to a chunk; `IllegalPair` also
/// for ordinary host memory beside a kind that needs pinned memory; `WrongDevice` if the stream's
/// backend serves neither side in a way that it could do the copy.
pub fn copy_async<D, S>(dst: &mut D, src: &S, stream: &Stream) -> Result<Completion>
where
    D: AsSpanMut + ?Sized,
    S: AsSpan + ?Sized,
{
    let (mut dst, src) = (dst.span_mut()?, src.span()?);
    check(&dst, &src, Link::Indirect)?;
    check_tracked("copy_async", &dst.as_span())?;
    check_tracked("copy_async", &src)?;
    check_stream(&dst, &src, stream)?;
    let (to, from) = (dst.as_span().region(), src.region());
    // SAFETY: the task's regions are those of the spans, which are of one size, don't overlap, and
    // belong to chunks; `check_stream` found the stream's backend able to copy between the devices.
    unsafe { push(stream, &[src], &[dst.reborrow()], || task(stream, to, from, None)) }
}

/// Copies rows of bytes between two spans, each with a pitch of its own, on the stream: one pitched
/// copy where the backend has one.
///
/// # Errors
/// Those of [`copy_async`], `OutOfBounds` if a row lies outside of its span, and `Overlap` if a pitch
/// is shorter than a row.
pub fn copy_rows_async<D, S>(
    dst: &mut D,
    src: &S,
    rows: Rows,
    stream: &Stream,
) -> Result<Completion>
where
    D: AsSpanMut + ?Sized,
    S: AsSpan + ?Sized,
{
    let (dst, src) = (dst.span_mut()?, src.span()?);
    check_pair(&dst, &src, Link::Indirect)?;
    check_rows(&dst, &src, rows)?;
    check_tracked("copy_rows_async", &dst.as_span())?;
    check_tracked("copy_rows_async", &src)?;
    check_stream(&dst, &src, stream)?;
    let (to, from) = (dst.as_span().region(), src.region());
    let reads = RowsOf { span: src, rows, pitch: rows.src_pitch };
    let writes = RowsOf { span: dst.as_span(), rows, pitch: rows.dst_pitch };
    // SAFETY: `check_rows` proved every row inside of its span, and the rows are all that a pitched
    // copy touches ("no byte outside of their region or rows"); the rest as in `copy_async`.
    unsafe { push(stream, &[reads], &[writes], || task(stream, to, from, Some(rows))) }
}

/// What one copy is to a stream: whole, or in slices where that is worth it.
fn task(stream: &Stream, dst: Region, src: Region, rows: Option<Rows>) -> Task {
    let all = rows.unwrap_or(one_row(src.bytes));
    if sweep::is_worth_it(stream, all.count.saturating_mul(all.bytes)) {
        let sweep = Sweep::new(src, all);
        let at = sweep.add(Target::on(stream, dst));
        sweep.close();
        return Task::Sweep { sweep, at };
    }
    match rows {
        Some(rows) => Task::CopyRows { dst, src, rows },
        None => Task::Copy { dst, src },
    }
}

pub(crate) fn one_row(bytes: usize) -> Rows {
    Rows { count: 1, bytes, dst_pitch: bytes, src_pitch: bytes }
}

/// Rows of a span: what lies between them is not touched.
struct RowsOf<'a> {
    span: Span<'a>,
    rows: Rows,
    pitch: usize,
}

impl Access for RowsOf<'_> {
    fn of(&self) -> Span<'_> {
        self.span
    }

    fn extent(&self) -> Extent {
        let Rows { count, bytes, .. } = self.rows;
        Extent::rows(self.span.offsets().start, count, bytes, self.pitch)
    }
}

/// As [`copy_rows_async`], and returns when that is done; borrowed host memory is welcome.
///
/// # Errors
/// Those of [`copy_rows_async`], but for borrowed memory and the stream.
pub fn copy_rows<D, S>(dst: &mut D, src: &S, rows: Rows) -> Result<()>
where
    D: AsSpanMut + ?Sized,
    S: AsSpan + ?Sized,
{
    let (dst, src) = (dst.span_mut()?, src.span()?);
    check_pair(&dst, &src, Link::Blocking)?;
    check_rows(&dst, &src, rows)?;
    transfer(dst, src, Some(rows))
}

/// Sets every element of `dst` to `value` and returns when that is done. It also heals a range that a
/// failed write left.
///
/// # Errors
/// `PartialElement`, `Misaligned`, `ReadOnly`, `Exported`, and what the backend says.
pub fn fill<T: Element, D: AsSpanMut + ?Sized>(dst: &mut D, value: T) -> Result<()> {
    let mut dst = dst.span_mut()?;
    let device = dst.as_span().device().cloned().unwrap_or_else(|| Device::cpu(0));
    with_stream(&device, |stream| enqueue_fill(dst.reborrow(), value, stream))
}

/// Sets every element of `dst` to `value` on the stream and returns at once.
///
/// # Errors
/// Those of [`fill`], `BorrowedMemory`, `WrongDevice`.
pub fn fill_async<T: Element, D: AsSpanMut + ?Sized>(
    dst: &mut D,
    value: T,
    stream: &Stream,
) -> Result<Completion> {
    let dst = dst.span_mut()?;
    check_tracked("fill_async", &dst.as_span())?;
    if dst.as_span().device().is_some_and(|it| !it.shares_backend(stream.device())) {
        return Err(wrong_stream("fill_async", &dst.as_span(), stream));
    }
    enqueue_fill(dst, value, stream)
}

/// Copies host memory into a chunk of any device, through the device's staging memory if need be.
pub(crate) fn upload(dst: &mut Chunk, src: Span<'_>) -> Result<()> {
    if link(dst.device(), &Device::cpu(0)) > Link::None {
        return copy(dst, &src);
    }
    let mut staged = Chunk::allocate(&staging(dst.device())?, dst.size())?;
    copy(&mut staged, &src)?;
    copy(dst, &staged)
}

/// Copies a chunk of any device into host memory, through the device's staging memory if need be.
pub(crate) fn download(mut dst: SpanMut<'_>, src: &Chunk) -> Result<()> {
    if link(src.device(), &Device::cpu(0)) > Link::None {
        return copy(&mut dst, src);
    }
    let mut staged = Chunk::allocate(&staging(src.device())?, src.size())?;
    copy(&mut staged, src)?;
    copy(&mut dst, &staged)
}

fn staging(device: &Device) -> Result<Device> {
    device.backend().staging(device.id()).ok_or_else(|| {
        let reason = "the device is reached neither from host memory nor through staging memory";
        Error::new(ErrorKind::IllegalPair, "stage a copy", reason).on(device)
    })
}

fn device_of(span: &Span<'_>) -> Device {
    span.device().cloned().unwrap_or_else(|| Device::cpu(0))
}

fn check_pair(dst: &SpanMut<'_>, src: &Span<'_>, at_least: Link) -> Result<()> {
    let (to, from) = (device_of(&dst.as_span()), device_of(src));
    let found = link(&to, &from);
    if found < at_least {
        let reason = match found {
            Link::None => "no copy goes between these devices: stage it through a third",
            _ => "only a blocking copy goes between these devices",
        };
        return Err(Error::new(ErrorKind::IllegalPair, "copy", reason)
            .on(format!("{from} to {to}"))
            .of_bytes(src.bytes() as u64));
    }
    dst.check_writable("copy")
}

pub(crate) fn check(dst: &SpanMut<'_>, src: &Span<'_>, at_least: Link) -> Result<()> {
    check_pair(dst, src, at_least)?;
    let (to, from) = (dst.as_span(), src);
    let refuse = |kind, reason: String| {
        let pair = format!("{} to {}", device_of(from), device_of(&to));
        Err(Error::new(kind, "copy", reason).on(pair).of_bytes(from.bytes() as u64))
    };
    if to.bytes() != from.bytes() {
        let reason = format!("the destination has {} bytes", to.bytes());
        return refuse(ErrorKind::SizeMismatch, reason);
    }
    if to.overlaps(from) {
        return refuse(ErrorKind::Overlap, "source and destination overlap".to_owned());
    }
    Ok(())
}

fn check_rows(dst: &SpanMut<'_>, src: &Span<'_>, rows: Rows) -> Result<()> {
    let refuse = |kind, reason: &str| {
        let pair = format!("{} to {}", device_of(src), device_of(&dst.as_span()));
        Err(Error::new(kind, "copy rows", format!("{reason} ({rows:?})"))
            .on(pair)
            .of_bytes(src.bytes() as u64))
    };
    if rows.count == 0 || rows.bytes == 0 {
        return Ok(());
    }
    if rows.count > 1 && (rows.dst_pitch < rows.bytes || rows.src_pitch < rows.bytes) {
        return refuse(ErrorKind::Overlap, "the pitch is shorter than a row");
    }
    let extent =
        |pitch: usize| pitch.checked_mul(rows.count - 1).and_then(|it| it.checked_add(rows.bytes));
    let (Some(to), Some(from)) = (extent(rows.dst_pitch), extent(rows.src_pitch)) else {
        return refuse(ErrorKind::Overflow, "the rows' extent overflows");
    };
    if to > dst.as_span().bytes() || from > src.bytes() {
        return refuse(ErrorKind::OutOfBounds, "a row lies outside of its span");
    }
    if dst.as_span().overlaps(src) {
        return refuse(ErrorKind::Overlap, "source and destination overlap");
    }
    Ok(())
}

/// The device whose backend copies between two: the one that the host can't address, if any.
pub(crate) fn copier(dst: &Span<'_>, src: &Span<'_>) -> Device {
    let (to, from) = (device_of(dst), device_of(src));
    let able = |it: &Device, other: &Device| it.backend().link(it.id(), other) > Link::None;
    match (to.host_addressable(), from.host_addressable()) {
        (true, false) => from,
        (false, false) if !able(&to, &from) => from,
        _ => to,
    }
}

pub(crate) fn check_stream(dst: &SpanMut<'_>, src: &Span<'_>, stream: &Stream) -> Result<()> {
    let span = dst.as_span();
    let (to, from) = (device_of(&span), device_of(src));
    let on = stream.device();
    let both_host = to.host_addressable() && from.host_addressable();
    let serves = on.shares_backend(&copier(&span, src));
    if serves || both_host && (on.shares_backend(&to) || on.shares_backend(&from)) {
        return Ok(());
    }
    Err(wrong_stream("copy_async", &span, stream))
}

fn wrong_stream(attempted: &'static str, dst: &Span<'_>, stream: &Stream) -> Error {
    let reason = format!("a stream of {} can't do it", stream.device());
    Error::new(ErrorKind::WrongDevice, attempted, reason)
        .on(device_of(dst))
        .of_bytes(dst.bytes() as u64)
}

/// A blocking copy of checked spans.
fn transfer(mut dst: SpanMut<'_>, src: Span<'_>, rows: Option<Rows>) -> Result<()> {
    let (to, from) = (dst.as_span().region(), src.region());
    let device = copier(&dst.as_span(), &src);
    tracing::trace!(bytes = from.bytes, src = %from.device, dst = %to.device, "copy");
    if to.bytes == 0 || from.bytes == 0 {
        return Ok(());
    }
    with_stream(&device, |stream| match rows {
        // SAFETY: the regions are those of the spans, checked by the caller; `with_stream` waits for
        // the end before it returns, so spans that are not tracked outlive the work; the stream is
        // one of the device that can do the copy.
        None => unsafe { push(stream, &[src], &[dst.reborrow()], || task(stream, to, from, None)) },
        Some(rows) => {
            let reads = RowsOf { span: src, rows, pitch: rows.src_pitch };
            let writes = RowsOf { span: dst.as_span(), rows, pitch: rows.dst_pitch };
            // SAFETY: as for one range; the caller found the rows to lie in the spans.
            unsafe { push(stream, &[reads], &[writes], || task(stream, to, from, Some(rows))) }
        }
    })
}

fn enqueue_fill<T: Element>(mut dst: SpanMut<'_>, value: T, stream: &Stream) -> Result<Completion> {
    let span = dst.as_span();
    let width = size_of::<T>();
    if !span.bytes().is_multiple_of(width) {
        let reason = format!("{} bytes are not whole elements of {}", span.bytes(), T::DTYPE);
        return Err(Error::new(ErrorKind::PartialElement, "fill", reason)
            .on(device_of(&span))
            .of_bytes(span.bytes() as u64));
    }
    if span.bytes() > 0 {
        crate::chunk::check_aligned(span.address(), T::DTYPE, "fill")
            .map_err(|error| error.on(device_of(&span)).of_bytes(span.bytes() as u64))?;
    }
    let mut pattern = [0; 8];
    let bytes = std::slice::from_ref(&value).span()?.address().as_ptr().cast_const();
    for (at, byte) in pattern.iter_mut().enumerate().take(width) {
        // SAFETY: `at` is below the size of `T`, whose bytes are all initialised ("`Self` has no
        // padding"), and `value` lives until the end of this function.
        *byte = unsafe { bytes.wrapping_add(at).read() };
    }
    let to = span.region();
    // SAFETY: the region is that of the span, in whole elements of the pattern. The caller waits for
    // the end if the span is not tracked, and gave a stream of the span's backend.
    unsafe {
        push(stream, &NOTHING, &[dst.reborrow()], || Task::Fill {
            dst: to,
            pattern,
            width: width as u8,
        })
    }
}

/// A fill reads no memory.
const NOTHING: [Span<'static>; 0] = [];

/// Runs a blocking call on a stream that nobody else uses meanwhile, and waits for its end.
fn with_stream(device: &Device, enqueue: impl FnOnce(&Stream) -> Result<Completion>) -> Result<()> {
    let stream = take_idle(device)?;
    let done = Ends(&enqueue(&stream)?).0.wait();
    put_idle(stream);
    done
}

/// Streams of blocking calls that are over, the last used last: few, because a call takes one for
/// each of its destinations.
static IDLE: Mutex<Vec<Stream>> = Mutex::new(Vec::new());

/// A stream for a blocking call.
pub(crate) fn take_idle(device: &Device) -> Result<Stream> {
    let mut streams = lock(&IDLE);
    let at = streams.iter().position(|it| it.device() == device);
    let stream = at.map(|at| streams.remove(at));
    drop(streams);
    stream.map_or_else(|| Stream::new(device), Ok)
}

/// Keeps a stream whose call is over for a later one.
pub(crate) fn put_idle(stream: Stream) {
    let mut streams = lock(&IDLE);
    streams.push(stream);
    // Those of devices that nobody uses any more make room.
    let oldest = (streams.len() > MOST_IDLE).then(|| streams.remove(0));
    drop(streams);
    // Closing it is the backend's code, and runs without the lock.
    drop(oldest);
}

/// How many idle streams of blocking calls are kept.
const MOST_IDLE: usize = 32;

//! Untyped ranges of memory: what copies, collectives and language bindings work on.

use std::fmt;
use std::marker::PhantomData;
use std::ops::Range;

use crate::backend::{Address, Region, Touch};
use crate::memory::Memory;
use crate::stream::Completion;
use crate::{DType, Device, DeviceId, DeviceKind, Error, ErrorKind, Result};

/// A contiguous range of memory that may be read: of a chunk, or plain memory of the host.
#[derive(Clone, Copy)]
pub struct Span<'a> {
    pub(crate) memory: Option<&'a Memory>,
    address: Address,
    bytes: usize,
    dtype: DType,
    lifetime: PhantomData<&'a [u8]>,
}

/// A contiguous range of memory that may be written, by nobody else meanwhile.
pub struct SpanMut<'a> {
    span: Span<'a>,
    lifetime: PhantomData<&'a mut [u8]>,
}

impl<'a> Span<'a> {
    /// A range of plain host memory, by its address.
    ///
    /// # Safety
    /// The range is initialised, readable and unchanged for `'a`, and its address is aligned for
    /// `dtype`.
    #[inline]
    pub unsafe fn from_raw(address: Address, bytes: usize, dtype: DType) -> Self {
        Self { memory: None, address, bytes, dtype, lifetime: PhantomData }
    }

    /// A range of a chunk's memory, by its address.
    #[inline]
    pub(crate) fn of(memory: &'a Memory, address: Address, bytes: usize, dtype: DType) -> Self {
        Self { memory: Some(memory), address, bytes, dtype, lifetime: PhantomData }
    }

    /// Where it begins.
    #[inline]
    pub fn address(&self) -> Address {
        self.address
    }

    /// How long it is, in bytes.
    #[inline]
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// The type of its elements.
    #[inline]
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// The device, or none for plain host memory, which is on every host device alike.
    #[inline]
    pub fn device(&self) -> Option<&'a Device> {
        self.memory.map(Memory::device)
    }

    /// Whether work may go on after the call that was given the span: the memory belongs to a chunk,
    /// and not to somebody who only lent it for the call.
    #[inline]
    pub fn is_tracked(&self) -> bool {
        self.memory.is_some()
    }

    /// Refuses a range that a failed write left. It doesn't wait: of what is still pending, whoever
    /// reads will be told.
    ///
    /// # Errors
    /// The failure of the last write of some byte.
    pub fn check_readable(&self) -> Result<()> {
        match self.memory {
            Some(memory) if self.bytes > 0 => memory.failure(&self.offsets().into()),
            _ => Ok(()),
        }
    }

    /// The range of addresses.
    #[inline]
    pub fn range(&self) -> Range<usize> {
        self.address.addr()..self.address.addr().saturating_add(self.bytes)
    }

    /// Whether both ranges have a byte in common.
    #[inline]
    pub fn overlaps(&self, other: &Self) -> bool {
        // Two devices may use the same numbers for different memory.
        let same_memory = match (self.memory, other.memory) {
            (Some(one), Some(two)) => {
                one.device() == two.device()
                    || one.device().host_addressable() && two.device().host_addressable()
            }
            (Some(one), None) | (None, Some(one)) => one.device().host_addressable(),
            (None, None) => true,
        };
        let (one, two) = (self.range(), other.range());
        same_memory && one.start.max(two.start) < one.end.min(two.end)
    }

    /// The part from `start` that is `bytes` long.
    ///
    /// # Errors
    /// `OutOfBounds` if it isn't inside.
    #[inline]
    pub fn part(&self, start: usize, bytes: usize) -> Result<Self> {
        if start.checked_add(bytes).is_none_or(|end| end > self.bytes) {
            let reason = format!("bytes {start}+{bytes} lie outside of the span");
            let error = Error::new(ErrorKind::OutOfBounds, "take a part of a span", reason)
                .of_bytes(self.bytes as u64);
            return Err(match self.device() {
                Some(device) => error.on(device),
                None => error,
            });
        }
        Ok(Self { address: self.address.add(start), bytes, ..*self })
    }

    /// The range as backends know it. Plain host memory counts as that of `cpu:0`.
    #[inline]
    pub fn region(&self) -> Region {
        let host = DeviceId::new(DeviceKind::CPU, 0);
        let device = self.device().map_or(host, Device::id);
        Region { device, address: self.address, bytes: self.bytes }
    }

    /// What work that reads the span tells [`crate::Backend::observe`].
    #[inline]
    pub fn touch(&self) -> Touch {
        Touch { region: self.region(), writes: false }
    }

    /// Whether no work and no failure is on record that an access would conflict with.
    pub(crate) fn is_quiet(&self, writes: bool) -> bool {
        let Some(memory) = self.memory.filter(|_| self.bytes > 0) else { return true };
        memory.is_quiet() || memory.settle(&self.offsets().into(), writes)
    }

    /// Records an access, if the memory has a record and the span any bytes.
    pub(crate) fn record(&self, writes: bool, work: &Completion) {
        if let Some(memory) = self.memory.filter(|_| self.bytes > 0) {
            memory.hazards().record(self.offsets().into(), writes, work);
        }
    }

    /// The range within the allocation.
    pub(crate) fn offsets(&self) -> Range<usize> {
        let base = self.memory.map_or(self.address, Memory::address);
        let start = self.address.addr().saturating_sub(base.addr());
        start..start.saturating_add(self.bytes)
    }
}

impl<'a> SpanMut<'a> {
    /// A range of plain host memory, by its address.
    ///
    /// # Safety
    /// The range is initialised and writable, nobody else touches it for `'a`, and its address is
    /// aligned for `dtype`.
    #[inline]
    pub unsafe fn from_raw(address: Address, bytes: usize, dtype: DType) -> Self {
        // SAFETY: what the caller promises is more than a span that only reads needs.
        Self { span: unsafe { Span::from_raw(address, bytes, dtype) }, lifetime: PhantomData }
    }

    /// A range of a chunk's memory that nobody else holds for `'a`.
    #[inline]
    pub(crate) fn of(memory: &'a Memory, address: Address, bytes: usize, dtype: DType) -> Self {
        Self { span: Span::of(memory, address, bytes, dtype), lifetime: PhantomData }
    }

    /// The same range to look at.
    #[inline]
    pub fn as_span(&self) -> Span<'_> {
        self.span
    }

    /// The same range to write, for a shorter time.
    pub fn reborrow(&mut self) -> SpanMut<'_> {
        SpanMut { span: self.span, lifetime: PhantomData }
    }

    /// The same range to read for as long as it would have been written.
    pub fn into_span(self) -> Span<'a> {
        self.span
    }

    /// The part from `start` that is `bytes` long.
    ///
    /// # Errors
    /// `OutOfBounds` if it isn't inside.
    #[inline]
    pub fn part(&mut self, start: usize, bytes: usize) -> Result<SpanMut<'_>> {
        Ok(SpanMut { span: self.span.part(start, bytes)?, lifetime: PhantomData })
    }

    /// The part from `start` that is `bytes` long, to write for as long as the whole.
    ///
    /// # Errors
    /// `OutOfBounds` if it isn't inside.
    pub fn into_part(self, start: usize, bytes: usize) -> Result<Self> {
        Ok(Self { span: self.span.part(start, bytes)?, lifetime: PhantomData })
    }

    /// The same range to read, beside the one to write: for operations that work in place.
    ///
    /// # Safety
    /// While both exist they are only given to one operation, which is told of both.
    pub unsafe fn alias(&self) -> Span<'a> {
        self.span
    }

    /// What work that writes the span tells [`crate::Backend::observe`].
    #[inline]
    pub fn touch(&self) -> Touch {
        Touch { region: self.span.region(), writes: true }
    }

    /// Refuses read-only memory, and memory that an exported tensor reads.
    ///
    /// # Errors
    /// `ReadOnly`, `Exported`.
    #[inline]
    pub fn check_writable(&self, attempted: &'static str) -> Result<()> {
        self.span.memory.map_or(Ok(()), |it| it.check_writable(attempted))
    }
}

impl fmt::Debug for Span<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.device() {
            Some(device) => write!(f, "{device} ")?,
            None => f.write_str("host ")?,
        }
        write!(f, "{:?}+{} {}", self.address, self.bytes, self.dtype)
    }
}

impl fmt::Debug for SpanMut<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.span.fmt(f)
    }
}

/// Whatever is one contiguous range of memory to read.
pub trait AsSpan {
    /// The range.
    ///
    /// # Errors
    /// `NotContiguous` for a view with gaps.
    fn span(&self) -> Result<Span<'_>>;
}

/// Whatever is one contiguous range of memory to write.
pub trait AsSpanMut: AsSpan {
    /// The range.
    ///
    /// # Errors
    /// `NotContiguous` for a view with gaps.
    fn span_mut(&mut self) -> Result<SpanMut<'_>>;
}

impl AsSpan for Span<'_> {
    fn span(&self) -> Result<Span<'_>> {
        Ok(*self)
    }
}

impl AsSpan for SpanMut<'_> {
    fn span(&self) -> Result<Span<'_>> {
        Ok(self.span)
    }
}

impl AsSpanMut for SpanMut<'_> {
    fn span_mut(&mut self) -> Result<SpanMut<'_>> {
        Ok(self.reborrow())
    }
}

impl<T: crate::Element> AsSpan for [T] {
    fn span(&self) -> Result<Span<'_>> {
        let address = Address::from_ptr(self.as_ptr().cast_mut().cast());
        // SAFETY: a slice is initialised, readable, unchanged while it is borrowed, and aligned for
        // `T`, whose alignment is that of its `DTYPE` ("its size and alignment are those of
        // `Element::DTYPE`").
        Ok(unsafe { Span::from_raw(address, size_of_val(self), T::DTYPE) })
    }
}

impl<T: crate::Element> AsSpanMut for [T] {
    fn span_mut(&mut self) -> Result<SpanMut<'_>> {
        let bytes = size_of_val(self);
        let address = Address::from_ptr(self.as_mut_ptr().cast());
        // SAFETY: as for reading; a slice that is borrowed mutably is touched by nobody else.
        Ok(unsafe { SpanMut::from_raw(address, bytes, T::DTYPE) })
    }
}

impl<T: crate::Element> AsSpan for Vec<T> {
    fn span(&self) -> Result<Span<'_>> {
        self.as_slice().span()
    }
}

impl<T: crate::Element> AsSpanMut for Vec<T> {
    fn span_mut(&mut self) -> Result<SpanMut<'_>> {
        self.as_mut_slice().span_mut()
    }
}

impl<T: crate::Element, const N: usize> AsSpan for [T; N] {
    fn span(&self) -> Result<Span<'_>> {
        self.as_slice().span()
    }
}

impl<T: crate::Element, const N: usize> AsSpanMut for [T; N] {
    fn span_mut(&mut self) -> Result<SpanMut<'_>> {
        self.as_mut_slice().span_mut()
    }
}

//! One allocation on one device.

use std::alloc::Layout;
use std::fmt;
use std::ops::{Bound, Range, RangeBounds};
use std::sync::Arc;

use crate::backend::Address;
use crate::memory::{Memory, Origin};
use crate::owner::{Elements, Owner};
use crate::span::{AsSpan, AsSpanMut, Span, SpanMut};
use crate::{DType, Device, Element, Error, ErrorKind, Result, View, ViewMut, copy};

/// The alignment of allocations unless another is asked for, in bytes.
pub const ALIGNMENT: usize = 256;

/// One allocation on one device: bytes, as `cudaMalloc` gives them, and no tensor. It frees itself,
/// after all work that touches it has ended; it moves and never copies.
///
/// Host access waits for the work that it conflicts with, and gives the failure of the last write of
/// any byte that it would see.
pub struct Chunk {
    memory: Arc<Memory>,
}

impl Chunk {
    /// Allocates `bytes` bytes on the device, aligned to [`ALIGNMENT`]. Host memory is zeroed. Zero
    /// bytes allocate nothing.
    ///
    /// # Errors
    /// `OutOfMemory`, or what else the backend says.
    pub fn allocate(device: &Device, bytes: usize) -> Result<Self> {
        Self::allocate_aligned(device, bytes, ALIGNMENT)
    }

    /// As [`Chunk::allocate`], aligned to `alignment` bytes, a power of two.
    ///
    /// # Errors
    /// `InvalidArgument` for another alignment, and those of [`Chunk::allocate`].
    pub fn allocate_aligned(device: &Device, bytes: usize, alignment: usize) -> Result<Self> {
        Self::new(device, bytes, alignment, device.host_addressable())
    }

    /// As [`Chunk::allocate`], without zeroing.
    ///
    /// # Safety
    /// Every byte is written before it is read, by copies and exports as well as by the host.
    ///
    /// # Errors
    /// Those of [`Chunk::allocate`].
    pub unsafe fn allocate_uninit(device: &Device, bytes: usize) -> Result<Self> {
        Self::new(device, bytes, ALIGNMENT, false)
    }

    /// The vector's elements on the device: taken over without a copy where ordinary memory counts as
    /// the device's ([`Backend::adopts`](crate::Backend::adopts)), copied to any other.
    ///
    /// # Errors
    /// Those of [`Chunk::allocate`] and of a copy.
    pub fn from_vec<T: Element>(device: &Device, elements: Vec<T>) -> Result<Self> {
        if Self::check_adopts(device, "make a chunk from a vector").is_ok() {
            return Self::from_owner(device, Elements(elements));
        }
        let mut chunk = Self::allocate(device, size_of_val(elements.as_slice()))?;
        copy::upload(&mut chunk, elements.span()?)?;
        Ok(chunk)
    }

    /// The memory of an owner, on a host device; the owner is dropped when the chunk and all work on
    /// it are gone.
    ///
    /// The owner is boxed first and asked for its bytes once.
    ///
    /// # Errors
    /// `Unsupported` on a device that the host can't address, or whose backend doesn't
    /// [adopt](crate::Backend::adopts) memory.
    pub fn from_owner<O>(device: &Device, owner: O) -> Result<Self>
    where
        O: AsMut<[u8]> + Send + 'static,
    {
        let owner = Owner(Box::into_raw(Box::new(owner)));
        Self::check_adopts(device, "make a chunk from an owner")?;
        // SAFETY: the pointer comes from `Box::into_raw` just now, and nobody else has it.
        let bytes: &mut [u8] = unsafe { &mut *owner.0 }.as_mut();
        let (address, length) = (Address::from_ptr(bytes.as_mut_ptr()), bytes.len());
        Ok(Self::of(device, address, length, true, Origin::Owner(Box::new(owner))))
    }

    /// As [`Chunk::from_owner`], for memory that may only be read.
    ///
    /// # Errors
    /// `Unsupported` on a device that the host can't address, or whose backend doesn't
    /// [adopt](crate::Backend::adopts) memory.
    pub fn from_read_only_owner<O>(device: &Device, owner: O) -> Result<Self>
    where
        O: AsRef<[u8]> + Send + 'static,
    {
        let owner = Owner(Box::into_raw(Box::new(owner)));
        Self::check_adopts(device, "make a chunk from an owner")?;
        // SAFETY: the pointer comes from `Box::into_raw` just now, and nobody else has it.
        let bytes: &[u8] = unsafe { &*owner.0 }.as_ref();
        let (address, length) = (Address::from_ptr(bytes.as_ptr().cast_mut()), bytes.len());
        Ok(Self::of(device, address, length, false, Origin::Owner(Box::new(owner))))
    }

    /// Memory of the device that belongs to somebody else.
    ///
    /// # Safety
    /// The range is memory of `device`, valid and touched by nobody else until the chunk is gone and
    /// all work that was enqueued on it has ended; on a host-addressable device it is initialised.
    pub unsafe fn borrow(device: &Device, address: Address, bytes: usize) -> Self {
        Self::of(device, address, bytes, true, Origin::Borrowed)
    }

    /// The size, in bytes.
    pub fn size(&self) -> usize {
        self.memory.bytes()
    }

    /// Whether there is not one byte.
    pub fn is_empty(&self) -> bool {
        self.size() == 0
    }

    /// The device.
    pub fn device(&self) -> &Device {
        self.memory.device()
    }

    /// Where the memory begins. For an empty chunk it is aligned and points to nothing.
    pub fn data(&self) -> Address {
        self.memory.address()
    }

    /// Whether the memory goes with the chunk; false for [`Chunk::borrow`].
    pub fn owns(&self) -> bool {
        self.memory.is_owned()
    }

    /// Whether the memory may be written at all.
    pub fn is_writable(&self) -> bool {
        self.memory.is_writable()
    }

    /// All of it as elements, once what writes it has ended.
    ///
    /// # Errors
    /// The failure of the last write of any byte; `PartialElement`, `Misaligned`; `Unsupported` where
    /// the host can't address the device.
    pub fn slice<T: Element>(&self) -> Result<&[T]> {
        let range = self.host_range::<T>("read a chunk")?;
        self.memory.wait_for_host(range.clone(), false)?;
        if range.is_empty() {
            return Ok(&[]);
        }
        let pointer = self.data().as_ptr().cast::<T>().cast_const();
        // SAFETY: `host_range` proved the address host-addressable and aligned, and the size whole
        // elements; host memory is initialised (zeroed, or promised by whoever made it otherwise)
        // and any bits are a `T` ("Every bit pattern of `Self` is a value"). What wrote it has ended,
        // and nothing can begin to write while `self` is borrowed.
        Ok(unsafe { std::slice::from_raw_parts(pointer, range.len() / size_of::<T>()) })
    }

    /// All of it as elements to change, once what touches it has ended.
    ///
    /// # Errors
    /// Those of [`Chunk::slice`]; `ReadOnly`, `Exported`.
    pub fn slice_mut<T: Element>(&mut self) -> Result<&mut [T]> {
        let range = self.host_range::<T>("write a chunk")?;
        self.memory.check_writable("write a chunk")?;
        self.memory.wait_for_host(range.clone(), true)?;
        if range.is_empty() {
            return Ok(&mut []);
        }
        let pointer = self.data().as_ptr().cast::<T>();
        // SAFETY: as for `slice`; everything that touched it has ended, the memory is writable, no
        // export reads it, and nothing else can begin while `self` is borrowed mutably.
        Ok(unsafe { std::slice::from_raw_parts_mut(pointer, range.len() / size_of::<T>()) })
    }

    /// A copy of all elements in host memory, from any device.
    ///
    /// # Errors
    /// Those of [`Chunk::slice`] and of a copy; `OutOfMemory`.
    pub fn to_vec<T: Element>(&self) -> Result<Vec<T>> {
        let attempted = "copy a chunk into a vector";
        let count = self.whole_elements::<T>(attempted)?;
        if self.device().host_addressable() {
            let from = self.slice::<T>()?;
            let mut elements = reserve(count, Some(self.device()), attempted)?;
            elements.extend_from_slice(from);
            return Ok(elements);
        }
        let mut elements = reserve(count, Some(self.device()), attempted)?;
        elements.resize(count, T::default());
        copy::download(elements.span_mut()?, self)?;
        Ok(elements)
    }

    /// A dense view of the first elements in this shape.
    ///
    /// # Errors
    /// `OutOfBounds` if the chunk is too short, `Overflow`, `Misaligned`.
    pub fn view<T: Element, const R: usize>(&self, shape: [usize; R]) -> Result<View<'_, T, R>> {
        View::of(&self.memory, shape, None)
    }

    /// A dense view of the first elements in this shape, to change them.
    ///
    /// # Errors
    /// Those of [`Chunk::view`]; `ReadOnly`, `Exported`.
    pub fn view_mut<T: Element, const R: usize>(
        &mut self,
        shape: [usize; R],
    ) -> Result<ViewMut<'_, T, R>> {
        self.memory.check_writable("view a chunk")?;
        ViewMut::of(&self.memory, shape, None)
    }

    /// A view with strides of its own, in elements.
    ///
    /// # Errors
    /// Those of [`Chunk::view`].
    pub fn view_strided<T: Element, const R: usize>(
        &self,
        shape: [usize; R],
        strides: [usize; R],
    ) -> Result<View<'_, T, R>> {
        View::of(&self.memory, shape, Some(strides))
    }

    /// A view with strides of its own, in elements, to change what it shows.
    ///
    /// # Errors
    /// Those of [`Chunk::view_mut`]; `Overlap` if two indices would name one element.
    pub fn view_strided_mut<T: Element, const R: usize>(
        &mut self,
        shape: [usize; R],
        strides: [usize; R],
    ) -> Result<ViewMut<'_, T, R>> {
        self.memory.check_writable("view a chunk")?;
        ViewMut::of(&self.memory, shape, Some(strides))
    }

    /// A range of bytes, as elements of this type.
    ///
    /// # Errors
    /// `OutOfBounds`; `Misaligned` if it doesn't begin on an element; `PartialElement`.
    pub fn span_of(&self, range: impl RangeBounds<usize>, dtype: DType) -> Result<Span<'_>> {
        let range = self.check_range(range, dtype)?;
        Ok(Span::of(&self.memory, self.data().add(range.start), range.len(), dtype))
    }

    /// A range of bytes to write, as elements of this type.
    ///
    /// # Errors
    /// Those of [`Chunk::span_of`]; `ReadOnly`, `Exported`.
    pub fn span_of_mut(
        &mut self,
        range: impl RangeBounds<usize>,
        dtype: DType,
    ) -> Result<SpanMut<'_>> {
        let range = self.check_range(range, dtype)?;
        self.memory.check_writable("span a chunk")?;
        Ok(SpanMut::of(&self.memory, self.data().add(range.start), range.len(), dtype))
    }

    /// Waits until nothing touches the memory, whatever came of it.
    pub fn quiesce(&self) {
        // The outcome stays on record for whoever reads.
        drop(self.memory.wait_for_host(0..self.size(), true));
    }

    pub(crate) fn memory(&self) -> &Arc<Memory> {
        &self.memory
    }

    pub(crate) fn of(
        device: &Device,
        address: Address,
        bytes: usize,
        writable: bool,
        origin: Origin,
    ) -> Self {
        Self { memory: Arc::new(Memory::new(device.clone(), address, bytes, writable, origin)) }
    }

    fn new(device: &Device, bytes: usize, alignment: usize, zeroed: bool) -> Result<Self> {
        if !alignment.is_power_of_two() {
            let reason = format!("an alignment of {alignment} is not a power of two");
            return Err(Error::new(ErrorKind::InvalidArgument, "allocate", reason).on(device));
        }
        if bytes == 0 {
            let nothing = Address::from_raw(alignment);
            return Ok(Self::of(device, nothing, 0, true, Origin::Nothing));
        }
        let layout = Layout::from_size_align(bytes, alignment).map_err(|error| {
            let reason = "no allocation is larger than isize::MAX";
            Error::new(ErrorKind::OutOfMemory, "allocate", reason)
                .on(device)
                .of_bytes(bytes as u64)
                .caused_by(error)
        })?;
        let address = device.backend().allocate(device.id(), layout, zeroed)?;
        Ok(Self::of(device, address, bytes, true, Origin::Backend(layout)))
    }

    fn check_host(device: &Device, attempted: &'static str) -> Result<()> {
        if device.host_addressable() {
            return Ok(());
        }
        let reason = "the host can't address the device: copy to a host device";
        Err(Error::new(ErrorKind::Unsupported, attempted, reason).on(device))
    }

    fn check_adopts(device: &Device, attempted: &'static str) -> Result<()> {
        Self::check_host(device, attempted)?;
        if device.backend().adopts(device.id()) {
            return Ok(());
        }
        let reason =
            "memory that the backend did not allocate can't be the device's: copy to a chunk";
        Err(Error::new(ErrorKind::Unsupported, attempted, reason).on(device))
    }

    fn whole_elements<T: Element>(&self, attempted: &'static str) -> Result<usize> {
        let (bytes, size) = (self.size(), size_of::<T>());
        if bytes.is_multiple_of(size) {
            return Ok(bytes / size);
        }
        let reason = format!("{bytes} bytes are not whole elements of {} ({size} each)", T::DTYPE);
        Err(Error::new(ErrorKind::PartialElement, attempted, reason)
            .on(self.device())
            .of_bytes(bytes as u64))
    }

    fn host_range<T: Element>(&self, attempted: &'static str) -> Result<Range<usize>> {
        Self::check_host(self.device(), attempted)?;
        self.whole_elements::<T>(attempted)?;
        if !self.is_empty() {
            check_aligned(self.data(), T::DTYPE, attempted)
                .map_err(|error| error.on(self.device()).of_bytes(self.size() as u64))?;
        }
        Ok(0..self.size())
    }

    fn check_range(&self, range: impl RangeBounds<usize>, dtype: DType) -> Result<Range<usize>> {
        let attempted = "span a chunk";
        let start = match range.start_bound() {
            Bound::Included(&at) => at,
            Bound::Excluded(&at) => at.saturating_add(1),
            Bound::Unbounded => 0,
        };
        let end = match range.end_bound() {
            Bound::Included(&at) => at.saturating_add(1),
            Bound::Excluded(&at) => at,
            Bound::Unbounded => self.size(),
        };
        // No chunk is so large that a saturated end would lie inside.
        if start > end || end > self.size() {
            let reason = format!("bytes {start}..{end} lie outside of the chunk");
            return Err(Error::new(ErrorKind::OutOfBounds, attempted, reason)
                .on(self.device())
                .of_bytes(self.size() as u64));
        }
        if !(end - start).is_multiple_of(dtype.size()) {
            let reason = format!("{} bytes are not whole elements of {dtype}", end - start);
            return Err(Error::new(ErrorKind::PartialElement, attempted, reason)
                .on(self.device())
                .of_bytes((end - start) as u64));
        }
        if start < end {
            check_aligned(self.data().add(start), dtype, attempted)
                .map_err(|error| error.on(self.device()).of_bytes((end - start) as u64))?;
        }
        Ok(start..end)
    }
}

/// Refuses an address that isn't a multiple of the element's size.
pub(crate) fn check_aligned(address: Address, dtype: DType, attempted: &'static str) -> Result<()> {
    if address.addr().is_multiple_of(dtype.size()) {
        return Ok(());
    }
    let reason = format!("{address:?} is not a multiple of {}, as {dtype} needs", dtype.size());
    Err(Error::new(ErrorKind::Misaligned, attempted, reason))
}

/// An empty vector with room for so many elements.
pub(crate) fn reserve<T: Element>(
    count: usize,
    device: Option<&Device>,
    attempted: &'static str,
) -> Result<Vec<T>> {
    let mut elements = Vec::new();
    elements.try_reserve_exact(count).map_err(|error| {
        let bytes = (count as u64).saturating_mul(size_of::<T>() as u64);
        let refusal =
            Error::new(ErrorKind::OutOfMemory, attempted, "the host has not as much memory")
                .of_bytes(bytes)
                .caused_by(error);
        match device {
            Some(device) => refusal.on(device),
            None => refusal,
        }
    })?;
    Ok(elements)
}

impl AsSpan for Chunk {
    /// All bytes, as `u8`.
    fn span(&self) -> Result<Span<'_>> {
        self.span_of(.., DType::U8)
    }
}

impl AsSpanMut for Chunk {
    /// All bytes, as `u8`.
    fn span_mut(&mut self) -> Result<SpanMut<'_>> {
        self.span_of_mut(.., DType::U8)
    }
}

impl fmt::Debug for Chunk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Chunk({} {:?}+{})", self.device(), self.data(), self.size())
    }
}

//! Shaped windows on memory: of a chunk, or of a slice of the host.
//!
//! A view carries a shape and strides, both in elements; the last dimension is the sample dimension.
//! Making and narrowing views neither allocates nor copies nor waits; asking one for its elements
//! waits for the work that it conflicts with.

mod dynamic;
mod shape;

use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

use crate::backend::Address;
use crate::chunk::{check_aligned, reserve};
use crate::memory::Memory;
use crate::span::{AsSpan, AsSpanMut, Span, SpanMut};
use crate::{Device, Element, Error, ErrorKind, Result};

pub use dynamic::DynView;
pub(crate) use shape::{dense_strides, elements_of, extent_of, refuse_self_overlap};

/// A shaped window on memory, to read.
#[derive(Clone, Copy)]
pub struct View<'a, T, const R: usize> {
    memory: Option<&'a Arc<Memory>>,
    address: Address,
    shape: [usize; R],
    strides: [usize; R],
    elements: PhantomData<&'a [T]>,
}

/// A shaped window on memory, to read and to write. No two indices name one element.
pub struct ViewMut<'a, T, const R: usize> {
    view: View<'a, T, R>,
    elements: PhantomData<&'a mut [T]>,
}

impl<'a, T: Element, const R: usize> View<'a, T, R> {
    /// A dense view of a slice in this shape.
    ///
    /// # Errors
    /// `OutOfBounds` if the slice is too short, `Overflow`.
    pub fn new(slice: &'a [T], shape: [usize; R]) -> Result<Self> {
        Self::strided(slice, shape, dense_strides(shape)?)
    }

    /// A view of a slice with strides of its own, in elements.
    ///
    /// # Errors
    /// `OutOfBounds` if the slice is too short, `Overflow`.
    pub fn strided(slice: &'a [T], shape: [usize; R], strides: [usize; R]) -> Result<Self> {
        check_extent::<T>(&shape, &strides, size_of_val(slice))?;
        let address = Address::from_ptr(slice.as_ptr().cast_mut().cast());
        Ok(Self { memory: None, address, shape, strides, elements: PhantomData })
    }

    /// A view of a chunk's memory.
    pub(crate) fn of(
        memory: &'a Arc<Memory>,
        shape: [usize; R],
        strides: Option<[usize; R]>,
    ) -> Result<Self> {
        let strides = strides
            .map_or_else(|| dense_strides(shape), Ok)
            .map_err(|error| error.on(memory.device()))?;
        check_extent::<T>(&shape, &strides, memory.bytes())
            .and_then(|()| match shape.contains(&0) {
                true => Ok(()),
                false => check_aligned(memory.address(), T::DTYPE, "view a chunk"),
            })
            .map_err(|error| error.on(memory.device()))?;
        Ok(Self {
            memory: Some(memory),
            address: memory.address(),
            shape,
            strides,
            elements: PhantomData,
        })
    }

    /// The extent of each dimension.
    pub fn shape(&self) -> [usize; R] {
        self.shape
    }

    /// From one index to the next in each dimension, in elements.
    pub fn strides(&self) -> [usize; R] {
        self.strides
    }

    /// How many elements there are.
    pub fn len(&self) -> usize {
        // The other extents of an empty view may have a product that overflows.
        if self.is_empty() { 0 } else { self.shape.iter().product() }
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.shape.contains(&0)
    }

    /// Where the first element is.
    pub fn address(&self) -> Address {
        self.address
    }

    /// The device, or none for a slice of the host.
    pub fn device(&self) -> Option<&'a Device> {
        self.memory.map(|it| it.device())
    }

    /// Whether the elements lie densely in order: only then is there a slice of all of them.
    pub fn is_contiguous(&self) -> bool {
        self.is_empty() || shape::is_contiguous(&self.shape, &self.strides)
    }

    /// The part of dimension `dimension` from `start` that is `length` long. It neither allocates nor
    /// copies. The address of an empty part stays within the view.
    ///
    /// # Errors
    /// `OutOfBounds` if there is no such dimension or the part isn't inside of it.
    pub fn narrow(&self, dimension: usize, start: usize, length: usize) -> Result<Self> {
        let extent = self.shape.get(dimension).copied();
        let inside = |extent: usize| start.checked_add(length).is_some_and(|end| end <= extent);
        if !extent.is_some_and(inside) {
            let reason = format!(
                "{start}+{length} of dimension {dimension} lies outside of the shape {:?}",
                self.shape
            );
            return Err(self.refuse(ErrorKind::OutOfBounds, "narrow a view", reason));
        }
        let mut part = *self;
        // An empty part keeps the address, so that none is computed past the end.
        if let (Some(extent), Some(stride)) =
            (part.shape.get_mut(dimension), self.strides.get(dimension))
        {
            *extent = length;
            if !part.is_empty() {
                part.address = self.address.add(start * stride * size_of::<T>());
            }
        }
        Ok(part)
    }

    /// All elements, once what writes them has ended.
    ///
    /// # Errors
    /// `NotContiguous` for a view with gaps; the failure of the last write of any element;
    /// `Unsupported` where the host can't address the memory.
    pub fn as_slice(&self) -> Result<&'a [T]> {
        let span = self.contiguous("take a slice of a view")?;
        self.host(span, false)?;
        if self.is_empty() {
            return Ok(&[]);
        }
        // SAFETY: `contiguous` proved the elements to lie densely in the memory of the view, which is
        // valid for `'a`, aligned and initialised; `host` proved the memory host-addressable, and
        // waited for what writes it; nothing can begin to write it while it is borrowed for `'a`.
        Ok(unsafe { std::slice::from_raw_parts(self.address.as_ptr().cast(), self.len()) })
    }

    /// The elements along the last dimension from `index` on, once what writes them has ended.
    ///
    /// # Errors
    /// `OutOfBounds`; `NotContiguous` if the last stride isn't 1; those of [`View::as_slice`].
    pub fn lane(&self, index: [usize; R]) -> Result<&'a [T]> {
        let (address, length) = self.locate_lane(index)?;
        self.host(self.span_at(address, length), false)?;
        if length == 0 {
            return Ok(&[]);
        }
        // SAFETY: as in `as_slice`, for the part that `locate_lane` proved to be inside of the view
        // and dense.
        Ok(unsafe { std::slice::from_raw_parts(address.as_ptr().cast(), length) })
    }

    /// One element, once what writes it has ended.
    ///
    /// # Errors
    /// `OutOfBounds`; those of [`View::as_slice`].
    pub fn at(&self, index: [usize; R]) -> Result<T> {
        let address = self.locate(index)?;
        self.host(self.span_at(address, 1), false)?;
        // SAFETY: as in `as_slice`, for the element that `locate` proved to be inside of the view.
        Ok(unsafe { address.as_ptr().cast::<T>().read() })
    }

    /// The same window without the type.
    pub fn to_dyn(&self) -> DynView<'a> {
        DynView::from_parts(self.memory, self.address, T::DTYPE, &self.shape, &self.strides)
    }

    fn contiguous(&self, attempted: &'static str) -> Result<Span<'a>> {
        if self.is_contiguous() {
            return Ok(self.span_at(self.address, self.len()));
        }
        let reason = format!(
            "shape {:?} with strides {:?} has gaps: pack it first with View::pack, or scatter it with \
             PartitionedArray",
            self.shape, self.strides
        );
        Err(self.refuse(ErrorKind::NotContiguous, attempted, reason))
    }

    /// A dense copy of the elements in the host's memory.
    ///
    /// # Errors
    /// The failure of the last write of any element; `Unsupported` where the host can't address the
    /// memory; `OutOfMemory`.
    pub fn pack(&self) -> Result<Vec<T>> {
        let mut packed = reserve(self.len(), self.device(), "pack a view")?;
        if self.is_empty() {
            return Ok(packed);
        }
        let row = match (self.shape.last(), self.strides.last()) {
            (Some(&extent), Some(1)) => extent,
            _ => 1,
        };
        let mut index = [0; R];
        loop {
            if row > 1 {
                packed.extend_from_slice(self.lane(index)?);
                // The next step leaves the row.
                if let Some(at) = index.last_mut() {
                    *at = row - 1;
                }
            } else {
                packed.push(self.at(index)?);
            }
            if !shape::step(&mut index, &self.shape) {
                return Ok(packed);
            }
        }
    }

    /// A refusal that names the device, where there is one.
    fn refuse(&self, kind: ErrorKind, attempted: &'static str, reason: String) -> Error {
        let error = Error::new(kind, attempted, reason);
        match self.device() {
            Some(device) => error.on(device),
            None => error,
        }
    }

    fn locate(&self, index: [usize; R]) -> Result<Address> {
        let inside = index.iter().zip(&self.shape).all(|(at, extent)| at < extent);
        if !inside {
            let reason = format!("{index:?} lies outside of the shape {:?}", self.shape);
            return Err(self.refuse(ErrorKind::OutOfBounds, "index a view", reason));
        }
        let elements: usize = index.iter().zip(&self.strides).map(|(at, stride)| at * stride).sum();
        Ok(self.address.add(elements * size_of::<T>()))
    }

    fn locate_lane(&self, index: [usize; R]) -> Result<(Address, usize)> {
        let (Some(&at), Some(&extent), Some(&stride)) =
            (index.last(), self.shape.last(), self.strides.last())
        else {
            return Ok((self.address, 1));
        };
        let length = extent.saturating_sub(at);
        if stride != 1 && length > 1 {
            let reason = format!("the stride of the last dimension is {stride}");
            return Err(self.refuse(ErrorKind::NotContiguous, "take a lane of a view", reason));
        }
        let others =
            index.iter().zip(&self.shape).take(R.saturating_sub(1)).all(|(at, extent)| at < extent);
        if length == 0 && at == extent && others {
            return Ok((self.address, 0));
        }
        Ok((self.locate(index)?, length))
    }

    fn span_at(&self, address: Address, elements: usize) -> Span<'a> {
        let bytes = elements * size_of::<T>();
        match self.memory {
            Some(memory) => Span::of(memory, address, bytes, T::DTYPE),
            // SAFETY: without a chunk the view was made from a slice that is borrowed for `'a`, and
            // the elements are inside of it.
            None => unsafe { Span::from_raw(address, bytes, T::DTYPE) },
        }
    }

    fn host(&self, span: Span<'_>, writes: bool) -> Result<()> {
        let Some(memory) = self.memory else { return Ok(()) };
        if !memory.device().host_addressable() {
            let reason = "the host can't address the device: copy to a host device";
            return Err(
                Error::new(ErrorKind::Unsupported, "read a view", reason).on(memory.device())
            );
        }
        memory.wait_for_host(span.offsets(), writes)
    }
}

impl<'a, T: Element, const R: usize> ViewMut<'a, T, R> {
    /// A dense view of a slice in this shape.
    ///
    /// # Errors
    /// `OutOfBounds` if the slice is too short, `Overflow`.
    pub fn new(slice: &'a mut [T], shape: [usize; R]) -> Result<Self> {
        Self::strided(slice, shape, dense_strides(shape)?)
    }

    /// A view of a slice with strides of its own, in elements.
    ///
    /// # Errors
    /// `OutOfBounds` if the slice is too short, `Overflow`; `Overlap` if two indices might name one
    /// element (a stride of 0, say).
    pub fn strided(slice: &'a mut [T], shape: [usize; R], strides: [usize; R]) -> Result<Self> {
        refuse_self_overlap(&shape, &strides)?;
        check_extent::<T>(&shape, &strides, size_of_val(slice))?;
        let address = Address::from_ptr(slice.as_mut_ptr().cast());
        let view = View { memory: None, address, shape, strides, elements: PhantomData };
        Ok(Self { view, elements: PhantomData })
    }

    /// A view of a chunk's memory that nobody else holds for `'a`.
    pub(crate) fn of(
        memory: &'a Arc<Memory>,
        shape: [usize; R],
        strides: Option<[usize; R]>,
    ) -> Result<Self> {
        let view = View::of(memory, shape, strides)?;
        refuse_self_overlap(&view.shape, &view.strides)
            .map_err(|error| error.on(memory.device()))?;
        Ok(Self { view, elements: PhantomData })
    }

    /// The same window to look at.
    pub fn as_view(&self) -> View<'_, T, R> {
        self.view
    }

    /// The same window to write, for a shorter time.
    pub fn reborrow(&mut self) -> ViewMut<'_, T, R> {
        ViewMut { view: self.view, elements: PhantomData }
    }

    /// The extent of each dimension.
    pub fn shape(&self) -> [usize; R] {
        self.view.shape
    }

    /// From one index to the next in each dimension, in elements.
    pub fn strides(&self) -> [usize; R] {
        self.view.strides
    }

    /// How many elements there are.
    pub fn len(&self) -> usize {
        self.view.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.view.is_empty()
    }

    /// The device, or none for a slice of the host.
    pub fn device(&self) -> Option<&'a Device> {
        self.view.device()
    }

    /// As [`View::narrow`].
    ///
    /// # Errors
    /// Those of [`View::narrow`].
    pub fn narrow(self, dimension: usize, start: usize, length: usize) -> Result<Self> {
        Ok(Self { view: self.view.narrow(dimension, start, length)?, elements: PhantomData })
    }

    /// Two views that share no element: the part of a dimension before `at`, and the rest.
    ///
    /// # Errors
    /// `OutOfBounds` if there is no such dimension or it is shorter.
    pub fn split_at(self, dimension: usize, at: usize) -> Result<(Self, Self)> {
        let extent = self.view.shape.get(dimension).copied().unwrap_or(0);
        let front = self.view.narrow(dimension, 0, at)?;
        let back = self.view.narrow(dimension, at, extent - at)?;
        let own = |view| Self { view, elements: PhantomData };
        Ok((own(front), own(back)))
    }

    /// All elements to change, once what touches them has ended.
    ///
    /// # Errors
    /// Those of [`View::as_slice`]; `ReadOnly`, `Exported`.
    pub fn as_slice_mut(&mut self) -> Result<&mut [T]> {
        let span = self.view.contiguous("take a slice of a view")?;
        self.host(span)?;
        if self.is_empty() {
            return Ok(&mut []);
        }
        let pointer = self.view.address.as_ptr().cast();
        // SAFETY: as in `View::as_slice`; what touches the memory has ended, and nobody else can
        // begin to while the view, which holds it alone, is borrowed mutably.
        Ok(unsafe { std::slice::from_raw_parts_mut(pointer, self.view.len()) })
    }

    /// The elements along the last dimension from `index` on, to change them.
    ///
    /// # Errors
    /// Those of [`View::lane`]; `ReadOnly`, `Exported`.
    pub fn lane_mut(&mut self, index: [usize; R]) -> Result<&mut [T]> {
        let (address, length) = self.view.locate_lane(index)?;
        self.host(self.view.span_at(address, length))?;
        if length == 0 {
            return Ok(&mut []);
        }
        // SAFETY: as in `as_slice_mut`, for the part that `locate_lane` proved to be inside.
        Ok(unsafe { std::slice::from_raw_parts_mut(address.as_ptr().cast(), length) })
    }

    fn host(&self, span: Span<'_>) -> Result<()> {
        if let Some(memory) = self.view.memory {
            memory.check_writable("write a view")?;
        }
        self.view.host(span, true)
    }
}

/// Refuses a shape that doesn't fit into so many bytes.
fn check_extent<T: Element>(shape: &[usize], strides: &[usize], bytes: usize) -> Result<()> {
    let extent = extent_of(shape, strides)?;
    elements_of(shape)?;
    if extent.checked_mul(size_of::<T>()).is_none_or(|it| it > bytes) {
        let reason = format!(
            "shape {shape:?} with strides {strides:?} needs {extent} elements of {}",
            T::DTYPE
        );
        return Err(
            Error::new(ErrorKind::OutOfBounds, "make a view", reason).of_bytes(bytes as u64)
        );
    }
    Ok(())
}

impl<T: Element, const R: usize> AsSpan for View<'_, T, R> {
    fn span(&self) -> Result<Span<'_>> {
        self.contiguous("span a view")
    }
}

impl<T: Element, const R: usize> AsSpan for ViewMut<'_, T, R> {
    fn span(&self) -> Result<Span<'_>> {
        self.view.contiguous("span a view")
    }
}

impl<T: Element, const R: usize> AsSpanMut for ViewMut<'_, T, R> {
    fn span_mut(&mut self) -> Result<SpanMut<'_>> {
        let span = self.view.contiguous("span a view")?;
        let (address, bytes) = (span.address(), span.bytes());
        Ok(match self.view.memory {
            Some(memory) => SpanMut::of(memory, address, bytes, T::DTYPE),
            // SAFETY: without a chunk the view was made from a slice that is borrowed mutably, and
            // holds it alone; the elements are inside of it.
            None => unsafe { SpanMut::from_raw(address, bytes, T::DTYPE) },
        })
    }
}

impl<T: Element, const R: usize> fmt::Debug for View<'_, T, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "View({} {:?} strides {:?})", T::DTYPE, self.shape, self.strides)
    }
}

impl<T: Element, const R: usize> fmt::Debug for ViewMut<'_, T, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ViewMut({} {:?} strides {:?})", T::DTYPE, self.shape(), self.strides())
    }
}

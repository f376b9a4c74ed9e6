//! Views whose type and rank are known only at run time.

use std::fmt;
use std::marker::PhantomData;
use std::ops::Range;
use std::sync::Arc;

use crate::backend::Address;
use crate::memory::Memory;
use crate::view::View;
use crate::{Chunk, DType, Device, Element, Error, ErrorKind, Result};

use super::{elements_of, extent_of};

/// A shaped window on memory whose element type and rank are known only at run time.
#[derive(Clone)]
pub struct DynView<'a> {
    memory: Option<&'a Arc<Memory>>,
    address: Address,
    dtype: DType,
    shape: Vec<usize>,
    strides: Vec<usize>,
}

impl<'a> DynView<'a> {
    /// A window on a chunk, from a byte offset on, with strides in elements.
    ///
    /// # Errors
    /// `OutOfBounds` if the chunk is too short, `Overflow`, `Misaligned`; `InvalidArgument` if there
    /// are more or fewer strides than extents.
    pub fn new(
        chunk: &'a Chunk,
        byte_offset: usize,
        dtype: DType,
        shape: &[usize],
        strides: &[usize],
    ) -> Result<Self> {
        let refuse = |kind, reason: String| {
            Err(Error::new(kind, "make a view", reason)
                .on(chunk.device())
                .of_bytes(chunk.size() as u64))
        };
        if shape.len() != strides.len() {
            let reason = format!("shape {shape:?} and strides {strides:?} differ in length");
            return refuse(ErrorKind::InvalidArgument, reason);
        }
        let on_device = |error: Error| error.on(chunk.device());
        elements_of(shape).map_err(on_device)?;
        let extent = extent_of(shape, strides).map_err(on_device)?.checked_mul(dtype.size());
        let end = extent.and_then(|it| it.checked_add(byte_offset));
        if end.is_none_or(|end| end > chunk.size()) {
            let reason = format!(
                "shape {shape:?} with strides {strides:?} of {dtype} from byte {byte_offset} doesn't \
                 fit"
            );
            return refuse(ErrorKind::OutOfBounds, reason);
        }
        let address = chunk.data().add(byte_offset);
        if !shape.contains(&0) {
            crate::chunk::check_aligned(address, dtype, "make a view")
                .map_err(|error| error.on(chunk.device()))?;
        }
        Ok(Self::from_parts(Some(chunk.memory()), address, dtype, shape, strides))
    }

    pub(crate) fn from_parts(
        memory: Option<&'a Arc<Memory>>,
        address: Address,
        dtype: DType,
        shape: &[usize],
        strides: &[usize],
    ) -> Self {
        Self { memory, address, dtype, shape: shape.to_vec(), strides: strides.to_vec() }
    }

    /// The same window with its type and rank known.
    ///
    /// # Errors
    /// `DTypeMismatch` for another element type; `SizeMismatch` for another rank.
    pub fn typed<T: Element, const R: usize>(&self) -> Result<View<'a, T, R>> {
        let attempted = "make a typed view";
        if T::DTYPE != self.dtype {
            let reason = format!("the elements are {} and not {}", self.dtype, T::DTYPE);
            return Err(Error::new(ErrorKind::DTypeMismatch, attempted, reason));
        }
        let (Ok(shape), Ok(strides)) =
            (self.shape.as_slice().try_into(), self.strides.as_slice().try_into())
        else {
            let reason = format!("the view has {} dimensions and not {R}", self.shape.len());
            return Err(Error::new(ErrorKind::SizeMismatch, attempted, reason));
        };
        Ok(View {
            memory: self.memory,
            address: self.address,
            shape,
            strides,
            elements: PhantomData,
        })
    }

    /// The element type.
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// The extent of each dimension.
    pub fn shape(&self) -> &[usize] {
        &self.shape
    }

    /// From one index to the next in each dimension, in elements.
    pub fn strides(&self) -> &[usize] {
        &self.strides
    }

    /// Where the first element is.
    pub fn address(&self) -> Address {
        self.address
    }

    /// The device, or none for a slice of the host.
    pub fn device(&self) -> Option<&'a Device> {
        self.memory.map(|it| it.device())
    }

    /// The memory of the chunk, or none for a slice of the host.
    pub(crate) fn memory(&self) -> Option<&'a Arc<Memory>> {
        self.memory
    }

    /// From the first element to the last, in bytes of the chunk.
    pub(crate) fn offsets(&self) -> Result<Range<usize>> {
        let bytes = extent_of(&self.shape, &self.strides)? * self.dtype.size();
        let base = self.memory.map_or(self.address, |it| it.address());
        let start = self.address.addr() - base.addr();
        Ok(start..start + bytes)
    }
}

impl<'a, T: Element, const R: usize> From<View<'a, T, R>> for DynView<'a> {
    fn from(view: View<'a, T, R>) -> Self {
        view.to_dyn()
    }
}

impl<'a> From<&DynView<'a>> for DynView<'a> {
    fn from(view: &DynView<'a>) -> Self {
        view.clone()
    }
}

impl fmt::Debug for DynView<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "DynView({} {:?} strides {:?})", self.dtype, self.shape, self.strides)
    }
}

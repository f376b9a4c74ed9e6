//! How the elements of a tensor lie in a chunk.

use crate::{Chunk, DType, DynView, Result};

/// Which elements of a chunk a tensor has: their type, shape, strides in elements, and where the first
/// one is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    dtype: DType,
    shape: Vec<usize>,
    strides: Vec<usize>,
    byte_offset: usize,
}

impl Layout {
    /// Elements that lie densely in order, from the beginning of the chunk on.
    pub fn dense(dtype: DType, shape: &[usize]) -> Self {
        Self { dtype, shape: shape.to_vec(), strides: row_major(shape), byte_offset: 0 }
    }

    /// The same elements at other distances, in elements.
    #[must_use]
    pub fn with_strides(mut self, strides: &[usize]) -> Self {
        self.strides = strides.to_vec();
        self
    }

    /// The same elements further on: the first one at this byte of the chunk.
    #[must_use]
    pub fn at_byte(mut self, byte_offset: usize) -> Self {
        self.byte_offset = byte_offset;
        self
    }

    /// These elements of a chunk.
    ///
    /// # Errors
    /// Those of [`DynView::new`].
    pub fn view<'a>(&self, chunk: &'a Chunk) -> Result<DynView<'a>> {
        DynView::new(chunk, self.byte_offset, self.dtype, &self.shape, &self.strides)
    }
}

/// The strides of elements that lie densely in order. Where they overflow, so does the extent, which
/// is refused; and of an empty shape no stride is ever used.
pub(super) fn row_major(shape: &[usize]) -> Vec<usize> {
    let mut strides = vec![1usize; shape.len()];
    let mut next = 1usize;
    for (stride, &extent) in strides.iter_mut().zip(shape).rev() {
        *stride = next;
        next = next.saturating_mul(extent.max(1));
    }
    strides
}

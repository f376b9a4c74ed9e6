//! Where the blocks of a partitioned array lie, in bytes.

use std::ops::Range;

use aether_core::{Element, Error, ErrorKind, Result, Rows};

use crate::partition::{PartitionSpec, padded_block_samples};

/// The shape of an array, its partition, and what follows from both.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Blocks<const R: usize> {
    shape: [usize; R],
    spec: PartitionSpec,
    /// The product of all extents but the samples.
    rows: usize,
    samples: usize,
    pitch: usize,
    /// The size of one element, in bytes.
    width: usize,
}

/// What one block has, in bytes: where it lies in the whole, where in its own chunk, and its rows with
/// the whole as the source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) whole: Range<usize>,
    pub(crate) own: Range<usize>,
    pub(crate) rows: Rows,
}

impl<const R: usize> Blocks<R> {
    /// # Errors
    /// `InvalidArgument` for no dimension or a padding of 0, `Overflow`.
    pub(crate) fn new<T: Element>(shape: [usize; R], spec: PartitionSpec) -> Result<Self> {
        let attempted = "partition an array";
        let Some((&samples, leading)) = shape.split_last() else {
            let reason = "an array without a dimension has no samples";
            return Err(Error::new(ErrorKind::InvalidArgument, attempted, reason));
        };
        let pitch = padded_block_samples(samples, spec)?;
        let width = size_of::<T>();
        // An extent of 0 makes an empty array, however large the others are.
        let rows = if leading.contains(&0) { Some(0) } else { product(leading) };
        let fits = |rows: usize| {
            let bytes = |samples: usize| rows.checked_mul(samples)?.checked_mul(width);
            let largest = bytes(samples)?.max(bytes(pitch)?);
            isize::try_from(largest).ok()
        };
        match rows.filter(|&rows| fits(rows).is_some()) {
            Some(rows) => Ok(Self { shape, spec, rows, samples, pitch, width }),
            None => {
                let reason = format!(
                    "shape {shape:?} of {}, in blocks of {pitch} samples, overflows",
                    T::DTYPE
                );
                Err(Error::new(ErrorKind::Overflow, attempted, reason))
            }
        }
    }

    pub(crate) fn shape(&self) -> [usize; R] {
        self.shape
    }

    pub(crate) fn spec(&self) -> PartitionSpec {
        self.spec
    }

    /// The size of the whole, in bytes.
    pub(crate) fn whole_bytes(&self) -> usize {
        self.rows * self.samples * self.width
    }

    /// The size of the chunk of any block, in bytes.
    pub(crate) fn own_bytes(&self) -> usize {
        self.rows * self.pitch * self.width
    }

    /// The shape of a block, and its strides within its chunk.
    pub(crate) fn window(&self, rank: usize) -> Result<([usize; R], [usize; R])> {
        let extent = self.spec.block(self.samples, rank)?.len();
        let mut shape = self.shape;
        if let Some(samples) = shape.last_mut() {
            *samples = extent;
        }
        let mut strides = [1; R];
        let mut next = 1usize;
        let padded = self.shape.iter().rev().skip(1);
        for (stride, extent) in strides.iter_mut().rev().zip([self.pitch].iter().chain(padded)) {
            *stride = next;
            // What overflows here belongs to an empty array, and is never used to find an element.
            next = next.saturating_mul((*extent).max(1));
        }
        Ok((shape, strides))
    }

    /// Where a block lies; none if it is empty.
    pub(crate) fn place(&self, rank: usize) -> Result<Option<Place>> {
        let block = self.spec.block(self.samples, rank)?;
        if block.is_empty() || self.rows == 0 {
            return Ok(None);
        }
        let bytes = block.len() * self.width;
        let start = block.start * self.width;
        let (whole_pitch, own_pitch) = (self.samples * self.width, self.pitch * self.width);
        let extent = |pitch: usize| (self.rows - 1) * pitch + bytes;
        let rows = Rows { count: self.rows, bytes, dst_pitch: own_pitch, src_pitch: whole_pitch };
        Ok(Some(Place {
            whole: start..start + extent(whole_pitch),
            own: 0..extent(own_pitch),
            rows,
        }))
    }
}

impl Place {
    /// From the whole to the block.
    pub(crate) fn scattering(&self) -> Rows {
        densest(self.rows)
    }

    /// From the block to the whole.
    pub(crate) fn gathering(&self) -> Rows {
        let Rows { dst_pitch, src_pitch, .. } = self.rows;
        densest(Rows { dst_pitch: src_pitch, src_pitch: dst_pitch, ..self.rows })
    }

    /// From block to block.
    pub(crate) fn moving(&self) -> Rows {
        densest(Rows { src_pitch: self.rows.dst_pitch, ..self.rows })
    }
}

/// The same rows as one, where they follow each other without a gap on both sides.
fn densest(rows: Rows) -> Rows {
    if rows.dst_pitch != rows.bytes || rows.src_pitch != rows.bytes {
        return rows;
    }
    let bytes = rows.count * rows.bytes;
    Rows { count: 1, bytes, dst_pitch: bytes, src_pitch: bytes }
}

fn product(extents: &[usize]) -> Option<usize> {
    extents.iter().try_fold(1usize, |product, &it| product.checked_mul(it))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_has_its_own_extent_and_the_padded_stride() {
        let blocks = Blocks::new::<u32>([2, 3, 10], PartitionSpec::new(3).pad_to(4)).unwrap();
        assert_eq!((blocks.whole_bytes(), blocks.own_bytes()), (2 * 3 * 10 * 4, 2 * 3 * 4 * 4));
        assert_eq!(blocks.window(0).unwrap(), ([2, 3, 4], [12, 4, 1]));
        assert_eq!(blocks.window(2).unwrap(), ([2, 3, 2], [12, 4, 1]));
        let place = blocks.place(2).unwrap().unwrap();
        assert_eq!((place.whole.clone(), place.own.clone()), (32..32 + 5 * 40 + 8, 0..5 * 16 + 8));
        let rows = Rows { count: 6, bytes: 8, dst_pitch: 16, src_pitch: 40 };
        assert_eq!(place.scattering(), rows);
        assert_eq!(place.gathering(), Rows { dst_pitch: 40, src_pitch: 16, ..rows });
        assert_eq!(place.moving(), Rows { src_pitch: 16, ..rows });
    }

    #[test]
    fn an_empty_block_is_nowhere() {
        let blocks = Blocks::new::<u8>([2, 3], PartitionSpec::new(5).pad_to(1)).unwrap();
        assert_eq!(blocks.place(3).unwrap(), None);
        assert_eq!(blocks.place(5).unwrap_err().kind(), ErrorKind::OutOfBounds);
        let blocks = Blocks::new::<u8>([0, 3], PartitionSpec::new(1)).unwrap();
        assert_eq!(blocks.place(0).unwrap(), None);
    }
}

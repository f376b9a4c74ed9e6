//! One view sliced along its samples: real extent, padded stride.

use std::ops::Range;

use aether_core::{Element, Error, ErrorKind, Result, View, ViewMut};

/// Into how many blocks the samples of a view are sliced, and where the blocks may begin.
///
/// With `n` samples the pitch is `n / parts`, rounded up, and then up to a multiple of `pad_to`. Block
/// `r` begins at `r` times the pitch. It has what is left of the samples, at most the pitch, and so it
/// may be empty.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PartitionSpec {
    /// How many blocks.
    pub parts: usize,
    /// Of what the distance between two blocks is a multiple, in samples.
    pub pad_to: usize,
}

impl PartitionSpec {
    /// What [`PartitionSpec::pad_to`] is unless another is asked for.
    pub const PAD_TO: usize = 32;

    /// So many blocks, at multiples of [`PartitionSpec::PAD_TO`] samples.
    pub const fn new(parts: usize) -> Self {
        Self { parts, pad_to: Self::PAD_TO }
    }

    /// The same with blocks at multiples of `pad_to` samples.
    #[must_use]
    pub const fn pad_to(self, pad_to: usize) -> Self {
        Self { pad_to, ..self }
    }

    /// Which of the samples block `rank` has. An empty block is at the end of the samples.
    ///
    /// # Errors
    /// Those of [`padded_block_samples`]; `OutOfBounds` if there is no such block.
    #[inline]
    pub fn block(self, samples: usize, rank: usize) -> Result<Range<usize>> {
        let pitch = padded_block_samples(samples, self)?;
        if rank >= self.parts {
            return Err(no_such_block(self, rank));
        }
        // A start that overflows is past the end as well.
        let start = rank.saturating_mul(pitch).min(samples);
        Ok(start..start + pitch.min(samples - start))
    }
}

/// The distance from block to block, in samples.
///
/// # Errors
/// `InvalidArgument` for no parts or a padding of 0; `Overflow`.
#[inline]
pub fn padded_block_samples(samples: usize, spec: PartitionSpec) -> Result<usize> {
    let PartitionSpec { parts, pad_to } = spec;
    if parts == 0 || pad_to == 0 {
        return Err(degenerate(samples, spec));
    }
    let least = samples.div_ceil(parts);
    // The usual paddings are powers of two, and a division costs more than the rest of the call.
    let padded = match pad_to.is_power_of_two() {
        true => least.checked_add(pad_to - 1).map(|it| it & !(pad_to - 1)),
        false => least.checked_next_multiple_of(pad_to),
    };
    padded.ok_or_else(|| overflow(samples, spec))
}

/// Block `rank` of the view's samples, which are its last dimension. It neither allocates nor copies;
/// the strides are the view's own.
///
/// # Errors
/// Those of [`PartitionSpec::block`]; `InvalidArgument` for a view without a dimension.
#[inline]
pub fn partition_view<'a, T: Element, const R: usize>(
    view: &View<'a, T, R>,
    spec: PartitionSpec,
    rank: usize,
) -> Result<View<'a, T, R>> {
    let (dimension, samples) = samples_of(&view.shape())?;
    let block = spec.block(samples, rank)?;
    view.narrow(dimension, block.start, block.len())
}

/// As [`partition_view`], to write; [`ViewMut::reborrow`] keeps the whole for later.
///
/// # Errors
/// Those of [`partition_view`].
#[inline]
pub fn partition_view_mut<T: Element, const R: usize>(
    view: ViewMut<'_, T, R>,
    spec: PartitionSpec,
    rank: usize,
) -> Result<ViewMut<'_, T, R>> {
    let (dimension, samples) = samples_of(&view.shape())?;
    let block = spec.block(samples, rank)?;
    view.narrow(dimension, block.start, block.len())
}

/// All blocks of the view, by rank, each to write.
///
/// # Errors
/// Those of [`partition_view`].
pub fn partition_views_mut<T: Element, const R: usize>(
    view: ViewMut<'_, T, R>,
    spec: PartitionSpec,
) -> Result<Vec<ViewMut<'_, T, R>>> {
    let (dimension, samples) = samples_of(&view.shape())?;
    let mut blocks = Vec::new();
    let mut rest = view;
    for rank in 0..spec.parts.max(1) {
        let (block, after) = rest.split_at(dimension, spec.block(samples, rank)?.len())?;
        blocks.push(block);
        rest = after;
    }
    Ok(blocks)
}

/// The sample dimension and its extent.
#[inline]
fn samples_of(shape: &[usize]) -> Result<(usize, usize)> {
    match shape.last() {
        Some(&samples) => Ok((shape.len() - 1, samples)),
        None => Err(no_samples()),
    }
}

#[cold]
fn degenerate(samples: usize, PartitionSpec { parts, pad_to }: PartitionSpec) -> Error {
    let reason =
        format!("{samples} samples in {parts} parts, padded to {pad_to}: neither may be 0");
    Error::new(ErrorKind::InvalidArgument, "partition", reason)
}

#[cold]
fn overflow(samples: usize, PartitionSpec { parts, pad_to }: PartitionSpec) -> Error {
    let reason = format!("{samples} samples in {parts} parts, padded to {pad_to}, overflow");
    Error::new(ErrorKind::Overflow, "partition", reason)
}

#[cold]
fn no_such_block(PartitionSpec { parts, .. }: PartitionSpec, rank: usize) -> Error {
    let reason = format!("block {rank} of {parts}, which are counted from 0");
    Error::new(ErrorKind::OutOfBounds, "partition", reason)
}

#[cold]
fn no_samples() -> Error {
    let reason = "a view without a dimension has no samples";
    Error::new(ErrorKind::InvalidArgument, "partition", reason)
}

//! Arithmetic of shapes and strides, checked for overflow.

use crate::{Error, ErrorKind, Result};

/// Strides of a dense array: the last dimension's is 1.
pub(crate) fn dense_strides<const R: usize>(shape: [usize; R]) -> Result<[usize; R]> {
    let mut strides = [1; R];
    let mut next = 1usize;
    for (stride, extent) in strides.iter_mut().zip(shape).rev() {
        *stride = next;
        // An empty dimension doesn't make the others free of overflow, but none is ever indexed.
        next = next.checked_mul(extent.max(1)).ok_or_else(|| overflow_of(&shape))?;
    }
    Ok(strides)
}

/// How many elements the shape has.
pub(crate) fn elements_of(shape: &[usize]) -> Result<usize> {
    if shape.contains(&0) {
        return Ok(0);
    }
    shape
        .iter()
        .try_fold(1usize, |product, &it| product.checked_mul(it))
        .filter(|&it| isize::try_from(it).is_ok())
        .ok_or_else(|| overflow_of(shape))
}

/// How many elements lie from the first to the last, both counted.
pub(crate) fn extent_of(shape: &[usize], strides: &[usize]) -> Result<usize> {
    if shape.contains(&0) {
        return Ok(0);
    }
    shape
        .iter()
        .zip(strides)
        .try_fold(1usize, |sum, (&extent, &stride)| {
            sum.checked_add((extent - 1).checked_mul(stride)?)
        })
        .filter(|&it| isize::try_from(it).is_ok())
        .ok_or_else(|| overflow(shape, strides))
}

/// Whether the elements lie densely in order. The strides of dimensions of one index don't matter.
pub(crate) fn is_contiguous(shape: &[usize], strides: &[usize]) -> bool {
    let mut next = 1;
    shape.iter().zip(strides).rev().all(|(&extent, &stride)| {
        let dense = extent == 1 || stride == next;
        next *= extent;
        dense
    })
}

/// Refuses shapes in which two indices might name one element.
///
/// Sorted by stride, each dimension has to step over everything that the smaller ones reach. That is
/// more than is needed for some exotic strides, and it is what a reader can check.
pub(crate) fn refuse_self_overlap(shape: &[usize], strides: &[usize]) -> Result<()> {
    if shape.contains(&0) {
        return Ok(());
    }
    // No allocation for the ranks that occur: the smallest stride above the last is searched again.
    let mut reached = 0usize;
    let mut done = 0usize;
    let mut above = None;
    let real = || shape.iter().zip(strides).filter(|(extent, _)| **extent > 1);
    while done < real().count() {
        let smallest =
            real().map(|it| *it.1).filter(|&it| above.is_none_or(|last| it > last)).min();
        let Some(stride) = smallest else { break };
        let mut same = real().filter(|it| *it.1 == stride);
        let (Some((extent, _)), None) = (same.next(), same.next()) else {
            return Err(overlap(shape, strides));
        };
        if stride <= reached {
            return Err(overlap(shape, strides));
        }
        reached = (extent - 1)
            .checked_mul(stride)
            .and_then(|it| it.checked_add(reached))
            .ok_or_else(|| overflow(shape, strides))?;
        above = Some(stride);
        done += 1;
    }
    Ok(())
}

/// Moves the index to the next element in order; false after the last.
pub(crate) fn step(index: &mut [usize], shape: &[usize]) -> bool {
    for (at, &extent) in index.iter_mut().zip(shape).rev() {
        *at += 1;
        if *at < extent {
            return true;
        }
        *at = 0;
    }
    false
}

fn overflow_of(shape: &[usize]) -> Error {
    let reason = format!("the number of elements of shape {shape:?} overflows");
    Error::new(ErrorKind::Overflow, "make a view", reason)
}

fn overflow(shape: &[usize], strides: &[usize]) -> Error {
    let reason = format!("the extent of shape {shape:?} with strides {strides:?} overflows");
    Error::new(ErrorKind::Overflow, "make a view", reason)
}

fn overlap(shape: &[usize], strides: &[usize]) -> Error {
    let reason = format!(
        "with strides {strides:?}, two indices of shape {shape:?} may name one element, which can't \
         be written"
    );
    Error::new(ErrorKind::Overlap, "make a view", reason)
}

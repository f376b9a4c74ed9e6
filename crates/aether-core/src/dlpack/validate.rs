//! Whether a tensor from somewhere else is well-formed, before anything is made of it.

use dlpark::ffi::DLTensor;

use super::fault::Fault;
use super::layout::row_major;
use super::{MAX_RANK, codes};
use crate::backend::Address;
use crate::view::refuse_self_overlap;
use crate::{ALIGNMENT, DType, Device};

/// What a well-formed tensor says.
#[derive(Debug)]
pub(super) struct Described {
    /// The first element.
    pub(super) address: Address,
    /// From the first element to the end of the last.
    pub(super) bytes: usize,
    pub(super) dtype: DType,
    pub(super) shape: Vec<usize>,
    /// In elements.
    pub(super) strides: Vec<usize>,
}

/// What more than the tensor decides what is well-formed.
#[derive(Clone, Copy)]
pub(super) struct Rules {
    /// It is flagged so.
    pub(super) read_only: bool,
    /// Its version is one that may leave them out.
    pub(super) strides_may_be_null: bool,
}

/// Reads and checks a tensor.
///
/// # Safety
/// Where `ndim` is 1 to [`MAX_RANK`], `shape` and `strides` are each null or point to as many numbers.
pub(super) unsafe fn validate(
    tensor: &DLTensor,
    rules: Rules,
    device: &Device,
) -> Result<Described, Fault> {
    codes::check_device(tensor.device, device)?;
    let dtype = codes::dtype(tensor.dtype)?;
    let rank = usize::try_from(tensor.ndim)
        .ok()
        .filter(|&it| it <= MAX_RANK)
        .ok_or(Fault::Rank(i64::from(tensor.ndim)))?;
    // SAFETY: the caller promises that `shape` is null or points to `rank` numbers.
    let extents = unsafe { numbers(tensor.shape, rank) }.ok_or(Fault::NullShape(rank))?;
    // SAFETY: the caller promises the same of `strides`.
    let steps = unsafe { numbers(tensor.strides, rank) };
    let shape = extents_of(&extents)?;
    let strides = match steps {
        Some(steps) => strides_of(&shape, &steps)?,
        None if rules.strides_may_be_null => row_major(&shape),
        None => return Err(Fault::NullStrides),
    };
    let Some((elements, bytes)) = measure(&shape, &strides, dtype) else {
        return Err(Fault::Overflow { shape, strides, dtype });
    };
    if !rules.read_only && refuse_self_overlap(&shape, &strides).is_err() {
        return Err(Fault::SelfOverlap { shape, strides });
    }
    let address = locate(tensor, elements, bytes, dtype)?;
    Ok(Described { address, bytes, dtype, shape, strides })
}

/// An array of numbers, or none if it is null although it has any.
///
/// # Safety
/// The pointer is null or points to so many numbers.
unsafe fn numbers(array: *const i64, count: usize) -> Option<Vec<i64>> {
    if count == 0 {
        return Some(Vec::new());
    }
    if array.is_null() {
        return None;
    }
    // SAFETY: the caller promises an array of this length, which is at most `MAX_RANK`.
    Some(unsafe { std::slice::from_raw_parts(array, count) }.to_vec())
}

fn extents_of(extents: &[i64]) -> Result<Vec<usize>, Fault> {
    let extent = |(dimension, &extent): (usize, &i64)| {
        usize::try_from(extent).map_err(|_| Fault::Extent { dimension, extent })
    };
    extents.iter().enumerate().map(extent).collect()
}

/// The strides, where they mean something; elsewhere those that a dense tensor would have.
fn strides_of(shape: &[usize], steps: &[i64]) -> Result<Vec<usize>, Fault> {
    if shape.contains(&0) {
        return Ok(row_major(shape));
    }
    let mut strides = vec![1usize; shape.len()];
    let mut dense = 1usize;
    let each = strides.iter_mut().zip(shape).zip(steps).enumerate().rev();
    for (dimension, ((stride, &extent), &step)) in each {
        *stride = match usize::try_from(step) {
            _ if extent == 1 => dense,
            Ok(step) => step,
            Err(_) => return Err(Fault::NegativeStride { dimension, stride: step }),
        };
        dense = stride.saturating_mul(extent);
    }
    Ok(strides)
}

/// How many elements there are, and how many bytes from the first to the end of the last. None if one
/// of them, or the bytes of all elements, are more than an allocation can have.
fn measure(shape: &[usize], strides: &[usize], dtype: DType) -> Option<(usize, usize)> {
    if shape.contains(&0) {
        return Some((0, 0));
    }
    let in_bytes = |elements: usize| {
        elements.checked_mul(dtype.size()).filter(|&it| isize::try_from(it).is_ok())
    };
    let elements = shape.iter().try_fold(1usize, |product, &it| product.checked_mul(it))?;
    in_bytes(elements)?;
    let extent = shape.iter().zip(strides).try_fold(1usize, |sum, (&extent, &stride)| {
        sum.checked_add((extent - 1).checked_mul(stride)?)
    })?;
    Some((elements, in_bytes(extent)?))
}

/// Where the first element is.
fn locate(
    tensor: &DLTensor,
    elements: usize,
    bytes: usize,
    dtype: DType,
) -> Result<Address, Fault> {
    if elements == 0 {
        // Producers set `data` to null, or leave there what they like: it points to nothing.
        return Ok(Address::from_raw(ALIGNMENT));
    }
    if tensor.data.is_null() {
        return Err(Fault::NullData(elements));
    }
    let data = Address::from_ptr(tensor.data.cast());
    let offset = usize::try_from(tensor.byte_offset).ok();
    let end = offset.and_then(|it| data.addr().checked_add(it)?.checked_add(bytes));
    let (Some(offset), Some(_)) = (offset, end) else {
        return Err(Fault::ByteOffset(tensor.byte_offset));
    };
    let address = data.add(offset);
    if !address.addr().is_multiple_of(dtype.size()) {
        return Err(Fault::Misaligned { address, dtype });
    }
    Ok(address)
}

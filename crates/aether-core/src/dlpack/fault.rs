//! What can be wrong with a tensor.

use dlpark::ffi::{DLPACK_MAJOR_VERSION, DLPackVersion};

use super::MAX_RANK;
use crate::backend::Address;
use crate::{DType, Device, DeviceId, Error, ErrorKind};

/// What is wrong with a tensor. The text names the field, as dlpack.h does.
#[derive(Debug, thiserror::Error)]
pub(super) enum Fault {
    #[error("the tensor is a null pointer")]
    NullTensor,
    #[error("`version` is {}.{}, and only major version {DLPACK_MAJOR_VERSION} is understood", .0.major, .0.minor)]
    Version(DLPackVersion),
    #[error("`flags` has the unknown bits {0:#x}")]
    Flags(u64),
    #[error("`device.device_type` {0} is not one of DLPack's")]
    DeviceType(u32),
    #[error("`device.device_id` {0} is no index of a device")]
    DeviceIndex(i64),
    #[error("`device` is {0}")]
    OtherDevice(DeviceId),
    #[error("`dtype.code` {0} is not one of DLPack's")]
    TypeCode(u8),
    #[error("`dtype.bits` {bits} of `dtype.code` {code} is no element type of aether")]
    TypeBits { code: u8, bits: u8 },
    #[error("`dtype.lanes` is {0}, and only 1 is supported")]
    Lanes(u16),
    #[error("`ndim` is {0}, and has to be 0 to {MAX_RANK}")]
    Rank(i64),
    #[error("`shape` is null for {0} dimensions")]
    NullShape(usize),
    #[error("`shape[{dimension}]` is {extent}")]
    Extent { dimension: usize, extent: i64 },
    #[error("`strides` is null, which DLPack allows only before version 1.2")]
    NullStrides,
    #[error("`strides[{dimension}]` is {stride}, and negative strides are not supported: copy it")]
    NegativeStride { dimension: usize, stride: i64 },
    #[error(
        "with `strides` {strides:?}, two indices of `shape` {shape:?} may name one element, which \
         only a tensor that is flagged read-only may have"
    )]
    SelfOverlap { shape: Vec<usize>, strides: Vec<usize> },
    #[error("the extent of `shape` {shape:?} with `strides` {strides:?} of {dtype} overflows")]
    Overflow { shape: Vec<usize>, strides: Vec<usize>, dtype: DType },
    #[error("`data` is null for {0} elements")]
    NullData(usize),
    #[error("`byte_offset` {0} leads out of the address space")]
    ByteOffset(u64),
    #[error("`data` and `byte_offset` lead to {address:?}, which is not a multiple of {}, as {dtype} needs", .dtype.size())]
    Misaligned { address: Address, dtype: DType },
}

impl Fault {
    /// The error of a call that met the fault.
    pub(super) fn into_error(self, attempted: &'static str, device: &Device) -> Error {
        Error::new(self.kind(), attempted, self.to_string()).on(device)
    }

    fn kind(&self) -> ErrorKind {
        match self {
            Self::OtherDevice(_) => ErrorKind::WrongDevice,
            Self::SelfOverlap { .. } => ErrorKind::Overlap,
            Self::Overflow { .. } | Self::ByteOffset(_) => ErrorKind::Overflow,
            Self::Misaligned { .. } => ErrorKind::Misaligned,
            _ => ErrorKind::Dlpack,
        }
    }
}

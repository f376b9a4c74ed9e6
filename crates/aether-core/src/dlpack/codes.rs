//! What DLPack calls our element types and devices.

use dlpark::ffi::{DLDataType, DLDevice, DLDeviceType};

use super::fault::Fault;
use crate::{DType, Device, DeviceId, DeviceKind};

/// The code of each element type, of one lane.
pub(super) const fn data_type(dtype: DType) -> DLDataType {
    match dtype {
        DType::BF16 => DLDataType::BF16,
        DType::Bool => DLDataType::BOOL,
        DType::F16 => DLDataType::F16,
        DType::F32 => DLDataType::F32,
        DType::F64 => DLDataType::F64,
        // OCP's E4M3 has no infinity, which DLPack marks by "fn". Its code without is another type.
        DType::F8E4M3 => DLDataType::F8E4M3FN,
        DType::F8E5M2 => DLDataType::F8E5M2,
        DType::I16 => DLDataType::I16,
        DType::I32 => DLDataType::I32,
        DType::I64 => DLDataType::I64,
        DType::I8 => DLDataType::I8,
        DType::U16 => DLDataType::U16,
        DType::U32 => DLDataType::U32,
        DType::U64 => DLDataType::U64,
        DType::U8 => DLDataType::U8,
    }
}

/// The element type of a code, number of bits and lanes.
pub(super) fn dtype(found: DLDataType) -> Result<DType, Fault> {
    if !found.code.is_known() {
        return Err(Fault::TypeCode(found.code.0));
    }
    if found.lanes != 1 {
        return Err(Fault::Lanes(found.lanes));
    }
    DType::ALL
        .into_iter()
        .find(|&it| data_type(it) == found)
        .ok_or(Fault::TypeBits { code: found.code.0, bits: found.bits })
}

/// How a device is written into a tensor.
pub(super) fn device(id: DeviceId) -> Result<DLDevice, Fault> {
    let device_type = DLDeviceType(id.kind.0);
    if !device_type.is_known() {
        return Err(Fault::DeviceType(id.kind.0));
    }
    // dlpack.h: "For vanilla CPU memory, pinned memory, or managed memory, this is set to 0."
    let index = if is_host(id.kind) { 0 } else { id.index };
    let device_id = i32::try_from(index).map_err(|_| Fault::DeviceIndex(i64::from(index)))?;
    Ok(DLDevice { device_type, device_id })
}

/// Refuses a tensor whose device isn't this one.
pub(super) fn check_device(found: DLDevice, device: &Device) -> Result<(), Fault> {
    if !found.device_type.is_known() {
        return Err(Fault::DeviceType(found.device_type.0));
    }
    let index = u32::try_from(found.device_id)
        .map_err(|_| Fault::DeviceIndex(i64::from(found.device_id)))?;
    let found = DeviceId::new(DeviceKind(found.device_type.0), index);
    let any_index = is_host(found.kind) && index == 0;
    if found == device.id() || any_index && found.kind == device.kind() {
        return Ok(());
    }
    Err(Fault::OtherDevice(found))
}

/// Whether DLPack counts only one device of the kind.
fn is_host(kind: DeviceKind) -> bool {
    kind == DeviceKind::CPU || kind == DeviceKind::CUDA_HOST
}

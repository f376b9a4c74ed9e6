//! What is refused, by which error, and that the deleter is called once all the same.

use std::ffi::c_void;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use aether_core::dlpack::{Abi, DLManagedTensor, DLManagedTensorVersioned, import};
use aether_core::{Device, DeviceId, DeviceKind, ErrorKind, HostBackend};
use dlpark::ffi::{DLDataType, DLDataTypeCode, DLDevice, DLDeviceType, DLPackVersion};

use crate::foreign::{Data, Deleted, Foreign};

/// Which ABIs a tensor is refused in.
#[derive(Clone, Copy, PartialEq)]
enum In {
    Both,
    Versioned,
    Legacy,
}

fn refuse<A: Abi>((raw, deleted): (*mut A, Deleted), kind: ErrorKind, names: &str, case: &str) {
    let device = Device::cpu(0);
    // SAFETY: the tensor is one of `Foreign`: what it says is wrong, but its arrays are as long as
    // the contract asks, and its memory is never reached because it is refused.
    let error = unsafe { import(raw, &device) }.expect_err(case);
    assert_eq!(error.kind(), kind, "{case}: {error}");
    assert!(error.reason().contains(names), "{case}: {error}");
    assert_eq!(error.place(), Some("cpu:0"), "{case}: {error}");
    assert_eq!(deleted.times(), 1, "{case}");
}

fn check(case: &str, abi: In, kind: ErrorKind, names: &str, spoil: impl Fn(&mut Foreign)) {
    let spoiled = || {
        let mut tensor = Foreign::new(&[2, 3]);
        spoil(&mut tensor);
        tensor
    };
    if abi != In::Legacy {
        refuse(spoiled().versioned(), kind, names, case);
    }
    if abi != In::Versioned {
        refuse(spoiled().legacy(), kind, names, case);
    }
}

#[test]
fn unknown_and_unsupported_element_types_are_refused() {
    let dtype = |code: u8, bits, lanes| DLDataType { code: DLDataTypeCode(code), bits, lanes };
    let cases = [
        ("an unknown code", dtype(18, 8, 1), "`dtype.code` 18 is not one"),
        ("the highest code", dtype(255, 32, 1), "`dtype.code` 255 is not one"),
        ("no lanes", dtype(1, 32, 0), "`dtype.lanes` is 0"),
        ("four lanes", dtype(1, 8, 4), "`dtype.lanes` is 4"),
        ("no bits", dtype(1, 0, 1), "`dtype.bits` 0"),
        ("four bits of an integer", dtype(1, 4, 1), "`dtype.bits` 4"),
        ("24 bits of a float", dtype(2, 24, 1), "`dtype.bits` 24"),
        ("16 bits of a bool", dtype(6, 16, 1), "`dtype.bits` 16"),
        ("one bit of a bool", dtype(6, 1, 1), "`dtype.bits` 1"),
        ("a packed float of four bits", dtype(17, 4, 1), "`dtype.code` 17"),
        ("a complex number", dtype(5, 64, 1), "`dtype.code` 5"),
        ("an opaque handle", dtype(3, 64, 1), "`dtype.code` 3"),
        ("an E4M3 with infinities", dtype(8, 8, 1), "`dtype.code` 8"),
        ("16 bits of an E4M3", dtype(10, 16, 1), "`dtype.bits` 16"),
    ];
    for (case, dtype, names) in cases {
        check(case, In::Both, ErrorKind::Dlpack, names, |it| it.dtype = dtype);
    }
}

#[test]
fn devices_that_are_unknown_or_others_are_refused() {
    let device = |kind, device_id| DLDevice { device_type: DLDeviceType(kind), device_id };
    let cases = [
        ("no device type", device(0, 0), ErrorKind::Dlpack, "`device.device_type` 0"),
        ("an unknown device type", device(99, 0), ErrorKind::Dlpack, "`device.device_type` 99"),
        ("a negative index", device(1, -1), ErrorKind::Dlpack, "`device.device_id` -1"),
        ("another kind", device(2, 0), ErrorKind::WrongDevice, "`device` is cuda:0"),
        ("pinned memory", device(3, 0), ErrorKind::WrongDevice, "`device` is cuda_host:0"),
        ("another index", device(1, 7), ErrorKind::WrongDevice, "`device` is cpu:7"),
    ];
    for (case, device, kind, names) in cases {
        check(case, In::Both, kind, names, |it| it.device = device);
    }
}

#[test]
fn a_device_that_is_not_the_hosts_is_matched_by_its_index() {
    let backend = Arc::new(HostBackend::new());
    let device = Device::new(DeviceId::new(DeviceKind::CUDA, 1), backend);
    let tensor = |index| Foreign { device: DLDevice::cuda(index), ..Foreign::new(&[4]) };
    let (raw, deleted) = tensor(0).versioned();
    // SAFETY: a tensor of `Foreign`, whose memory the backend can reach whatever it is called.
    let error = unsafe { import(raw, &device) }.unwrap_err();
    assert_eq!((error.kind(), deleted.times()), (ErrorKind::WrongDevice, 1));
    // SAFETY: as above.
    let imported = unsafe { import(tensor(1).versioned().0, &device) }.unwrap();
    assert_eq!(imported.chunk().device(), &device);
}

#[test]
fn shapes_that_make_no_sense_are_refused() {
    let dlpack = ErrorKind::Dlpack;
    check("a negative rank", In::Both, dlpack, "`ndim` is -1", |it| it.ndim = Some(-1));
    check("too high a rank", In::Both, dlpack, "`ndim` is 65", |it| it.ndim = Some(65));
    check("an absurd rank", In::Both, dlpack, "`ndim` is 2147483647", |it| {
        it.ndim = Some(i32::MAX)
    });
    check("no shape", In::Both, dlpack, "`shape` is null", |it| {
        it.ndim = Some(2);
        it.shape = None;
    });
    check("too many bytes of one element", In::Versioned, ErrorKind::Overflow, "overflows", |it| {
        it.flags = 1;
        it.shape = Some(vec![1 << 61]);
        it.strides = Some(vec![0]);
    });
    check("a negative extent", In::Both, dlpack, "`shape[1]` is -3", |it| {
        it.shape = Some(vec![2, -3]);
    });
    check("a negative extent beside none", In::Both, dlpack, "`shape[1]` is -3", |it| {
        it.shape = Some(vec![0, -3]);
    });
    check("too many elements", In::Both, ErrorKind::Overflow, "overflows", |it| {
        it.shape = Some(vec![1 << 32, 1 << 32]);
    });
    check("too many bytes", In::Both, ErrorKind::Overflow, "overflows", |it| {
        it.shape = Some(vec![1, i64::MAX / 2]);
    });
}

#[test]
fn strides_that_make_no_sense_are_refused() {
    check("a negative stride", In::Both, ErrorKind::Dlpack, "`strides[1]` is -1", |it| {
        it.strides = Some(vec![3, -1]);
    });
    check("the lowest stride", In::Both, ErrorKind::Dlpack, "`strides[0]`", |it| {
        it.strides = Some(vec![i64::MIN, 1]);
    });
    check("a huge stride", In::Both, ErrorKind::Overflow, "overflows", |it| {
        it.shape = Some(vec![3, 3]);
        it.strides = Some(vec![i64::MAX, 1]);
    });
    check("a stride whose bytes overflow", In::Both, ErrorKind::Overflow, "overflows", |it| {
        it.strides = Some(vec![i64::MAX / 2, 1]);
    });
    check(
        "a stride out of the address space",
        In::Both,
        ErrorKind::Overflow,
        "`byte_offset`",
        |it| {
            it.strides = Some(vec![1 << 40, 1]);
            it.data = Data::Number(usize::MAX - 7);
        },
    );
    check("no strides in 1.2", In::Versioned, ErrorKind::Dlpack, "`strides` is null", |it| {
        it.version = (1, 2);
        it.strides = None;
    });
    check("no strides in 1.9", In::Versioned, ErrorKind::Dlpack, "`strides` is null", |it| {
        it.version = (1, 9);
        it.strides = None;
    });
}

#[test]
fn a_tensor_that_may_be_written_and_overlaps_itself_is_refused() {
    for strides in [[0, 1], [1, 1], [2, 1], [3, 0]] {
        check("an overlap", In::Both, ErrorKind::Overlap, "`strides`", |it| {
            it.strides = Some(strides.to_vec());
        });
    }
}

#[test]
fn data_that_is_nowhere_is_refused() {
    check("no data", In::Both, ErrorKind::Dlpack, "`data` is null for 6 elements", |it| {
        it.data = Data::Null;
    });
    check("no data but an offset", In::Both, ErrorKind::Dlpack, "`data` is null", |it| {
        it.data = Data::Null;
        it.byte_offset = 64;
    });
    check("a huge offset", In::Both, ErrorKind::Overflow, "`byte_offset`", |it| {
        it.byte_offset = u64::MAX;
    });
    check(
        "an end beyond the address space",
        In::Both,
        ErrorKind::Overflow,
        "`byte_offset`",
        |it| {
            it.data = Data::Number(usize::MAX - 15);
        },
    );
    check("odd data", In::Both, ErrorKind::Misaligned, "multiple of 4", |it| {
        it.data = Data::At(2);
    });
    check("an odd offset", In::Both, ErrorKind::Misaligned, "multiple of 4", |it| {
        it.byte_offset = 1;
    });
    check("data aligned for half", In::Both, ErrorKind::Misaligned, "multiple of 8", |it| {
        it.dtype = DLDataType::F64;
        it.byte_offset = 4;
    });
}

#[test]
fn unknown_flags_are_refused() {
    for (bits, names) in [(8, "0x8"), (1 << 63, "0x8000000000000000"), (1 | 16, "0x10")] {
        check("a flag", In::Versioned, ErrorKind::Dlpack, names, |it| it.flags = bits);
    }
}

#[test]
fn what_only_dlpark_counts_is_refused_too() {
    // A broadcast that is fine by its addresses, and by all of its bytes, but not by its bits.
    check("too many bits", In::Versioned, ErrorKind::Dlpack, "bytes overflows", |it| {
        it.flags = 1;
        it.shape = Some(vec![1 << 60]);
        it.strides = Some(vec![0]);
    });
}

/// The part of a struct that every version has.
#[repr(C)]
struct Prefix {
    version: DLPackVersion,
    context: *mut c_void,
    deleter: Option<unsafe extern "C" fn(*mut DLManagedTensorVersioned)>,
}

unsafe extern "C" fn delete_prefix(tensor: *mut DLManagedTensorVersioned) {
    // SAFETY: the tensor is a box of a `Prefix`, and is deleted once.
    let prefix = unsafe { Box::from_raw(tensor.cast::<Prefix>()) };
    // SAFETY: the context is a counter, which outlives the tensor.
    unsafe { &*prefix.context.cast::<AtomicUsize>() }.fetch_add(1, Ordering::SeqCst);
}

#[test]
fn of_another_major_version_only_the_version_and_the_deleter_are_touched() {
    for (major, deleter) in [(0, true), (2, true), (u32::MAX, true), (2, false)] {
        let deleted = AtomicUsize::new(0);
        let prefix = Prefix {
            version: DLPackVersion { major, minor: 0 },
            context: (&raw const deleted).cast_mut().cast(),
            deleter: deleter.then_some(delete_prefix as _),
        };
        let raw = Box::into_raw(Box::new(prefix));
        // SAFETY: of another major version the fields up to the deleter are enough.
        let error = unsafe { import(raw.cast::<DLManagedTensorVersioned>(), &Device::cpu(0)) };
        let error = error.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Dlpack);
        assert!(error.reason().contains(&format!("`version` is {major}.0")), "{error}");
        assert_eq!(deleted.load(Ordering::SeqCst), usize::from(deleter));
        if !deleter {
            // SAFETY: nobody deleted it, and nobody else has it.
            drop(unsafe { Box::from_raw(raw) });
        }
    }
}

#[test]
fn a_null_tensor_is_refused() {
    let device = Device::cpu(0);
    // SAFETY: null is allowed.
    let one = unsafe { import::<DLManagedTensorVersioned>(std::ptr::null_mut(), &device) };
    // SAFETY: as above.
    let other = unsafe { import::<DLManagedTensor>(std::ptr::null_mut(), &device) };
    for error in [one.unwrap_err(), other.unwrap_err()] {
        assert_eq!(error.kind(), ErrorKind::Dlpack);
        assert!(error.reason().contains("null pointer"), "{error}");
    }
}

//! Well-formed tensors of another library.

use std::thread;
use std::time::{Duration, Instant};

use aether_core::dlpack::{
    Abi, DLManagedTensor, DLManagedTensorVersioned, Imported, Layout, export, import, share,
};
use aether_core::{Chunk, DType, Device, ErrorKind, Stream, copy, copy_async, fill, progress};
use dlpark::DlpackFlags;
use dlpark::ffi::{DLDataType, DLDevice};

use crate::foreign::{Data, Deleted, Foreign, delete_versioned};
use crate::held::Held;
use crate::numbers;

fn take<A: Abi>((raw, deleted): (*mut A, Deleted)) -> (Imported, Deleted) {
    // SAFETY: the tensors of this file are well-formed and their memory goes with the deleter.
    (unsafe { import(raw, &Device::cpu(0)) }.unwrap(), deleted)
}

/// Looks until the tensor was deleted, for at most so long.
fn look_until_deleted(deleted: &Deleted) {
    let start = Instant::now();
    while deleted.times() == 0 && start.elapsed() < Duration::from_secs(20) {
        progress::look();
        thread::yield_now();
    }
}

#[test]
fn elements_come_in_without_a_copy_and_the_deleter_is_called_once() {
    fn go<A: Abi>(tensor: (*mut A, Deleted), data: *const u8) {
        let (imported, deleted) = take(tensor);
        assert_eq!(imported.chunk().data().as_ptr().cast_const(), data);
        assert_eq!(imported.chunk().size(), 24);
        assert!(imported.chunk().is_writable() && imported.chunk().owns());
        assert_eq!((imported.dtype(), imported.shape()), (DType::U32, &[2, 3][..]));
        assert_eq!(imported.view::<u32, 2>().unwrap().as_slice().unwrap(), &numbers(6));
        assert_eq!(deleted.times(), 0);
        drop(imported);
        assert_eq!(deleted.times(), 1);
    }
    let foreign = Foreign::new(&[2, 3]);
    let data = foreign.memory.as_ptr().cast();
    go(foreign.versioned(), data);
    let foreign = Foreign::new(&[2, 3]);
    let data = foreign.memory.as_ptr().cast();
    go(foreign.legacy(), data);
}

#[test]
fn padded_strides_and_both_parts_of_the_offset_are_honoured() {
    let tensor =
        || Foreign { data: Data::At(8), byte_offset: 16, ..Foreign::new(&[2, 3]).strides(&[4, 1]) };
    for mut imported in [take(tensor().versioned()).0, take(tensor().legacy()).0] {
        assert_eq!(imported.strides(), [4, 1]);
        assert_eq!(imported.chunk().size(), (4 + 3) * 4);
        let expected = numbers(64);
        let view = imported.view::<u32, 2>().unwrap();
        assert_eq!(view.lane([0, 0]).unwrap(), &expected[6..9]);
        assert_eq!(view.lane([1, 0]).unwrap(), &expected[10..13]);
        imported.view_mut::<u32, 2>().unwrap().lane_mut([1, 0]).unwrap()[2] = 1;
        assert_eq!(imported.chunk().slice::<u32>().unwrap()[6], 1);
    }
}

#[test]
fn column_order_is_read_as_such() {
    let (imported, _) = take(Foreign::new(&[2, 3]).strides(&[1, 2]).versioned());
    let view = imported.view::<u32, 2>().unwrap();
    let expected = numbers(6);
    assert_eq!(view.pack().unwrap(), [0, 2, 4, 1, 3, 5].map(|at: usize| expected[at]));
}

#[test]
fn null_strides_are_dense_where_the_version_allows_them() {
    let null = |minor| Foreign { strides: None, version: (1, minor), ..Foreign::new(&[2, 2, 3]) };
    for imported in
        [take(null(3).legacy()).0, take(null(0).versioned()).0, take(null(1).versioned()).0]
    {
        assert_eq!(imported.strides(), [6, 3, 1]);
        assert_eq!(imported.view::<u32, 3>().unwrap().at([1, 1, 2]).unwrap(), numbers(12)[11]);
    }
}

#[test]
fn a_higher_minor_version_is_accepted() {
    let (imported, _) = take(Foreign { version: (1, 99), ..Foreign::new(&[2, 3]) }.versioned());
    assert_eq!(imported.chunk().slice::<u32>().unwrap(), numbers(6));
}

#[test]
fn strides_of_single_indices_mean_nothing() {
    for stride in [i64::MIN, -1, 0, 5, i64::MAX] {
        let tensor = || Foreign::new(&[2, 1, 3]).strides(&[3, stride, 1]);
        for imported in [take(tensor().versioned()).0, take(tensor().legacy()).0] {
            assert_eq!(imported.strides(), [3, 3, 1]);
            let view = imported.view::<u32, 3>().unwrap();
            assert_eq!(view.as_slice().unwrap(), numbers(6));
        }
    }
    let (all_single, _) = take(Foreign::new(&[1, 1]).strides(&[-9, -9]).versioned());
    assert_eq!(all_single.view::<u32, 2>().unwrap().as_slice().unwrap(), numbers(1));
}

#[test]
fn a_scalar_needs_neither_shape_nor_strides() {
    let tensor = || Foreign { shape: None, strides: None, byte_offset: 12, ..Foreign::new(&[]) };
    for imported in [take(tensor().versioned()).0, take(tensor().legacy()).0] {
        assert_eq!((imported.shape(), imported.chunk().size()), (&[][..], 4));
        assert_eq!(imported.view::<u32, 0>().unwrap().at([]).unwrap(), numbers(4)[3]);
    }
}

#[test]
fn an_empty_tensor_may_say_anything_of_its_data_and_strides() {
    let tensors = [
        Foreign { data: Data::Null, ..Foreign::new(&[2, 0]) },
        Foreign { data: Data::Number(3), byte_offset: u64::MAX, ..Foreign::new(&[0]) },
        Foreign { data: Data::Null, ..Foreign::new(&[0, i64::MAX, i64::MAX]).strides(&[-1; 3]) },
    ];
    for tensor in tensors {
        let shape = tensor.shape.clone().unwrap();
        let (imported, deleted) = take(tensor.versioned());
        assert!(imported.chunk().is_empty());
        assert_eq!(imported.shape().len(), shape.len());
        assert_eq!(imported.chunk().slice::<u32>().unwrap(), []);
        drop(imported);
        assert_eq!(deleted.times(), 1);
    }
    let (huge, _) = take(Foreign::new(&[i64::MAX, i64::MAX, 0]).versioned());
    assert_eq!(huge.view::<u32, 3>().unwrap().as_slice().unwrap(), []);
    let (empty, _) = take(Foreign { data: Data::Null, ..Foreign::new(&[2, 0]) }.legacy());
    assert!(empty.view::<u32, 2>().unwrap().as_slice().unwrap().is_empty());
}

#[test]
fn known_flags_are_accepted() {
    let flags = DlpackFlags::IS_COPIED.bits() | DlpackFlags::IS_SUBBYTE_TYPE_PADDED.bits();
    let (imported, _) = take(Foreign { flags, ..Foreign::new(&[4]) }.versioned());
    assert!(imported.chunk().is_writable());
}

#[test]
fn a_read_only_tensor_makes_a_read_only_chunk() {
    let (mut imported, deleted) = take(Foreign::new(&[2, 3]).read_only().versioned());
    assert!(!imported.chunk().is_writable());
    assert_eq!(imported.view::<u32, 2>().unwrap().as_slice().unwrap(), numbers(6));
    let kind = |it: aether_core::Result<()>| it.unwrap_err().kind();
    assert_eq!(kind(imported.view_mut::<u32, 2>().map(drop)), ErrorKind::ReadOnly);
    assert_eq!(kind(imported.chunk_mut().slice_mut::<u32>().map(drop)), ErrorKind::ReadOnly);
    assert_eq!(kind(fill(imported.chunk_mut(), 0u32)), ErrorKind::ReadOnly);
    let other = Chunk::allocate(&Device::cpu(0), 24).unwrap();
    assert_eq!(kind(copy(imported.chunk_mut(), &other)), ErrorKind::ReadOnly);
    // It stays so on its way out.
    let layout = Layout::dense(DType::U32, &[6]);
    let refused = export::<DLManagedTensor>(imported.into_chunk(), &layout).unwrap_err();
    assert_eq!(refused.error.kind(), ErrorKind::Unsupported);
    let tensor = export::<DLManagedTensorVersioned>(refused.chunk, &layout).unwrap();
    // SAFETY: the tensor is there until it is dropped.
    assert_eq!(unsafe { (*tensor.as_ptr()).flags }, DlpackFlags::READ_ONLY);
    assert_eq!(deleted.times(), 0);
    drop(tensor);
    assert_eq!(deleted.times(), 1);
}

#[test]
fn a_broadcast_is_accepted_if_it_may_only_be_read() {
    let tensor = Foreign::new(&[4, 3]).strides(&[0, 1]).read_only();
    let (imported, _) = take(tensor.versioned());
    assert_eq!(imported.chunk().size(), 12);
    let packed = imported.view::<u32, 2>().unwrap().pack().unwrap();
    assert_eq!(packed, numbers(3).repeat(4));
}

#[test]
fn views_have_the_type_and_the_rank_of_the_tensor() {
    let (mut imported, _) = take(Foreign::new(&[2, 3]).versioned());
    assert_eq!(imported.view::<f32, 2>().unwrap_err().kind(), ErrorKind::DTypeMismatch);
    assert_eq!(imported.view_mut::<i32, 2>().unwrap_err().kind(), ErrorKind::DTypeMismatch);
    assert_eq!(imported.view::<u32, 3>().unwrap_err().kind(), ErrorKind::SizeMismatch);
    let (bools, _) = take(Foreign { dtype: DLDataType::BOOL, ..Foreign::new(&[5]) }.versioned());
    assert_eq!((bools.dtype(), bools.chunk().size()), (DType::Bool, 5));
    assert_eq!(bools.to_dyn().unwrap().dtype(), DType::Bool);
    assert_eq!(bools.view::<u8, 1>().unwrap_err().kind(), ErrorKind::DTypeMismatch);
}

#[test]
fn host_memory_may_go_to_any_host_device() {
    let (raw, _) = Foreign::new(&[4]).versioned();
    // SAFETY: as in `take`.
    let imported = unsafe { import(raw, &Device::cpu(3)) }.unwrap();
    assert_eq!(imported.chunk().device(), &Device::cpu(3));
    let third = DLDevice { device_id: 3, ..DLDevice::CPU };
    let (raw, _) = Foreign { device: third, ..Foreign::new(&[4]) }.legacy();
    // SAFETY: as in `take`.
    assert!(unsafe { import(raw, &Device::cpu(3)) }.is_ok());
}

#[test]
fn the_deleter_is_called_only_after_the_copy_that_reads_the_memory() {
    let device = Device::cpu(0);
    let stream = Stream::new(&device).unwrap();
    let (imported, deleted) = take(Foreign::new(&[2, 3]).versioned());
    let mut target = Chunk::allocate(&device, 24).unwrap();
    let held = Held::write(&mut target, &stream, false);
    let work = copy_async(&mut target, imported.chunk(), &stream).unwrap();
    drop(imported);
    for _ in 0..10 {
        progress::look();
    }
    assert_eq!(deleted.times(), 0);
    held.open();
    work.wait().unwrap();
    look_until_deleted(&deleted);
    assert_eq!(deleted.times(), 1);
    assert_eq!(target.slice::<u32>().unwrap(), numbers(6));
}

#[test]
fn without_a_deleter_the_memory_is_only_lent() {
    let (raw, deleted) = Foreign { has_deleter: false, ..Foreign::new(&[2, 3]) }.versioned();
    let (imported, deleted) = take((raw, deleted));
    assert!(!imported.chunk().owns());
    assert_eq!(imported.chunk().slice::<u32>().unwrap(), numbers(6));
    let shared = share::<DLManagedTensorVersioned>(imported.view::<u32, 2>().unwrap());
    assert_eq!(shared.unwrap_err().kind(), ErrorKind::BorrowedMemory);
    drop(imported);
    assert_eq!(deleted.times(), 0);
    // SAFETY: the chunk is gone, so the producer, who kept the tensor, may delete it.
    unsafe { delete_versioned(raw) };
    let (raw, deleted) = Foreign { has_deleter: false, ..Foreign::new(&[-1]) }.versioned();
    // SAFETY: as in `take`.
    assert!(unsafe { import(raw, &Device::cpu(0)) }.is_err());
    assert_eq!(deleted.times(), 0);
    // SAFETY: as above.
    unsafe { delete_versioned(raw) };
}

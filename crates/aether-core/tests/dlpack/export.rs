//! What is exported, and who may write meanwhile.

use std::thread;

use aether_core::dlpack::{
    Abi, DLManagedTensor, DLManagedTensorVersioned, Layout, Tensor, export, import, share,
};
use aether_core::{
    Chunk, DType, Device, DeviceId, DeviceKind, Error, ErrorKind, HostBackend, Result, Stream,
    View, copy, copy_async, fill, fill_async,
};
use dlpark::DlpackFlags;
use dlpark::ffi::DLTensor;

use crate::held::Held;
use crate::numbers;

type Versioned = DLManagedTensorVersioned;

fn inner(tensor: &Tensor<Versioned>) -> DLTensor {
    // SAFETY: the struct is there while the tensor is.
    unsafe { (*tensor.as_ptr()).dl_tensor }
}

fn flags(tensor: &Tensor<Versioned>) -> DlpackFlags {
    // SAFETY: as above.
    unsafe { (*tensor.as_ptr()).flags }
}

/// Element `at` of the tensor's memory, as a consumer reads it.
fn element(tensor: &Tensor<Versioned>, at: usize) -> u32 {
    let inner = inner(tensor);
    let first = inner.data.cast::<u8>().wrapping_add(inner.byte_offset as usize).cast::<u32>();
    // SAFETY: the tests stay within the elements that were exported.
    unsafe { first.wrapping_add(at).read() }
}

fn kind<T>(result: Result<T>) -> ErrorKind {
    result.map(drop).unwrap_err().kind()
}

#[test]
fn a_round_trip_keeps_shape_strides_offset_and_bytes() {
    fn go<A: Abi>() {
        let device = Device::cpu(0);
        let chunk = Chunk::from_vec(&device, numbers(20)).unwrap();
        let address = chunk.data();
        let layout = Layout::dense(DType::U32, &[2, 3]).with_strides(&[4, 1]).at_byte(16);
        let raw = export::<A>(chunk, &layout).unwrap().into_raw();
        // SAFETY: the tensor was exported just now, and is imported once.
        let mut back = unsafe { import(raw, &device) }.unwrap();
        assert_eq!(back.chunk().data(), address.add(16));
        assert_eq!((back.shape(), back.strides()), (&[2, 3][..], &[4, 1][..]));
        let mut view = back.view_mut::<u32, 2>().unwrap();
        assert_eq!(view.as_view().lane([0, 0]).unwrap(), &numbers(20)[4..7]);
        assert_eq!(view.as_view().lane([1, 0]).unwrap(), &numbers(20)[8..11]);
        view.lane_mut([1, 0]).unwrap()[0] = 99;
        assert_eq!(back.view::<u32, 2>().unwrap().at([1, 0]).unwrap(), 99);
    }
    go::<DLManagedTensor>();
    go::<Versioned>();
}

#[test]
fn every_element_type_comes_back_as_itself() {
    let codes = [
        (DType::BF16, 4),
        (DType::Bool, 6),
        (DType::F16, 2),
        (DType::F64, 2),
        (DType::F8E4M3, 10),
        (DType::F8E5M2, 12),
        (DType::I8, 0),
        (DType::U64, 1),
    ];
    for dtype in DType::ALL {
        let chunk = Chunk::allocate(&Device::cpu(0), 16).unwrap();
        let tensor = export::<Versioned>(chunk, &Layout::dense(dtype, &[2])).unwrap();
        let found = inner(&tensor).dtype;
        assert_eq!((usize::from(found.bits), found.lanes), (dtype.size() * 8, 1), "{dtype}");
        if let Some((_, code)) = codes.iter().find(|it| it.0 == dtype) {
            assert_eq!(found.code.0, *code, "{dtype}");
        }
        // SAFETY: the tensor was exported just now, and is imported once.
        let back = unsafe { import(tensor.into_raw(), &Device::cpu(0)) }.unwrap();
        assert_eq!(back.dtype(), dtype);
    }
}

#[test]
fn the_first_element_is_at_data_for_consumers_that_ignore_the_offset() {
    let chunk = Chunk::from_vec(&Device::cpu(5), numbers(8)).unwrap();
    let third = chunk.data().add(12).as_ptr();
    let layout = Layout::dense(DType::U32, &[5]).at_byte(12);
    let tensor = export::<Versioned>(chunk, &layout).unwrap();
    let inner = inner(&tensor);
    assert_eq!((inner.data.cast(), inner.byte_offset), (third, 0));
    // "For vanilla CPU memory, pinned memory, or managed memory, this is set to 0."
    assert_eq!((inner.device.device_type.0, inner.device.device_id), (1, 0));
    assert!(!inner.strides.is_null());
    assert_eq!(flags(&tensor), DlpackFlags::empty());
}

#[test]
fn devices_are_named_as_dlpack_names_them() {
    let on = |kind, index| {
        let device =
            Device::new(DeviceId::new(kind, index), std::sync::Arc::new(HostBackend::new()));
        let chunk = Chunk::allocate(&device, 4).unwrap();
        export::<Versioned>(chunk, &Layout::dense(DType::U32, &[1])).map_err(Error::from)
    };
    let device = inner(&on(DeviceKind::CUDA, 2).unwrap()).device;
    assert_eq!((device.device_type.0, device.device_id), (2, 2));
    let pinned = inner(&on(DeviceKind::CUDA_HOST, 2).unwrap()).device;
    assert_eq!((pinned.device_type.0, pinned.device_id), (3, 0));
    assert_eq!(kind(on(DeviceKind(1000), 0)), ErrorKind::Dlpack);
    assert_eq!(kind(on(DeviceKind::CUDA, u32::MAX)), ErrorKind::Dlpack);
}

#[test]
fn scalars_and_empty_tensors_are_exported() {
    let chunk = Chunk::from_vec(&Device::cpu(0), numbers(3)).unwrap();
    let scalar = Layout::dense(DType::U32, &[]).at_byte(8);
    let tensor = share::<Versioned>(scalar.view(&chunk).unwrap()).unwrap();
    assert_eq!((inner(&tensor).ndim, element(&tensor, 0)), (0, numbers(3)[2]));
    let empty = Layout::dense(DType::U32, &[2, 0]);
    let tensor = share::<Versioned>(empty.view(&chunk).unwrap()).unwrap();
    assert!(inner(&tensor).data.is_null());
    let nothing = Chunk::allocate(&Device::cpu(0), 0).unwrap();
    let tensor = export::<DLManagedTensor>(nothing, &empty).unwrap();
    // SAFETY: the tensor was exported just now, and is imported once.
    let back = unsafe { import(tensor.into_raw(), &Device::cpu(0)) }.unwrap();
    assert_eq!(back.shape(), [2, 0]);
}

#[test]
fn a_refused_export_gives_the_chunk_back() {
    let device = Device::cpu(0);
    let mut chunk = Chunk::from_vec(&device, numbers(6)).unwrap();
    let dense = |shape: &[usize]| Layout::dense(DType::U32, shape);
    let cases = [
        (dense(&[7]), ErrorKind::OutOfBounds),
        (dense(&[6]).at_byte(4), ErrorKind::OutOfBounds),
        (dense(&[2]).at_byte(2), ErrorKind::Misaligned),
        (dense(&[usize::MAX, usize::MAX]), ErrorKind::Overflow),
        (dense(&[2, 3]).with_strides(&[1]), ErrorKind::InvalidArgument),
        (dense(&[2, 3]).with_strides(&[0, 1]), ErrorKind::Overlap),
        (dense(&[1; 65]), ErrorKind::Dlpack),
        (dense(&[0, usize::MAX]), ErrorKind::Dlpack),
    ];
    for (layout, kind) in cases {
        let refused = export::<Versioned>(chunk, &layout).unwrap_err();
        assert_eq!(refused.error.kind(), kind, "{layout:?}: {refused}");
        chunk = refused.chunk;
    }
    assert_eq!(chunk.slice::<u32>().unwrap(), numbers(6));
}

#[test]
fn while_a_shared_tensor_lives_every_write_is_refused() {
    let device = Device::cpu(0);
    let stream = Stream::new(&device).unwrap();
    let mut chunk = Chunk::from_vec(&device, numbers(6)).unwrap();
    let mut other = Chunk::from_vec(&device, vec![0u32; 6]).unwrap();
    let mut view = chunk.view_mut::<u32, 2>([2, 3]).unwrap();
    let tensor = share::<Versioned>(view.as_view()).unwrap();
    assert_eq!(flags(&tensor), DlpackFlags::READ_ONLY);
    // A view from before the export, by every way to write it.
    assert_eq!(kind(view.as_slice_mut().map(drop)), ErrorKind::Exported);
    assert_eq!(kind(view.lane_mut([1, 0]).map(drop)), ErrorKind::Exported);
    assert_eq!(kind(fill(&mut view, 1u32)), ErrorKind::Exported);
    assert_eq!(kind(fill_async(&mut view, 1u32, &stream)), ErrorKind::Exported);
    assert_eq!(kind(copy(&mut view, &other)), ErrorKind::Exported);
    assert_eq!(kind(copy_async(&mut view, &other, &stream)), ErrorKind::Exported);
    assert_eq!(kind(chunk.slice_mut::<u32>().map(drop)), ErrorKind::Exported);
    assert_eq!(kind(chunk.view_mut::<u32, 1>([6]).map(drop)), ErrorKind::Exported);
    assert_eq!(kind(chunk.span_of_mut(.., DType::U32).map(drop)), ErrorKind::Exported);
    let layout = Layout::dense(DType::U32, &[6]);
    let refused = export::<Versioned>(chunk, &layout).unwrap_err();
    assert_eq!(refused.error.kind(), ErrorKind::Exported);
    let mut chunk = refused.chunk;
    // Reading goes on.
    copy(&mut other, &chunk).unwrap();
    assert_eq!(other.slice::<u32>().unwrap(), numbers(6));
    assert_eq!(element(&tensor, 5), numbers(6)[5]);
    drop(tensor);
    chunk.slice_mut::<u32>().unwrap()[0] = 1;
    fill(&mut chunk, 2u32).unwrap();
    assert!(export::<Versioned>(chunk, &layout).is_ok());
}

#[test]
fn writes_work_again_only_after_the_last_of_several_tensors() {
    let mut chunk = Chunk::from_vec(&Device::cpu(0), numbers(6)).unwrap();
    let one = share::<Versioned>(chunk.view::<u32, 1>([6]).unwrap()).unwrap();
    let two = share::<Versioned>(chunk.view::<u32, 1>([2]).unwrap()).unwrap();
    drop(one);
    assert_eq!(kind(chunk.slice_mut::<u32>().map(drop)), ErrorKind::Exported);
    drop(two);
    assert!(chunk.slice_mut::<u32>().is_ok());
}

#[test]
fn a_shared_tensor_may_be_deleted_on_another_thread_and_outlives_the_chunk() {
    let mut chunk = Chunk::from_vec(&Device::cpu(0), numbers(6)).unwrap();
    let tensor = share::<Versioned>(chunk.view::<u32, 1>([6]).unwrap()).unwrap();
    thread::spawn(move || drop(tensor)).join().unwrap();
    chunk.slice_mut::<u32>().unwrap()[0] = 11;
    let tensor = share::<Versioned>(chunk.view::<u32, 1>([6]).unwrap()).unwrap();
    drop(chunk);
    let sum = thread::spawn(move || (0..6).map(|at| element(&tensor, at)).sum::<u32>());
    assert_eq!(sum.join().unwrap(), numbers(6).iter().sum::<u32>() - 3 + 11);
}

#[test]
fn the_legacy_abi_can_not_share() {
    let mut chunk = Chunk::from_vec(&Device::cpu(0), numbers(6)).unwrap();
    let error = share::<DLManagedTensor>(chunk.view::<u32, 1>([6]).unwrap()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    assert!(error.reason().contains("DLManagedTensorVersioned"), "{error}");
    assert!(chunk.slice_mut::<u32>().is_ok());
}

#[test]
fn an_imported_shared_tensor_can_be_read_only() {
    let device = Device::cpu(0);
    let chunk = Chunk::from_vec(&device, numbers(6)).unwrap();
    let broadcast = Layout::dense(DType::U32, &[3, 2]).with_strides(&[0, 1]);
    let tensor = share::<Versioned>(&broadcast.view(&chunk).unwrap()).unwrap();
    // SAFETY: the tensor was exported just now, and is imported once.
    let mut back = unsafe { import(tensor.into_raw(), &device) }.unwrap();
    assert_eq!(back.view::<u32, 2>().unwrap().pack().unwrap(), numbers(2).repeat(3));
    assert_eq!(kind(back.chunk_mut().slice_mut::<u32>().map(drop)), ErrorKind::ReadOnly);
}

#[test]
fn memory_that_is_only_lent_is_not_exported() {
    let slice = numbers(6);
    let view = View::new(&slice, [6]).unwrap();
    assert_eq!(kind(share::<Versioned>(view)), ErrorKind::BorrowedMemory);
    let mut owner = Chunk::from_vec(&Device::cpu(0), numbers(6)).unwrap();
    let address = owner.slice_mut::<u32>().unwrap().as_mut_ptr().cast();
    let address = aether_core::Address::from_ptr(address);
    // SAFETY: the owner outlives the chunk, and nobody else touches the memory meanwhile.
    let lent = unsafe { Chunk::borrow(&Device::cpu(0), address, 24) };
    let shared = share::<Versioned>(lent.view::<u32, 1>([6]).unwrap());
    assert_eq!(kind(shared), ErrorKind::BorrowedMemory);
    let refused = export::<Versioned>(lent, &Layout::dense(DType::U32, &[6])).unwrap_err();
    assert_eq!(refused.error.kind(), ErrorKind::BorrowedMemory);
}

#[test]
fn a_shared_export_waits_for_the_pending_write_and_shows_it() {
    let device = Device::cpu(0);
    let stream = Stream::new(&device).unwrap();
    let source = Chunk::from_vec(&device, numbers(6)).unwrap();
    let mut chunk = Chunk::allocate(&device, 24).unwrap();
    let held = Held::write(&mut chunk, &stream, false);
    drop(copy_async(&mut chunk, &source, &stream).unwrap());
    let opener = held.open_later();
    let tensor = share::<Versioned>(chunk.view::<u32, 1>([6]).unwrap()).unwrap();
    assert!(held.is_open());
    assert_eq!((0..6).map(|at| element(&tensor, at)).collect::<Vec<_>>(), numbers(6));
    opener.join().unwrap();
}

#[test]
fn a_shared_export_does_not_wait_for_reads_and_one_by_value_does() {
    let device = Device::cpu(0);
    let stream = Stream::new(&device).unwrap();
    let chunk = Chunk::from_vec(&device, numbers(6)).unwrap();
    let held = Held::read(&chunk, &stream);
    let tensor = share::<Versioned>(chunk.view::<u32, 1>([6]).unwrap()).unwrap();
    assert!(!held.is_open());
    drop(tensor);
    let opener = held.open_later();
    let tensor = export::<Versioned>(chunk, &Layout::dense(DType::U32, &[6])).unwrap();
    assert!(held.is_open());
    assert_eq!(element(&tensor, 4), numbers(6)[4]);
    opener.join().unwrap();
}

#[test]
fn what_a_failed_write_left_is_not_exported_until_it_is_overwritten() {
    let device = Device::cpu(0);
    let stream = Stream::new(&device).unwrap();
    let mut chunk = Chunk::from_vec(&device, numbers(6)).unwrap();
    Held::write(&mut chunk, &stream, true).open();
    let shared = share::<Versioned>(chunk.view::<u32, 1>([6]).unwrap());
    assert_eq!(shared.unwrap_err().reason(), "told to fail");
    let layout = Layout::dense(DType::U32, &[6]);
    let refused = export::<Versioned>(chunk, &layout).unwrap_err();
    assert_eq!(refused.error.reason(), "told to fail");
    let mut chunk = refused.chunk;
    fill(&mut chunk.span_of_mut(..8, DType::U32).unwrap(), 5u32).unwrap();
    // The first two elements are healed, and no export was left behind by the refusals.
    let tensor = share::<Versioned>(chunk.view::<u32, 1>([2]).unwrap()).unwrap();
    assert_eq!((element(&tensor, 0), element(&tensor, 1)), (5, 5));
    drop(tensor);
    fill(&mut chunk, 6u32).unwrap();
    assert_eq!(element(&export::<Versioned>(chunk, &layout).unwrap(), 5), 6);
}

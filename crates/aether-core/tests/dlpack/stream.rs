//! Tensors that are handed over on a stream instead of waited for.

use std::sync::atomic::Ordering;
use std::time::Instant;

use aether_core::dlpack::{
    DLManagedTensorVersioned, Layout, export_on, import_on, share, share_on,
};
use aether_core::{Chunk, DType, Device, ErrorKind, Stream, copy_async, fill_async, progress};
use dlpark::DlpackFlags;
use dlpark::ffi::DLDevice;

use crate::deferred::Deferred;
use crate::foreign::Foreign;
use crate::held::Held;
use crate::numbers;

type Versioned = DLManagedTensorVersioned;

/// Waits until it holds. Who enqueues begins the work unless another thread that looks is just at the
/// stream, and then that one does.
fn comes(holds: impl Fn() -> bool) {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed().as_secs() < 20, "it has not come to hold");
        progress::look();
    }
}

#[test]
fn the_consumers_stream_is_ordered_behind_the_write_without_a_wait() {
    let (device, backend) = Deferred::device();
    let (ours, theirs) = (Stream::new(&device).unwrap(), Stream::new(&device).unwrap());
    let mut chunk = Chunk::allocate(&device, 24).unwrap();
    let write = fill_async(&mut chunk, 7u32, &ours).unwrap();
    let tensor = share_on::<Versioned>(chunk.view::<u32, 1>([6]).unwrap(), &theirs).unwrap();
    assert!(!write.has_ended());
    assert!(backend.is_ordered(theirs.native(), write.point()));
    drop(tensor);
    let by_value = export_on::<Versioned>(chunk, &Layout::dense(DType::U32, &[6]), &theirs);
    assert!(!write.has_ended());
    drop(by_value.unwrap());
    backend.finish(ours.native());
    backend.finish(theirs.native());
}

#[test]
fn an_export_by_value_orders_the_consumers_stream_behind_reads_too() {
    let (device, backend) = Deferred::device();
    let (ours, theirs) = (Stream::new(&device).unwrap(), Stream::new(&device).unwrap());
    let chunk = Chunk::allocate(&device, 24).unwrap();
    let mut other = Chunk::allocate(&device, 24).unwrap();
    let read = copy_async(&mut other, &chunk, &ours).unwrap();
    let view = chunk.view::<u32, 1>([6]).unwrap();
    drop(share_on::<Versioned>(view, &theirs).unwrap());
    assert!(!backend.is_ordered(theirs.native(), read.point()));
    let layout = Layout::dense(DType::U32, &[6]);
    let tensor = export_on::<Versioned>(chunk, &layout, &theirs).unwrap();
    assert!(backend.is_ordered(theirs.native(), read.point()));
    drop(tensor);
    backend.finish(ours.native());
    backend.finish(theirs.native());
}

#[test]
fn read_only_memory_goes_out_on_a_stream_too() {
    let (device, backend) = Deferred::device();
    let theirs = Stream::new(&device).unwrap();
    let chunk = Chunk::from_read_only_owner(&device, [7u8; 24]).unwrap();
    let layout = Layout::dense(DType::U8, &[24]);
    let tensor = export_on::<Versioned>(chunk, &layout, &theirs).unwrap();
    // SAFETY: the struct is there while the tensor is.
    assert_eq!(unsafe { (*tensor.as_ptr()).flags }, DlpackFlags::READ_ONLY);
    drop(tensor);
    backend.finish(theirs.native());
}

#[test]
fn a_later_write_comes_behind_what_the_stream_did_with_the_tensor() {
    let (device, backend) = Deferred::device();
    let (ours, theirs) = (Stream::new(&device).unwrap(), Stream::new(&device).unwrap());
    let mut chunk = Chunk::allocate(&device, 24).unwrap();
    let tensor = share_on::<Versioned>(chunk.view::<u32, 1>([6]).unwrap(), &theirs).unwrap();
    assert_eq!(fill_async(&mut chunk, 1u32, &ours).unwrap_err().kind(), ErrorKind::Exported);
    let ready = backend.last_mark(theirs.native()).unwrap();
    drop(tensor);
    let last = || backend.last_mark(theirs.native()).unwrap();
    comes(|| last().ticket > ready.ticket);
    let over = last();
    drop(fill_async(&mut chunk, 1u32, &ours).unwrap());
    comes(|| backend.is_ordered(ours.native(), over));
    backend.finish(theirs.native());
    backend.finish(ours.native());
}

#[test]
fn the_memory_is_freed_behind_what_the_stream_did_with_the_tensor() {
    for by_value in [false, true] {
        let (device, backend) = Deferred::device();
        let theirs = Stream::new(&device).unwrap();
        let chunk = Chunk::allocate(&device, 24).unwrap();
        let layout = Layout::dense(DType::U32, &[6]);
        let tensor = if by_value {
            export_on::<Versioned>(chunk, &layout, &theirs).unwrap()
        } else {
            let tensor = share_on(layout.view(&chunk).unwrap(), &theirs).unwrap();
            drop(chunk);
            tensor
        };
        let ready = backend.last_mark(theirs.native()).unwrap();
        backend.finish_up_to(ready);
        drop(tensor);
        for _ in 0..10 {
            progress::look();
        }
        assert_eq!(backend.freed.load(Ordering::SeqCst), 0);
        backend.finish(theirs.native());
        let start = Instant::now();
        while backend.freed.load(Ordering::SeqCst) == 0 && start.elapsed().as_secs() < 20 {
            progress::look();
        }
        assert_eq!(backend.freed.load(Ordering::SeqCst), 1);
    }
}

#[test]
fn where_the_device_orders_nothing_the_export_waits() {
    let device = Device::cpu(0);
    let (ours, theirs) = (Stream::new(&device).unwrap(), Stream::new(&device).unwrap());
    let mut chunk = Chunk::allocate(&device, 24).unwrap();
    let held = Held::write(&mut chunk, &ours, false);
    let opener = held.open_later();
    let tensor = share_on::<Versioned>(chunk.view::<u32, 1>([6]).unwrap(), &theirs).unwrap();
    assert!(held.is_open());
    drop(tensor);
    opener.join().unwrap();
}

#[test]
fn a_write_that_fails_before_the_order_is_made_is_the_exports_error() {
    let device = Device::cpu(0);
    let (ours, theirs) = (Stream::new(&device).unwrap(), Stream::new(&device).unwrap());
    let mut chunk = Chunk::allocate(&device, 24).unwrap();
    let held = Held::write(&mut chunk, &ours, true);
    let opener = held.open_later();
    let error = share_on::<Versioned>(chunk.view::<u32, 1>([6]).unwrap(), &theirs).unwrap_err();
    assert_eq!(error.reason(), "told to fail");
    let layout = Layout::dense(DType::U32, &[6]);
    let refused = export_on::<Versioned>(chunk, &layout, &theirs).unwrap_err();
    assert_eq!(refused.error.reason(), "told to fail");
    opener.join().unwrap();
}

#[test]
fn a_stream_of_another_device_is_refused() {
    let stream = Stream::new(&Device::cpu(1)).unwrap();
    let mut chunk = Chunk::from_vec(&Device::cpu(0), numbers(6)).unwrap();
    let shared = share_on::<Versioned>(chunk.view::<u32, 1>([6]).unwrap(), &stream);
    assert_eq!(shared.unwrap_err().kind(), ErrorKind::WrongDevice);
    chunk.slice_mut::<u32>().unwrap()[0] = 3;
    let layout = Layout::dense(DType::U32, &[6]);
    let refused = export_on::<Versioned>(chunk, &layout, &stream).unwrap_err();
    assert_eq!(refused.error.kind(), ErrorKind::WrongDevice);
    let (raw, deleted) = Foreign::new(&[6]).versioned();
    // SAFETY: a well-formed tensor whose memory goes with the deleter.
    let imported = unsafe { import_on(raw, &Device::cpu(0), &stream) };
    assert_eq!(imported.unwrap_err().kind(), ErrorKind::WrongDevice);
    assert_eq!(deleted.times(), 1);
}

#[test]
fn an_import_on_a_stream_is_used_behind_what_is_on_the_stream() {
    let (device, backend) = Deferred::device();
    let (ours, theirs) = (Stream::new(&device).unwrap(), Stream::new(&device).unwrap());
    // Read-only memory too: what the producer still writes, nobody may read yet.
    for foreign in [Foreign::new(&[6]), Foreign::new(&[6]).read_only()] {
        let (raw, deleted) = Foreign { device: DLDevice::cuda(0), ..foreign }.versioned();
        let before = backend.last_mark(theirs.native());
        // SAFETY: a well-formed tensor whose memory goes with the deleter, and which the backend can
        // reach.
        let imported = unsafe { import_on(raw, &device, &theirs) }.unwrap();
        comes(|| backend.last_mark(theirs.native()) != before);
        let ready = backend.last_mark(theirs.native()).unwrap();
        let mut target = Chunk::allocate(&device, 24).unwrap();
        drop(copy_async(&mut target, imported.chunk(), &ours).unwrap());
        comes(|| backend.is_ordered(ours.native(), ready));
        drop(imported);
        assert_eq!(deleted.times(), 0);
    }
    backend.finish(theirs.native());
    backend.finish(ours.native());
}

#[test]
fn a_shared_tensor_on_no_stream_is_ready_for_the_host() {
    let (device, backend) = Deferred::device();
    let stream = Stream::new(&device).unwrap();
    let mut chunk = Chunk::allocate(&device, 24).unwrap();
    let write = fill_async(&mut chunk, 7u32, &stream).unwrap();
    backend.finish(stream.native());
    let tensor = share::<Versioned>(chunk.view::<u32, 1>([6]).unwrap()).unwrap();
    assert!(write.has_ended());
    drop(tensor);
}

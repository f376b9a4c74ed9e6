//! Work on the same memory is ordered, and memory outlives its work.
#![allow(clippy::unwrap_used, clippy::panic, clippy::expect_used)]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use aether_core::{
    Chunk, Device, Error, ErrorKind, Operation, Result, Step, Stream, copy, copy_async, enqueue,
    fill,
};

/// An operation that ends when it is told to, well or not.
#[derive(Default)]
struct Held {
    open: AtomicBool,
    fails: bool,
}

// SAFETY: it touches no memory.
unsafe impl Operation for Held {
    fn issue(&self, _: u64) -> Result<Step> {
        Ok(Step::Pending)
    }

    fn advance(&self, _: u64) -> Result<Step> {
        match (self.open.load(Ordering::SeqCst), self.fails) {
            (false, _) => Ok(Step::Pending),
            (true, false) => Ok(Step::Issued),
            (true, true) => Err(Error::new(ErrorKind::Backend, "hold", "told to fail")),
        }
    }

    fn refused(&self, _: u64, _: &Error) {}
}

fn numbers(count: usize) -> Vec<u32> {
    (0..count as u32).map(|it| it * 7 + 3).collect()
}

#[test]
fn a_copy_on_another_stream_waits_for_the_write_that_it_reads() {
    let devices = Device::cpus(3);
    let source = Chunk::from_vec(&devices[0], numbers(100)).unwrap();
    let mut middle = Chunk::allocate(&devices[1], 400).unwrap();
    let mut last = Chunk::allocate(&devices[2], 400).unwrap();
    let (one, two) = (Stream::new(&devices[1]).unwrap(), Stream::new(&devices[2]).unwrap());
    let held = Arc::new(Held::default());
    // SAFETY: the operation touches nothing.
    let first = unsafe {
        enqueue(
            &one,
            &[],
            &mut [middle.span_of_mut(.., aether_core::DType::U8).unwrap()],
            held.clone(),
            0,
        )
    }
    .unwrap();
    copy_async(&mut middle, &source, &one).unwrap();
    let end = copy_async(&mut last, &middle, &two).unwrap();
    assert!(!end.is_done() && !first.is_done());
    held.open.store(true, Ordering::SeqCst);
    end.wait().unwrap();
    assert_eq!(last.slice::<u32>().unwrap(), numbers(100));
}

#[test]
fn a_failed_write_is_the_error_of_reads_until_it_is_overwritten() {
    let device = Device::cpu(0);
    let mut chunk = Chunk::allocate(&device, 400).unwrap();
    let mut other = Chunk::allocate(&device, 400).unwrap();
    let stream = Stream::new(&device).unwrap();
    let held = Arc::new(Held { open: AtomicBool::new(true), fails: true });
    let span = chunk.span_of_mut(100..300, aether_core::DType::U8).unwrap();
    // SAFETY: the operation touches nothing.
    let work = unsafe { enqueue(&stream, &[], &mut [span], held, 0) }.unwrap();
    assert_eq!(work.wait().unwrap_err().kind(), ErrorKind::Backend);
    assert_eq!(chunk.slice::<u8>().unwrap_err().reason(), "told to fail");
    assert_eq!(chunk.slice_mut::<u8>().unwrap_err().reason(), "told to fail");
    assert_eq!(copy(&mut other, &chunk).unwrap_err().reason(), "told to fail");
    fill(&mut chunk.span_of_mut(100..200, aether_core::DType::U8).unwrap(), 1u8).unwrap();
    assert_eq!(chunk.slice::<u8>().unwrap_err().reason(), "told to fail");
    fill(&mut chunk.span_of_mut(200..300, aether_core::DType::U8).unwrap(), 2u8).unwrap();
    let bytes = chunk.slice::<u8>().unwrap();
    assert_eq!((bytes[99], bytes[100], bytes[200], bytes[300]), (0, 1, 2, 0));
}

#[test]
fn work_goes_on_after_everything_was_dropped() {
    let devices = Device::cpus(2);
    let source = Chunk::from_vec(&devices[0], numbers(1000)).unwrap();
    let mut target = Chunk::allocate(&devices[1], 4000).unwrap();
    let stream = Stream::new(&devices[0]).unwrap();
    let work = copy_async(&mut target, &source, &stream).unwrap();
    drop((source, stream));
    assert!(work.wait_timeout(std::time::Duration::from_secs(10)).unwrap());
    drop(work);
    assert_eq!(target.to_vec::<u32>().unwrap(), numbers(1000));
}

//! Chunks: what is allocated, taken over, lent, and given back.
#![allow(clippy::unwrap_used, clippy::panic, clippy::expect_used)]

mod common;

use std::alloc::Layout;
use std::sync::Arc;

use aether_core::{
    ALIGNMENT, Address, Backend, Chunk, DType, Device, DeviceId, DeviceKind, ErrorKind,
    HostBackend, Link, NativeStream, Region, Result,
};
use common::{Manual, bytes, numbers};

#[test]
fn chunks_are_as_large_and_aligned_as_asked_and_zeroed() {
    let device = Device::cpu(3);
    for size in [1, 2, 255, 256, 257, 4096, 1 << 20] {
        if cfg!(miri) && size > 4096 {
            continue;
        }
        let chunk = Chunk::allocate(&device, size).unwrap();
        assert_eq!((chunk.size(), chunk.is_empty()), (size, false));
        assert!(chunk.data().addr().is_multiple_of(ALIGNMENT) && chunk.data().addr() != 0);
        assert!(chunk.slice::<u8>().unwrap().iter().all(|&it| it == 0), "{size} bytes");
        assert!(chunk.owns() && chunk.is_writable());
        assert_eq!(chunk.device(), &device);
    }
    for alignment in [1, 2, 64, 4096, 65536] {
        let chunk = Chunk::allocate_aligned(&device, 100, alignment).unwrap();
        assert!(chunk.data().addr().is_multiple_of(alignment), "aligned to {alignment}");
        assert_eq!(chunk.slice::<u8>().unwrap(), [0; 100]);
    }
}

#[test]
fn three_devices_with_a_chunk_each() {
    let devices = Device::cpus(3);
    let chunks: Vec<_> = devices.iter().map(|it| Chunk::allocate(it, 256).unwrap()).collect();
    for (at, chunk) in chunks.iter().enumerate() {
        assert_eq!(chunk.device().id().to_string(), format!("cpu:{at}"));
        assert_eq!(chunk.size(), 256);
        assert!(!chunk.data().as_ptr().is_null() && chunk.owns());
    }
    assert_ne!(chunks[0].data(), chunks[1].data());
}

#[test]
fn an_alignment_that_is_no_power_of_two_is_refused() {
    for alignment in [0, 3, 48, usize::MAX] {
        let error = Chunk::allocate_aligned(&Device::cpu(0), 8, alignment).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument);
        assert!(error.reason().contains(&alignment.to_string()), "{error}");
    }
}

#[test]
fn zero_bytes_allocate_nothing() {
    let (nowhere, lead) = Manual::device();
    for device in [Device::cpu(0), nowhere] {
        let mut chunk = Chunk::allocate(&device, 0).unwrap();
        assert!(chunk.is_empty() && chunk.owns());
        assert_eq!(chunk.data().addr(), ALIGNMENT);
        assert_eq!(chunk.to_vec::<u64>().unwrap(), []);
        assert_eq!(chunk.span_of_mut(.., DType::F64).unwrap().as_span().bytes(), 0);
    }
    assert_eq!(lead.live(), 0);
    let mut chunk = Chunk::allocate_aligned(&Device::cpu(0), 0, 1 << 40).unwrap();
    assert_eq!(chunk.slice::<f64>().unwrap(), [0f64; 0]);
    assert_eq!(chunk.slice_mut::<f64>().unwrap(), [0f64; 0]);
    // The bytes of an empty vector lie anywhere: that is no misalignment.
    let chunk = Chunk::from_vec(&Device::cpu(0), Vec::<u8>::new()).unwrap();
    assert_eq!(chunk.slice::<f64>().unwrap(), [0f64; 0]);
    assert_eq!(chunk.view::<f64, 1>([0]).unwrap().as_slice().unwrap(), [0f64; 0]);
}

#[test]
#[cfg_attr(miri, ignore = "miri ends where there is not as much memory")]
fn too_much_memory_is_an_error_that_says_how_much() {
    let device = Device::cpu(1);
    let most = isize::MAX as usize;
    for size in [most, most - 255, most / 256 * 256, usize::MAX, usize::MAX - 1, 1 << 62] {
        let error = Chunk::allocate(&device, size).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::OutOfMemory, "{size}");
        assert_eq!(error.bytes(), Some(size as u64));
        assert_eq!((error.attempted(), error.place()), ("allocate", Some("cpu:1")));
        // SAFETY: nothing is allocated, so nothing is read.
        let error = unsafe { Chunk::allocate_uninit(&device, size) }.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::OutOfMemory, "{size}");
    }
    let error = Chunk::allocate_aligned(&device, 64, 1 << 62).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::OutOfMemory);
    let error = Chunk::allocate_aligned(&device, 64, 1 << 63).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::OutOfMemory);
}

#[test]
fn a_vector_becomes_a_chunk_without_a_copy_and_back() {
    let elements = numbers(100);
    let before = elements.as_ptr().addr();
    let mut chunk = Chunk::from_vec(&Device::cpu(0), elements).unwrap();
    assert_eq!((chunk.data().addr(), chunk.size()), (before, 400));
    chunk.slice_mut::<u32>().unwrap()[99] = 1;
    let back = chunk.to_vec::<u32>().unwrap();
    assert_eq!((back[..99].to_vec(), back[99]), (numbers(99), 1));
    // The copy is one: the chunk doesn't see it change.
    assert_eq!(chunk.slice::<u32>().unwrap()[99], 1);
}

/// The host's memory as a device that takes no memory but its own, as pinned memory does.
struct Pinned(HostBackend);

// SAFETY: every method is the host's, but for `adopts`, which may always be false.
unsafe impl Backend for Pinned {
    fn name(&self) -> &str {
        "pinned"
    }

    fn allocate(&self, device: DeviceId, layout: Layout, zeroed: bool) -> Result<Address> {
        self.0.allocate(device, layout, zeroed)
    }

    unsafe fn free(&self, device: DeviceId, address: Address, layout: Layout) {
        // SAFETY: the caller promises what the host's backend asks.
        unsafe { self.0.free(device, address, layout) }
    }

    unsafe fn copy(&self, stream: NativeStream, dst: Region, src: Region) -> Result<()> {
        // SAFETY: as above.
        unsafe { self.0.copy(stream, dst, src) }
    }

    unsafe fn fill(&self, stream: NativeStream, dst: Region, pattern: &[u8]) -> Result<()> {
        // SAFETY: as above.
        unsafe { self.0.fill(stream, dst, pattern) }
    }

    fn host_addressable(&self, _: DeviceId) -> bool {
        true
    }

    fn link(&self, device: DeviceId, other: &Device) -> Link {
        self.0.link(device, other)
    }
}

#[test]
fn memory_that_the_backend_did_not_allocate_becomes_the_devices_only_where_it_may() {
    for kind in [DeviceKind::CPU, DeviceKind(77)] {
        let pinned = Device::new(DeviceId::new(kind, 0), Arc::new(Pinned(HostBackend::new())));
        let elements = numbers(10);
        let before = elements.as_ptr().addr();
        let chunk = Chunk::from_vec(&pinned, elements).unwrap();
        assert_ne!(chunk.data().addr(), before);
        assert!(chunk.data().addr().is_multiple_of(ALIGNMENT));
        assert_eq!(chunk.to_vec::<u32>().unwrap(), numbers(10));
        assert_eq!(chunk.device().kind(), kind);
        let refused = Chunk::from_owner(&pinned, bytes(8, 1)).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Unsupported);
        assert_eq!(refused.place(), Some(pinned.to_string().as_str()));
        let refused = Chunk::from_read_only_owner(&pinned, bytes(8, 1)).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Unsupported);

        let host = Device::new(DeviceId::new(kind, 0), Arc::new(HostBackend::new()));
        let elements = numbers(10);
        let before = elements.as_ptr().addr();
        assert_eq!(Chunk::from_vec(&host, elements).unwrap().data().addr(), before);
        let chunk = Chunk::from_owner(&host, bytes(8, 1)).unwrap();
        assert_eq!(chunk.slice::<u8>().unwrap(), bytes(8, 1));
        assert!(!Chunk::from_read_only_owner(&host, bytes(8, 1)).unwrap().is_writable());
    }
}

#[test]
fn a_range_outside_of_a_chunk_is_named_in_the_error() {
    let chunk = Chunk::allocate(&Device::cpu(1), 100).unwrap();
    let told = |error: aether_core::Error| {
        assert_eq!((error.kind(), error.place()), (ErrorKind::OutOfBounds, Some("cpu:1")));
        error.reason().to_owned()
    };
    let error = chunk.span_of(90..101, DType::U8).unwrap_err();
    assert_eq!(told(error), "bytes 90..101 lie outside of the chunk");
    let error = chunk.span_of(101.., DType::U8).unwrap_err();
    assert_eq!(told(error), "bytes 101..100 lie outside of the chunk");
    assert!(told(chunk.span_of(..=usize::MAX, DType::U8).unwrap_err()).contains("0..1844674407"));
    let error = chunk.span_of(8..16, DType::U8).unwrap().part(3, 6).unwrap_err();
    assert_eq!(told(error), "bytes 3+6 lie outside of the span");
}

#[test]
fn whole_elements_and_alignment_are_asked_for() {
    let device = Device::cpu(0);
    let mut chunk = Chunk::allocate(&device, 10).unwrap();
    let error = chunk.slice::<u32>().unwrap_err();
    assert_eq!((error.kind(), error.bytes()), (ErrorKind::PartialElement, Some(10)));
    assert_eq!(chunk.slice_mut::<u64>().unwrap_err().kind(), ErrorKind::PartialElement);
    assert_eq!(chunk.to_vec::<u32>().unwrap_err().kind(), ErrorKind::PartialElement);
    assert_eq!(chunk.slice::<u16>().unwrap().len(), 5);
    let odd = common_odd(&device);
    for result in [odd.slice::<u16>().map(|_| ()), odd.to_vec::<u16>().map(|_| ())] {
        let error = result.unwrap_err();
        assert_eq!((error.kind(), error.place()), (ErrorKind::Misaligned, Some("cpu:0")));
    }
    assert_eq!(odd.slice::<u8>().unwrap(), bytes(8, 5));
}

/// A chunk of eight bytes at an odd address.
fn common_odd(device: &Device) -> Chunk {
    struct Odd(Vec<u64>);
    impl AsMut<[u8]> for Odd {
        fn as_mut(&mut self) -> &mut [u8] {
            let pointer = self.0.as_mut_ptr().cast::<u8>();
            // SAFETY: the vector has two elements, which are sixteen bytes of which these are eight.
            unsafe { std::slice::from_raw_parts_mut(pointer.wrapping_add(1), 8) }
        }
    }
    let mut chunk = Chunk::from_owner(device, Odd(vec![0; 2])).unwrap();
    chunk.slice_mut::<u8>().unwrap().copy_from_slice(&bytes(8, 5));
    chunk
}

#[test]
fn parts_of_a_chunk_are_checked() {
    let device = Device::cpu(0);
    let mut chunk = Chunk::allocate(&device, 64).unwrap();
    let base = chunk.data();
    let span = chunk.span_of(8..24, DType::U64).unwrap();
    assert_eq!((span.address(), span.bytes(), span.dtype()), (base.add(8), 16, DType::U64));
    assert!(span.is_tracked() && span.device() == Some(&device));
    assert_eq!(chunk.span_of(..=7, DType::U8).unwrap().bytes(), 8);
    assert_eq!(chunk.span_of(60.., DType::U8).unwrap().bytes(), 4);
    assert_eq!(chunk.span_of(64.., DType::U64).unwrap().bytes(), 0);
    // An empty part may begin anywhere.
    assert_eq!(chunk.span_of(3..3, DType::U64).unwrap().bytes(), 0);
    let refused = |start, end, dtype| chunk.span_of(start..end, dtype).unwrap_err().kind();
    assert_eq!(refused(0, 65, DType::U8), ErrorKind::OutOfBounds);
    assert_eq!(refused(65, 65, DType::U8), ErrorKind::OutOfBounds);
    assert_eq!(refused(usize::MAX, usize::MAX, DType::U8), ErrorKind::OutOfBounds);
    assert_eq!(refused(0, 6, DType::U32), ErrorKind::PartialElement);
    assert_eq!(refused(2, 6, DType::U32), ErrorKind::Misaligned);
    #[allow(clippy::reversed_empty_ranges, reason = "that is what is refused")]
    let backwards = chunk.span_of(9..3, DType::U8).unwrap_err();
    assert_eq!(backwards.kind(), ErrorKind::OutOfBounds);
    let past = chunk.span_of(0..=usize::MAX, DType::U8).unwrap_err();
    assert_eq!((past.kind(), past.bytes()), (ErrorKind::OutOfBounds, Some(64)));
    let past = (std::ops::Bound::Excluded(usize::MAX), std::ops::Bound::Unbounded);
    assert_eq!(chunk.span_of(past, DType::U8).unwrap_err().kind(), ErrorKind::OutOfBounds);
    let mut part = chunk.span_of_mut(8..40, DType::U8).unwrap();
    assert_eq!(part.part(30, 2).unwrap().as_span().address(), base.add(38));
    assert_eq!(part.part(31, 2).unwrap_err().kind(), ErrorKind::OutOfBounds);
    assert_eq!(part.part(usize::MAX, 2).unwrap_err().kind(), ErrorKind::OutOfBounds);
}

#[test]
fn spans_overlap_only_in_a_common_byte_of_common_memory() {
    let device = Device::cpu(0);
    let (one, two) =
        (Chunk::allocate(&device, 64).unwrap(), Chunk::allocate(&Device::cpu(1), 64).unwrap());
    let part = |from: usize, to: usize| one.span_of(from..to, DType::U8).unwrap();
    assert!(part(0, 10).overlaps(&part(9, 20)) && part(9, 20).overlaps(&part(0, 64)));
    assert!(!part(0, 10).overlaps(&part(10, 20)));
    assert!(!part(5, 5).overlaps(&part(0, 10)) && !part(0, 10).overlaps(&part(5, 5)));
    assert!(!part(0, 64).overlaps(&two.span_of(.., DType::U8).unwrap()));
    // Plain memory of the host, and the same numbers on a device that has its own.
    use aether_core::AsSpan;
    let slice = one.slice::<u8>().unwrap();
    assert!(slice[3..4].span().unwrap().overlaps(&part(0, 4)));
    let (there, _lead) = Manual::device();
    // SAFETY: nothing is enqueued on it.
    let same = unsafe { Chunk::borrow(&there, one.data(), 64) };
    assert!(!same.span_of(.., DType::U8).unwrap().overlaps(&part(0, 64)));
    assert!(!slice.span().unwrap().overlaps(&same.span_of(.., DType::U8).unwrap()));
}

#[test]
fn read_only_memory_is_never_written() {
    let device = Device::cpu(0);
    let mut chunk = Chunk::from_read_only_owner(&device, bytes(64, 1)).unwrap();
    assert!(!chunk.is_writable() && chunk.owns());
    assert_eq!(chunk.slice_mut::<u8>().unwrap_err().kind(), ErrorKind::ReadOnly);
    assert_eq!(chunk.span_of_mut(.., DType::U8).unwrap_err().kind(), ErrorKind::ReadOnly);
    assert_eq!(chunk.view_mut::<u8, 1>([64]).unwrap_err().kind(), ErrorKind::ReadOnly);
    let strided = chunk.view_strided_mut::<u8, 1>([4], [2]).unwrap_err();
    assert_eq!((strided.kind(), strided.bytes()), (ErrorKind::ReadOnly, Some(64)));
    assert_eq!(chunk.slice::<u8>().unwrap(), bytes(64, 1));
}

/// Set in the child process of the test below.
#[cfg(all(target_os = "linux", not(miri)))]
const CHILD: &str = "AETHER_TEST_LIMITED";

#[test]
#[cfg(all(target_os = "linux", not(miri)))]
fn an_allocation_past_the_limit_of_the_process_is_an_error_and_no_abort() {
    let name = "an_allocation_past_the_limit_of_the_process_is_an_error_and_no_abort";
    if std::env::var_os(CHILD).is_some() {
        return past_the_limit();
    }
    let output = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", name, "--nocapture"])
        .env(CHILD, "1")
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && said.contains("refused as it should"), "{output:?}");
}

#[cfg(all(target_os = "linux", not(miri)))]
fn past_the_limit() {
    let device = Device::cpu(0);
    // Reserved before the limit is set, so that it can be read as a vector that is too large.
    let large = Chunk::allocate(&device, 96 << 20).unwrap();
    let pages = std::fs::read_to_string("/proc/self/statm").unwrap();
    let pages: u64 = pages.split(' ').next().unwrap().parse().unwrap();
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the pointer is one to a `rlimit` that lives through the call.
    assert_eq!(unsafe { libc::getrlimit(libc::RLIMIT_AS, &mut limit) }, 0);
    limit.rlim_cur = pages * 4096 + (64 << 20);
    // SAFETY: as above.
    assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_AS, &limit) }, 0);
    let error = Chunk::allocate(&device, 1 << 30).unwrap_err();
    assert_eq!((error.kind(), error.bytes()), (ErrorKind::OutOfMemory, Some(1 << 30)));
    assert!(error.to_string().contains("cpu:0 (1073741824 bytes)"), "{error}");
    // SAFETY: nothing is allocated, so nothing is read.
    let error = unsafe { Chunk::allocate_uninit(&device, 1 << 30) }.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::OutOfMemory);
    assert_eq!(large.to_vec::<u8>().unwrap_err().kind(), ErrorKind::OutOfMemory);
    let broad = large.view_strided::<u8, 2>([1 << 20, 1 << 10], [0, 1]).unwrap();
    assert_eq!(broad.pack().unwrap_err().kind(), ErrorKind::OutOfMemory);
    // What fits goes on.
    assert_eq!(Chunk::allocate(&device, 4096).unwrap().slice::<u8>().unwrap(), [0; 4096]);
    println!("refused as it should");
}

#[test]
fn a_backend_that_is_asked_for_no_bytes_refuses() {
    let device = Device::cpu(0);
    let nothing = std::alloc::Layout::from_size_align(0, 8).unwrap();
    for zeroed in [true, false] {
        let refused = device.backend().allocate(device.id(), nothing, zeroed);
        assert_eq!(refused.unwrap_err().kind(), ErrorKind::InvalidArgument);
    }
}

//! The shared heap of the process: host memory that the other processes of its groups read where it is.

use std::alloc::Layout;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Mutex, OnceLock};

use aether_core::{
    Address, Backend, Device, DeviceId, DeviceKind, Error, ErrorKind, HostBackend, Link,
    MemoryInfo, NativeStream, Region, Result,
};
use rustix::fs::FallocateFlags;
use rustix::process::{Resource, getrlimit};

use super::map::{self, Access, Map};
use super::ranges::Ranges;
use crate::shared::lock;

/// The device `cpu:index` whose memory is the shared heap of this process.
///
/// A group of several processes whose member joined when the process had the heap, with this device or
/// another, reads chunks of it directly; any other memory is staged. Memory is the machine's as it is
/// allocated, and comes back to it when large chunks are freed.
///
/// # Errors
/// `OutOfMemory` if a limit leaves no room for the heap (RLIMIT_FSIZE, RLIMIT_AS); `Io`.
pub fn shared_device(index: u32) -> Result<Device> {
    let heap = heap()?;
    let backend: Arc<dyn Backend> = heap.clone();
    Ok(Device::new(DeviceId::new(DeviceKind::CPU, index), backend))
}

/// The heap of this process, if it has one.
pub(crate) fn existing() -> Option<&'static Heap> {
    HEAP.get().map(|it| &**it)
}

/// Whether the device's memory is the heap.
pub(crate) fn is_of(device: &Device) -> bool {
    let backend = Arc::as_ptr(device.backend());
    HEAP.get().is_some_and(|it| std::ptr::addr_eq(Arc::as_ptr(it), backend))
}

static HEAP: OnceLock<Arc<Heap>> = OnceLock::new();

fn heap() -> Result<&'static Arc<Heap>> {
    if let Some(heap) = HEAP.get() {
        return Ok(heap);
    }
    let made = Arc::new(Heap::new()?);
    Ok(HEAP.get_or_init(|| made))
}

/// The least that is worth being a heap.
const LEAST: usize = 64 << 20;
/// Chunks begin at multiples of this, and large ones at pages.
const ALIGNMENT: usize = 256;
const LARGE: usize = 64 << 10;
const PAGE: usize = 4 << 10;
/// A freed range of so many bytes goes back to the machine.
const GIVEN_BACK: usize = 1 << 20;

/// The heap.
pub(crate) struct Heap {
    file: OwnedFd,
    map: Map,
    free: Mutex<Ranges>,
    host: HostBackend,
}

impl Heap {
    fn new() -> Result<Self> {
        let host = HostBackend::new();
        let cpu = DeviceId::new(DeviceKind::CPU, 0);
        let all = host.memory_info(cpu).map_or(1 << 34, |it| it.total);
        let most = getrlimit(Resource::Fsize).current.unwrap_or(u64::MAX);
        let mut size = usize::try_from(all.min(most)).unwrap_or(usize::MAX) / PAGE * PAGE;
        loop {
            let made = map::anonymous("aether-heap", size).and_then(|file| {
                let map = Map::new(file.as_fd(), size, Access::Own)?;
                Ok((file, map))
            });
            match made {
                Ok((file, map)) => {
                    let free = Mutex::new(Ranges::new(size));
                    return Ok(Self { file, map, free, host });
                }
                // A smaller one may find room in the address space.
                Err(_) if size / 2 >= LEAST => size = size / 2 / PAGE * PAGE,
                Err(error) => return Err(error.on("the shared heap")),
            }
        }
    }

    /// The file of the heap to read, and its size.
    ///
    /// # Errors
    /// `Io` if /proc is not there.
    pub(crate) fn shown(&self) -> Result<(OwnedFd, u64)> {
        Ok((map::reopened(&self.file)?, self.map.bytes() as u64))
    }

    /// Where in the heap the range lies, if all of it does.
    pub(crate) fn offset_of(&self, address: usize, bytes: usize) -> Option<u64> {
        let offset = address.checked_sub(self.map.base().addr())?;
        (offset.checked_add(bytes)? <= self.map.bytes()).then_some(offset as u64)
    }

    /// What the layout takes of the heap: its size and alignment.
    fn room(layout: Layout) -> (usize, usize) {
        let alignment = layout.align().max(ALIGNMENT);
        match layout.size() >= LARGE {
            true => (layout.size().next_multiple_of(PAGE), alignment.max(PAGE)),
            false => (layout.size().next_multiple_of(ALIGNMENT), alignment),
        }
    }
}

// SAFETY: an allocation is a range of the heap's mapping that nobody else has until it is freed
// (`Ranges`), aligned as asked since the mapping begins at a page and an alignment beyond a page is refused,
// and made to be there by `commit`; it is ordinary memory of this process, which others may only read. What
// zeros are asked for is written. All else is the host backend's, whose copies have ended when they return.
unsafe impl Backend for Heap {
    fn name(&self) -> &str {
        "shared heap"
    }

    fn allocate(&self, device: DeviceId, layout: Layout, zeroed: bool) -> Result<Address> {
        let bytes = layout.size();
        let refuse = |kind, reason: String| {
            Error::new(kind, "allocate", reason)
                .on(format!("{device} (shared heap)"))
                .of_bytes(bytes as u64)
        };
        if bytes == 0 || layout.align() > PAGE {
            let reason = "a heap allocates some bytes, aligned to a page at most".to_owned();
            return Err(refuse(ErrorKind::InvalidArgument, reason));
        }
        let (size, alignment) = Self::room(layout);
        let Some(at) = lock(&self.free).take(size, alignment) else {
            let all = self.map.bytes();
            let reason = format!("the heap of {all} bytes has no room for it");
            return Err(refuse(ErrorKind::OutOfMemory, reason));
        };
        let first = at / PAGE * PAGE;
        let pages = (at + size).next_multiple_of(PAGE) - first;
        if let Err(error) = map::commit(self.file.as_fd(), first as u64, pages) {
            lock(&self.free).give(at, size);
            return Err(refuse(error.kind(), error.reason().to_owned()).caused_by(error));
        }
        let address = self.map.base().wrapping_add(at);
        if zeroed {
            // SAFETY: the range is part of the mapping, is there, and was just taken: nobody uses it.
            unsafe { address.write_bytes(0, bytes) };
        }
        Ok(Address::from_ptr(address))
    }

    unsafe fn free(&self, _device: DeviceId, address: Address, layout: Layout) {
        let at = address.addr() - self.map.base().addr();
        let (size, _) = Self::room(layout);
        if size >= GIVEN_BACK {
            let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
            // Should it fail, the memory stays the heap's until it is taken again.
            let _ = rustix::fs::fallocate(&self.file, flags, at as u64, size as u64);
        }
        lock(&self.free).give(at, size);
    }

    unsafe fn copy(&self, stream: NativeStream, dst: Region, src: Region) -> Result<()> {
        // SAFETY: the contract is the same.
        unsafe { self.host.copy(stream, dst, src) }
    }

    unsafe fn fill(&self, stream: NativeStream, dst: Region, pattern: &[u8]) -> Result<()> {
        // SAFETY: the contract is the same.
        unsafe { self.host.fill(stream, dst, pattern) }
    }

    fn host_addressable(&self, _device: DeviceId) -> bool {
        true
    }

    fn link(&self, _device: DeviceId, other: &Device) -> Link {
        if other.host_addressable() { Link::Direct } else { Link::None }
    }

    fn open_stream(&self, device: DeviceId) -> Result<NativeStream> {
        self.host.open_stream(device)
    }

    fn memory_info(&self, device: DeviceId) -> Option<MemoryInfo> {
        self.host.memory_info(device)
    }

    fn description(&self, _device: DeviceId) -> String {
        "host memory that other processes can read".to_owned()
    }
}

//! The host's memory as a backend: the devices `cpu:0`, `cpu:1`, and so on.

use std::alloc::{Layout, alloc, alloc_zeroed, dealloc};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use crate::backend::{Address, Backend, Link, MemoryInfo, NativeStream, Region};
use crate::{Device, DeviceId, Error, ErrorKind, Result};

/// The host's memory. Its copies are done when they return, so aether's own queues are its streams.
///
/// [`Device::cpu`] uses one instance for the whole process. Another instance is another set of
/// devices: a detector wraps one of its own. It serves any kind and index that it is asked for, so
/// that a wrapper may give it a kind of its own, and never answers `UnknownDevice`.
#[derive(Debug, Default)]
pub struct HostBackend {
    streams: AtomicU64,
}

impl HostBackend {
    /// One more instance.
    pub fn new() -> Self {
        Self::default()
    }
}

/// The instance that serves [`Device::cpu`].
pub(crate) fn instance() -> Arc<dyn Backend> {
    static INSTANCE: OnceLock<Arc<HostBackend>> = OnceLock::new();
    INSTANCE.get_or_init(|| Arc::new(HostBackend::new())).clone()
}

// SAFETY: memory comes from the global allocator, which promises size, alignment and exclusivity,
// from any thread. Copies and fills have ended when they return, so the provided answers of `is_done`
// (true) and `wait` (by the host) hold; they know no stream, so any threads may make parts of one. `alloc_zeroed` zeroes; copies and fills write their
// regions and nothing else, wherever in the process these lie, so any memory may count as a device's.
// Streams are numbered, hence distinct. The answers about devices are constants.
unsafe impl Backend for HostBackend {
    fn name(&self) -> &str {
        "host"
    }

    fn allocate(&self, device: DeviceId, layout: Layout, zeroed: bool) -> Result<Address> {
        if layout.size() == 0 {
            let reason = "a backend allocates no zero bytes";
            return Err(Error::new(ErrorKind::InvalidArgument, "allocate", reason)
                .on(device)
                .of_bytes(0));
        }
        let layout = pages::rounded(layout);
        let pointer = match zeroed {
            // SAFETY: `GlobalAlloc::alloc_zeroed` asks for a layout of non-zero size, as was checked.
            true if !pages::is_large(layout) => unsafe { alloc_zeroed(layout) },
            // SAFETY: as above, for `GlobalAlloc::alloc`.
            _ => unsafe { alloc(layout) },
        };
        if pointer.is_null() {
            return Err(Error::new(
                ErrorKind::OutOfMemory,
                "allocate",
                "the host has not as much memory",
            )
            .on(device)
            .of_bytes(layout.size() as u64));
        }
        if pages::is_large(layout) {
            pages::advise(pointer, layout.size());
            if zeroed {
                // Only now, so that it is large pages that this touches.
                // SAFETY: the memory was just allocated with that size, and nobody else has it.
                unsafe { pointer.write_bytes(0, layout.size()) };
            }
        }
        Ok(Address::from_ptr(pointer))
    }

    unsafe fn free(&self, _device: DeviceId, address: Address, layout: Layout) {
        // SAFETY: the caller promises that `allocate` gave this address for this layout, which it
        // rounded in the same way, and that nobody uses it any more: what `GlobalAlloc::dealloc` asks.
        unsafe { dealloc(address.as_ptr(), pages::rounded(layout)) }
    }

    unsafe fn copy(&self, _stream: NativeStream, dst: Region, src: Region) -> Result<()> {
        let (from, to) = (src.address.as_ptr(), dst.address.as_ptr());
        // SAFETY: the caller promises two valid regions of one size that don't overlap, and that
        // nobody else touches them in a conflicting way, which is what `copy_nonoverlapping` asks.
        unsafe { std::ptr::copy_nonoverlapping(from, to, src.bytes) };
        Ok(())
    }

    unsafe fn fill(&self, _stream: NativeStream, dst: Region, pattern: &[u8]) -> Result<()> {
        let to = dst.address.as_ptr();
        if let &[byte] = pattern {
            // SAFETY: the caller promises that the region is valid for writes and that nobody else
            // touches it.
            unsafe { to.write_bytes(byte, dst.bytes) };
            return Ok(());
        }
        for at in (0..dst.bytes).step_by(pattern.len().max(1)) {
            let length = pattern.len().min(dst.bytes - at);
            // SAFETY: `at + length` is at most the region's size, so this stays inside of it; the
            // pattern is a slice of the caller and lies elsewhere.
            unsafe { std::ptr::copy_nonoverlapping(pattern.as_ptr(), to.wrapping_add(at), length) };
        }
        Ok(())
    }

    fn host_addressable(&self, _device: DeviceId) -> bool {
        true
    }

    fn adopts(&self, _device: DeviceId) -> bool {
        true
    }

    fn link(&self, _device: DeviceId, other: &Device) -> Link {
        if other.host_addressable() { Link::Direct } else { Link::None }
    }

    fn shares_copies(&self) -> bool {
        true
    }

    fn open_stream(&self, _device: DeviceId) -> Result<NativeStream> {
        Ok(NativeStream(self.streams.fetch_add(1, Ordering::Relaxed) + 1))
    }

    fn memory_info(&self, _device: DeviceId) -> Option<MemoryInfo> {
        memory_of_the_machine()
    }

    fn description(&self, _device: DeviceId) -> String {
        let cores = std::thread::available_parallelism().map_or(1, |it| it.get());
        format!("host memory, {cores} cores")
    }
}

/// Large pages: collectives go through memory faster than the processor finds its small ones.
mod pages {
    use std::alloc::Layout;

    /// What processors of both kinds have as large pages beside those of 4 KiB.
    const LARGE: usize = 2 << 20;

    /// Whether memory of this layout is worth large pages: what is lost at its ends is little of it.
    pub(super) fn is_large(layout: Layout) -> bool {
        cfg!(all(target_os = "linux", not(miri))) && layout.size() >= 2 * LARGE
    }

    /// The layout to allocate, which begins on a large page where that is worth it.
    pub(super) fn rounded(layout: Layout) -> Layout {
        if is_large(layout) { layout.align_to(LARGE).unwrap_or(layout) } else { layout }
    }

    /// Asks for large pages where they are given to those who ask. It is no error if there are none.
    pub(super) fn advise(start: *mut u8, bytes: usize) {
        // A page that is only begun belongs to others too.
        let whole = bytes / LARGE * LARGE;
        #[cfg(all(target_os = "linux", not(miri)))]
        // SAFETY: the range is memory that was just allocated; how it is paged changes nothing that its
        // contents or its owner could tell.
        unsafe {
            libc::madvise(start.cast(), whole, libc::MADV_HUGEPAGE);
        }
        #[cfg(not(all(target_os = "linux", not(miri))))]
        let _ = (start, whole);
    }
}

/// What Linux says in /proc/meminfo; nothing elsewhere.
fn memory_of_the_machine() -> Option<MemoryInfo> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let bytes = |name: &str| {
        let line = text.lines().find_map(|it| it.strip_prefix(name))?;
        let kib: u64 =
            line.trim_start_matches(':').trim().strip_suffix("kB")?.trim().parse().ok()?;
        kib.checked_mul(1024)
    };
    Some(MemoryInfo { total: bytes("MemTotal")?, free: bytes("MemAvailable")? })
}

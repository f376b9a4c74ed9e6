//! A device that refuses direct access, in host memory.

use std::alloc::{Layout, alloc, alloc_zeroed, dealloc};
use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use aether_core::{
    Address, Backend, Device, DeviceId, DeviceKind, Error, ErrorKind, Link, MemoryInfo,
    NativeStream, Region, Result,
};

/// The test double of a device whose memory the host can't address.
///
/// It has two kinds of memory: `remote`, reached only from `remote_host` and from peers, and
/// `remote_host`, memory of the host that ordinary memory reaches by blocking copies only. That is
/// what a GPU and its pinned memory look like. The addresses of `remote` memory point nowhere, so
/// code that dereferences one is found out at once, and a copy that leaves its allocation is an error.
///
/// Allocations and copies fail on demand, and memory has a limit. Its copies are done when they
/// return; [`Scrambled`](crate::doubles::Scrambled) around it makes them asynchronous.
pub struct Remote {
    me: Weak<Self>,
    built: RemoteBuilder,
    state: Mutex<State>,
}

/// What to build a [`Remote`] from.
#[derive(Clone, Debug)]
pub struct RemoteBuilder {
    devices: u32,
    host_link: Link,
    peers: Link,
    links: HashMap<(u32, u32), Link>,
    limit: u64,
}

#[derive(Debug, Default)]
struct State {
    /// Allocations of `remote` memory by their address, which is not that of the memory.
    blocks: BTreeMap<usize, Block>,
    next: usize,
    used: HashMap<DeviceId, u64>,
    /// How many go well before one fails.
    allocations_left: Option<u64>,
    copies_left: Option<u64>,
    streams: u64,
}

#[derive(Clone, Copy, Debug)]
struct Block {
    device: DeviceId,
    memory: Address,
    bytes: usize,
}

/// Where addresses of `remote` memory begin: far above what any system maps for a program.
const FIRST: usize = 1 << (usize::BITS - 9);

/// What memory holds that was not asked to be zero.
const GARBAGE: u8 = 0xA5;

impl Remote {
    /// Memory of the device.
    pub const KIND: DeviceKind = DeviceKind(0x7E00);
    /// Memory of the host that the device reaches.
    pub const HOST_KIND: DeviceKind = DeviceKind(0x7E01);

    /// Two devices, all pairs direct, 1 GiB of memory each, unless told otherwise.
    pub fn builder() -> RemoteBuilder {
        RemoteBuilder {
            devices: 2,
            host_link: Link::Direct,
            peers: Link::Direct,
            links: HashMap::new(),
            limit: 1 << 30,
        }
    }

    /// The `remote` devices.
    pub fn devices(&self) -> Vec<Device> {
        (0..self.built.devices).map(|index| self.device(Self::KIND, index)).collect()
    }

    /// The `remote_host` device.
    pub fn host(&self) -> Device {
        self.device(Self::HOST_KIND, 0)
    }

    /// After so many more that go well, one allocation fails.
    pub fn fail_allocation_after(&self, count: u64) {
        self.lock().allocations_left = Some(count);
    }

    /// After so many more that go well, one copy or fill fails.
    pub fn fail_copy_after(&self, count: u64) {
        self.lock().copies_left = Some(count);
    }

    /// How many bytes of the device are allocated.
    pub fn used(&self, device: DeviceId) -> u64 {
        self.lock().used.get(&device).copied().unwrap_or(0)
    }

    fn device(&self, kind: DeviceKind, index: u32) -> Device {
        let id = DeviceId::new(kind, index);
        match self.me.upgrade() {
            Some(me) => Device::new(id, me),
            // Only while it is being dropped, when nobody can ask any more.
            None => Device::cpu(index),
        }
    }

    fn serves(&self, device: DeviceId) -> bool {
        match device.kind {
            Self::KIND => device.index < self.built.devices,
            Self::HOST_KIND => device.index == 0,
            _ => false,
        }
    }

    /// The memory behind a region.
    fn resolve(&self, attempted: &'static str, region: Region) -> Result<*mut u8> {
        if region.device.kind != Self::KIND {
            return Ok(region.address.as_ptr());
        }
        let state = self.lock();
        let start = region.address.addr();
        let block = state.blocks.range(..=start).next_back().filter(|(at, block)| {
            block.device == region.device && start - *at + region.bytes <= block.bytes
        });
        let Some((at, block)) = block else {
            let reason = format!("no allocation holds {:?}+{}", region.address, region.bytes);
            return Err(Error::new(ErrorKind::OutOfBounds, attempted, reason)
                .on(region.device)
                .of_bytes(region.bytes as u64));
        };
        Ok(block.memory.add(start - at).as_ptr())
    }

    fn copy_fails(&self, attempted: &'static str, region: Region) -> Result<()> {
        let told = count_down(&mut self.lock().copies_left);
        if !told {
            return Ok(());
        }
        Err(Error::new(ErrorKind::Backend, attempted, "the double was told to fail")
            .on(region.device)
            .of_bytes(region.bytes as u64))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl RemoteBuilder {
    /// How many `remote` devices there are.
    #[must_use]
    pub fn devices(mut self, count: u32) -> Self {
        self.devices = count;
        self
    }

    /// How `remote` and `remote_host` memory are linked.
    #[must_use]
    pub fn host_link(mut self, link: Link) -> Self {
        self.host_link = link;
        self
    }

    /// How any two `remote` devices are linked, in both directions.
    #[must_use]
    pub fn peers(mut self, link: Link) -> Self {
        self.peers = link;
        self
    }

    /// How these two `remote` devices are linked, in both directions.
    #[must_use]
    pub fn pair(mut self, one: u32, other: u32, link: Link) -> Self {
        self.links.insert((one.min(other), one.max(other)), link);
        self
    }

    /// How much memory each device has, in bytes.
    #[must_use]
    pub fn limit(mut self, bytes: u64) -> Self {
        self.limit = bytes;
        self
    }

    /// The double.
    ///
    /// # Errors
    /// Somebody else uses the numbers or the names of its kinds.
    pub fn build(self) -> Result<Arc<Remote>> {
        Remote::KIND.register("remote")?;
        Remote::HOST_KIND.register("remote_host")?;
        let state = State { next: FIRST, ..State::default() };
        Ok(Arc::new_cyclic(|me| Remote { me: me.clone(), built: self, state: Mutex::new(state) }))
    }
}

impl fmt::Debug for Remote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Remote({} devices)", self.built.devices)
    }
}

/// Counts one off; true for the one that is to fail.
fn count_down(left: &mut Option<u64>) -> bool {
    match left {
        None => false,
        Some(0) => left.take().is_some(),
        Some(count) => {
            *count -= 1;
            false
        }
    }
}

// SAFETY: memory comes from the global allocator with the layout that is asked for, and goes back to
// it once; `remote` addresses are never given twice, and copies resolve them to that memory within
// its bounds. Copies and fills have ended when they return, so the provided answers hold.
unsafe impl Backend for Remote {
    fn name(&self) -> &str {
        "remote"
    }

    fn allocate(&self, device: DeviceId, layout: Layout, zeroed: bool) -> Result<Address> {
        let bytes = layout.size() as u64;
        let refuse = |kind, reason: &str| {
            Err(Error::new(kind, "allocate", reason).on(device).of_bytes(bytes))
        };
        if !self.serves(device) {
            return refuse(ErrorKind::UnknownDevice, "there is no such device");
        }
        let mut state = self.lock();
        if count_down(&mut state.allocations_left) {
            return refuse(ErrorKind::OutOfMemory, "the double was told to fail");
        }
        let used = state.used.get(&device).copied().unwrap_or(0);
        if used.saturating_add(bytes) > self.built.limit {
            return refuse(ErrorKind::OutOfMemory, "the device has not as much memory");
        }
        let pointer = match zeroed {
            // SAFETY: the contract of `allocate` promises a layout of non-zero size.
            true => unsafe { alloc_zeroed(layout) },
            // SAFETY: as above.
            false => unsafe { alloc(layout) },
        };
        if pointer.is_null() {
            return refuse(ErrorKind::OutOfMemory, "the host has not as much memory");
        }
        if !zeroed {
            // SAFETY: the allocator gave `layout.size()` bytes just now, to nobody else.
            unsafe { pointer.write_bytes(GARBAGE, layout.size()) };
        }
        state.used.insert(device, used + bytes);
        let memory = Address::from_ptr(pointer);
        if device.kind == Self::HOST_KIND {
            return Ok(memory);
        }
        let address = state.next.next_multiple_of(layout.align());
        // A gap behind each, so that neighbours never touch.
        state.next = address + layout.size() + 4096;
        state.blocks.insert(address, Block { device, memory, bytes: layout.size() });
        Ok(Address::from_raw(address))
    }

    unsafe fn free(&self, device: DeviceId, address: Address, layout: Layout) {
        let mut state = self.lock();
        let memory = match device.kind {
            Self::KIND => state.blocks.remove(&address.addr()).map(|it| it.memory),
            _ => Some(address),
        };
        let Some(memory) = memory else { return };
        if let Some(used) = state.used.get_mut(&device) {
            *used = used.saturating_sub(layout.size() as u64);
        }
        // SAFETY: `allocate` gave this memory for this layout, as the caller promises, and nobody
        // uses it any more.
        unsafe { dealloc(memory.as_ptr(), layout) }
    }

    unsafe fn copy(&self, _stream: NativeStream, dst: Region, src: Region) -> Result<()> {
        self.copy_fails("copy", src)?;
        let (to, from) = (self.resolve("copy", dst)?, self.resolve("copy", src)?);
        // SAFETY: the caller promises valid regions that don't overlap and that nobody else touches
        // in a conflicting way; `resolve` gave the memory behind them, within its bounds.
        unsafe { std::ptr::copy_nonoverlapping(from, to, src.bytes) };
        Ok(())
    }

    unsafe fn fill(&self, _stream: NativeStream, dst: Region, pattern: &[u8]) -> Result<()> {
        self.copy_fails("fill", dst)?;
        let to = self.resolve("fill", dst)?;
        // Doubles what is filled already, beginning with one pattern.
        let mut filled = pattern.len().min(dst.bytes);
        // SAFETY: `resolve` gave the memory behind the region, which is not shorter than `filled`, and
        // the caller promises that nobody else touches it; the pattern is elsewhere.
        unsafe { std::ptr::copy_nonoverlapping(pattern.as_ptr(), to, filled) };
        while filled < dst.bytes && filled > 0 {
            let more = filled.min(dst.bytes - filled);
            // SAFETY: as above: `filled + more` is at most the region's size, and the first `more`
            // bytes lie before the next.
            unsafe { std::ptr::copy_nonoverlapping(to, to.wrapping_add(filled), more) };
            filled += more;
        }
        Ok(())
    }

    fn host_addressable(&self, device: DeviceId) -> bool {
        device.kind != Self::KIND
    }

    fn link(&self, device: DeviceId, other: &Device) -> Link {
        let (one, two) = (device, other.id());
        match (one.kind == Self::KIND, two.kind == Self::KIND) {
            (true, true) if one.index == two.index => Link::Direct,
            (true, true) => {
                let pair = (one.index.min(two.index), one.index.max(two.index));
                self.built.links.get(&pair).copied().unwrap_or(self.built.peers)
            }
            (true, false) if two.kind == Self::HOST_KIND => self.built.host_link,
            (false, true) => self.built.host_link,
            (true, false) => Link::None,
            (false, false) if one.kind == two.kind => Link::Direct,
            (false, false) if other.host_addressable() => Link::Blocking,
            (false, false) => Link::None,
        }
    }

    fn staging(&self, device: DeviceId) -> Option<Device> {
        (device.kind == Self::KIND).then(|| self.host())
    }

    fn open_stream(&self, _device: DeviceId) -> Result<NativeStream> {
        let mut state = self.lock();
        state.streams += 1;
        Ok(NativeStream(state.streams))
    }

    fn memory_info(&self, device: DeviceId) -> Option<MemoryInfo> {
        let total = self.built.limit;
        Some(MemoryInfo { total, free: total.saturating_sub(self.used(device)) })
    }

    fn description(&self, device: DeviceId) -> String {
        let reach = match device.kind {
            Self::KIND => "that it can't address",
            _ => "that the double reaches",
        };
        format!("test double: host memory {reach}")
    }
}

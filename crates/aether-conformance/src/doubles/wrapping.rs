//! Backends around backends: a relay whose every method can be changed, for mutants and doubles.

use std::alloc::Layout;
use std::fmt;
use std::sync::{Arc, Weak};

use aether_core::{
    Address, Backend, Device, DeviceId, Link, MemoryInfo, NativeStream, Ordered, Point, Region,
    Result, Rows, Touch,
};

/// What a [`Relay`] does instead of handing on. Everything is provided as handing on.
pub trait Hooks: Send + Sync + 'static {
    /// In place of [`Backend::allocate`].
    ///
    /// # Errors
    /// The backend's.
    fn allocate(
        &self,
        inner: &dyn Backend,
        device: DeviceId,
        layout: Layout,
        zeroed: bool,
    ) -> Result<Address> {
        inner.allocate(device, layout, zeroed)
    }

    /// In place of [`Backend::free`].
    ///
    /// # Safety
    /// That of [`Backend::free`].
    unsafe fn free(&self, inner: &dyn Backend, device: DeviceId, address: Address, layout: Layout) {
        // SAFETY: the caller promises what the backend asks.
        unsafe { inner.free(device, address, layout) }
    }

    /// In place of [`Backend::copy`].
    ///
    /// # Safety
    /// That of [`Backend::copy`].
    ///
    /// # Errors
    /// The backend's.
    unsafe fn copy(
        &self,
        inner: &dyn Backend,
        stream: NativeStream,
        dst: Region,
        src: Region,
    ) -> Result<()> {
        // SAFETY: the caller promises what the backend asks.
        unsafe { inner.copy(stream, dst, src) }
    }

    /// In place of [`Backend::copy_rows`].
    ///
    /// # Safety
    /// That of [`Backend::copy_rows`].
    ///
    /// # Errors
    /// The backend's.
    unsafe fn copy_rows(
        &self,
        inner: &dyn Backend,
        stream: NativeStream,
        dst: Region,
        src: Region,
        rows: Rows,
    ) -> Result<()> {
        // SAFETY: the caller promises what the backend asks.
        unsafe { inner.copy_rows(stream, dst, src, rows) }
    }

    /// In place of [`Backend::fill`].
    ///
    /// # Safety
    /// That of [`Backend::fill`].
    ///
    /// # Errors
    /// The backend's.
    unsafe fn fill(
        &self,
        inner: &dyn Backend,
        stream: NativeStream,
        dst: Region,
        pattern: &[u8],
    ) -> Result<()> {
        // SAFETY: the caller promises what the backend asks.
        unsafe { inner.fill(stream, dst, pattern) }
    }

    /// In place of [`Backend::link`]; `other` is as the inner backend knows it.
    fn link(&self, inner: &dyn Backend, device: DeviceId, other: &Device) -> Link {
        inner.link(device, other)
    }

    /// In place of [`Backend::open_stream`].
    ///
    /// # Errors
    /// The backend's.
    fn open_stream(&self, inner: &dyn Backend, device: DeviceId) -> Result<NativeStream> {
        inner.open_stream(device)
    }

    /// In place of [`Backend::close_stream`].
    fn close_stream(&self, inner: &dyn Backend, stream: NativeStream) {
        inner.close_stream(stream);
    }

    /// In place of [`Backend::mark`].
    ///
    /// # Errors
    /// The backend's.
    fn mark(&self, inner: &dyn Backend, at: Point) -> Result<()> {
        inner.mark(at)
    }

    /// In place of [`Backend::is_done`].
    ///
    /// # Errors
    /// The backend's.
    fn is_done(&self, inner: &dyn Backend, at: Point) -> Result<bool> {
        inner.is_done(at)
    }

    /// In place of [`Backend::wait`].
    ///
    /// # Errors
    /// The backend's.
    fn wait(&self, inner: &dyn Backend, stream: NativeStream, on: Point) -> Result<Ordered> {
        inner.wait(stream, on)
    }

    /// In place of [`Backend::acquired`].
    fn acquired(&self, inner: &dyn Backend, at: Point) {
        inner.acquired(at);
    }

    /// In place of [`Backend::memory_info`].
    fn memory_info(&self, inner: &dyn Backend, device: DeviceId) -> Option<MemoryInfo> {
        inner.memory_info(device)
    }
}

/// A backend that hands everything on to another, but for what its hooks change.
///
/// With hooks that break a promise of [`Backend`] it is broken as well, and safe code over it may
/// then see memory in use freed: it is for tests that show how that is found.
pub struct Relay<H> {
    inner: Arc<dyn Backend>,
    hooks: H,
    me: Weak<Self>,
}

impl<H: Hooks> Relay<H> {
    /// A relay to `inner`.
    ///
    /// # Safety
    /// The hooks keep the promises of [`Backend`], or nobody relies on them.
    pub unsafe fn new(inner: Arc<dyn Backend>, hooks: H) -> Arc<Self> {
        Arc::new_cyclic(|me| Self { inner, hooks, me: me.clone() })
    }

    /// What it does differently.
    pub fn hooks(&self) -> &H {
        &self.hooks
    }

    /// The device `id` of the inner backend, by way of the relay.
    pub fn device(self: &Arc<Self>, id: DeviceId) -> Device {
        Device::new(id, self.clone())
    }
}

impl<H> fmt::Debug for Relay<H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Relay({})", self.inner.name())
    }
}

/// `other` as the inner backend knows it: a device of the wrapper is one of its own.
pub(crate) fn inward<W>(other: &Device, wrapper: &W, inner: &Arc<dyn Backend>) -> Device {
    match std::ptr::addr_eq(Arc::as_ptr(other.backend()), wrapper) {
        true => Device::new(other.id(), inner.clone()),
        false => other.clone(),
    }
}

/// A device that the inner backend names, as the wrapper's users know it.
pub(crate) fn outward(it: Device, inner: &Arc<dyn Backend>, me: &Weak<dyn Backend>) -> Device {
    let own = std::ptr::addr_eq(Arc::as_ptr(it.backend()), Arc::as_ptr(inner));
    match me.upgrade().filter(|_| own) {
        Some(wrapper) => Device::new(it.id(), wrapper),
        None => it,
    }
}

// SAFETY: the inner backend keeps the promises; whoever made the relay promised, in `Relay::new`, that
// the hooks do too or that nobody relies on them.
unsafe impl<H: Hooks> Backend for Relay<H> {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn allocate(&self, device: DeviceId, layout: Layout, zeroed: bool) -> Result<Address> {
        self.hooks.allocate(&*self.inner, device, layout, zeroed)
    }

    unsafe fn free(&self, device: DeviceId, address: Address, layout: Layout) {
        // SAFETY: the caller promises what the hook asks.
        unsafe { self.hooks.free(&*self.inner, device, address, layout) }
    }

    unsafe fn copy(&self, stream: NativeStream, dst: Region, src: Region) -> Result<()> {
        // SAFETY: the caller promises what the hook asks.
        unsafe { self.hooks.copy(&*self.inner, stream, dst, src) }
    }

    unsafe fn fill(&self, stream: NativeStream, dst: Region, pattern: &[u8]) -> Result<()> {
        // SAFETY: the caller promises what the hook asks.
        unsafe { self.hooks.fill(&*self.inner, stream, dst, pattern) }
    }

    fn host_addressable(&self, device: DeviceId) -> bool {
        self.inner.host_addressable(device)
    }

    fn adopts(&self, device: DeviceId) -> bool {
        self.inner.adopts(device)
    }

    fn link(&self, device: DeviceId, other: &Device) -> Link {
        self.hooks.link(&*self.inner, device, &inward(other, self, &self.inner))
    }

    fn staging(&self, device: DeviceId) -> Option<Device> {
        let me: Weak<dyn Backend> = self.me.clone();
        self.inner.staging(device).map(|it| outward(it, &self.inner, &me))
    }

    unsafe fn copy_rows(
        &self,
        stream: NativeStream,
        dst: Region,
        src: Region,
        rows: Rows,
    ) -> Result<()> {
        // SAFETY: the caller promises what the hook asks.
        unsafe { self.hooks.copy_rows(&*self.inner, stream, dst, src, rows) }
    }

    fn is_asynchronous(&self) -> bool {
        self.inner.is_asynchronous()
    }

    fn shares_copies(&self) -> bool {
        self.inner.shares_copies()
    }

    fn open_stream(&self, device: DeviceId) -> Result<NativeStream> {
        self.hooks.open_stream(&*self.inner, device)
    }

    fn close_stream(&self, stream: NativeStream) {
        self.hooks.close_stream(&*self.inner, stream);
    }

    fn mark(&self, at: Point) -> Result<()> {
        self.hooks.mark(&*self.inner, at)
    }

    fn is_done(&self, at: Point) -> Result<bool> {
        self.hooks.is_done(&*self.inner, at)
    }

    fn wait(&self, stream: NativeStream, on: Point) -> Result<Ordered> {
        self.hooks.wait(&*self.inner, stream, on)
    }

    fn acquired(&self, at: Point) {
        self.hooks.acquired(&*self.inner, at);
    }

    fn observe(&self, stream: Option<NativeStream>, touches: &[Touch]) {
        self.inner.observe(stream, touches);
    }

    fn raw_stream(&self, stream: NativeStream) -> u64 {
        self.inner.raw_stream(stream)
    }

    fn memory_info(&self, device: DeviceId) -> Option<MemoryInfo> {
        self.hooks.memory_info(&*self.inner, device)
    }

    fn description(&self, device: DeviceId) -> String {
        self.inner.description(device)
    }
}

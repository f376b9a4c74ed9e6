//! A happens-before detector around any backend.
//!
//! [`Checked`] is itself a [`Backend`], hands everything on to the one that it wraps, and reports every
//! pair of conflicting accesses that nothing orders, whatever the timing: two accesses that happened
//! to come one after the other are reported all the same. It also reports uses of freed memory, accesses
//! that reach out of their allocation, bad frees, and a host that relies on what has not ended.
//!
//! # What it takes for order
//! - Issues on one stream, in their order.
//! - [`Backend::wait`]: what is issued on the stream from then on comes after the point.
//! - [`Backend::acquired`]: what the host does from then on, issuing included, comes after the point.
//!
//! [`Backend::is_done`] orders nothing: that somebody looked does not mean that anybody relied on it.
//! Memory that the backend did not allocate (plain host memory, owners) is tracked without bounds.
//!
//! # Limits
//! - There is one clock for the host, so one thread's acquisition counts for all: tests of ordering
//!   drive from one thread.
//! - Work counts from its issue to the backend. A backend that isn't asynchronous is handed its work
//!   late, when the host may know more than it knew at the call; through an asynchronous one (such as
//!   [`Scrambled`](crate::doubles::Scrambled)) work is issued at once, and nothing is missed.
//! - It believes [`Backend::wait`] and [`Backend::is_done`] of the backend that it wraps; whether those
//!   tell the truth is for the [suite](crate::memory) to find out.
//! - Freed memory is kept back for a while, so that a late use of it is seen, and allocations have a
//!   guard behind them: a device that is nearly full runs out a little earlier.

mod blocks;
mod clock;
mod detector;
mod quarantine;
mod report;
mod shadow;

use std::alloc::Layout;
use std::fmt;
use std::sync::{Arc, Weak};

use aether_core::{
    Address, Backend, Device, DeviceId, DeviceKind, Error, ErrorKind, Link, MemoryInfo,
    NativeStream, Ordered, Point, Region, Result, Rows, Touch,
};

use crate::doubles::wrapping::{inward, outward};
use detector::Space;
use quarantine::{Parked, Quarantine};

pub use detector::Detector;
pub use report::{Access, By, Fault, Findings, Report, What};

/// A backend, watched. See the [module](self).
pub struct Checked<B: ?Sized = dyn Backend> {
    typed: Arc<B>,
    inner: Arc<dyn Backend>,
    detector: Detector,
    wrapper: u64,
    name: String,
    quarantine: Quarantine,
    me: Weak<dyn Backend>,
}

/// How many bytes behind an allocation belong to nobody, so that whoever goes too far is seen.
const GUARD: usize = 64;

impl<B: Backend> Checked<B> {
    /// Watches a backend with a detector of its own.
    pub fn new(inner: B) -> Arc<Self> {
        Self::of(Arc::new(inner))
    }

    /// As [`Checked::new`], for a backend that somebody else holds as well.
    pub fn of(inner: Arc<B>) -> Arc<Self> {
        Self::sharing(&Detector::new(), inner)
    }

    /// Watches a backend with a detector that watches others as well, so that work of one backend on
    /// memory of another is checked too.
    pub fn sharing(detector: &Detector, inner: Arc<B>) -> Arc<Self> {
        Self::build(detector, inner.clone(), inner)
    }
}

impl Checked {
    /// Watches a backend whose type is not known, such as that of a [`Device`].
    pub fn around(inner: Arc<dyn Backend>) -> Arc<Self> {
        Self::around_sharing(&Detector::new(), inner)
    }

    /// As [`Checked::around`], with a detector that watches others as well.
    pub fn around_sharing(detector: &Detector, inner: Arc<dyn Backend>) -> Arc<Self> {
        Self::build(detector, inner.clone(), inner)
    }
}

impl<B: Backend + ?Sized> Checked<B> {
    /// The backend that is watched.
    pub fn inner(&self) -> &Arc<B> {
        &self.typed
    }

    /// What watches it.
    pub fn detector(&self) -> &Detector {
        &self.detector
    }

    /// The device `id`, watched.
    pub fn device(&self, id: DeviceId) -> Device {
        // The wrapper lives, because `self` does, and was made by `build`: there is always one.
        Device::new(id, self.me.upgrade().unwrap_or_else(|| self.inner.clone()))
    }

    /// The first `count` devices of a kind, watched.
    pub fn devices(&self, kind: DeviceKind, count: u32) -> Vec<Device> {
        (0..count).map(|index| self.device(DeviceId::new(kind, index))).collect()
    }

    /// What was found so far.
    pub fn reports(&self) -> Vec<Report> {
        self.detector.reports()
    }

    /// Whether nothing was found so far.
    ///
    /// # Errors
    /// What was found.
    pub fn verdict(&self) -> Result<(), Findings> {
        self.detector.verdict()
    }

    fn build(detector: &Detector, typed: Arc<B>, inner: Arc<dyn Backend>) -> Arc<Self> {
        Arc::new_cyclic(|me: &Weak<Self>| Self {
            typed,
            name: format!("checked {}", inner.name()),
            inner,
            detector: detector.clone(),
            wrapper: detector.join_wrapper(),
            quarantine: Quarantine::default(),
            me: me.clone(),
        })
    }

    fn space(&self, device: DeviceId) -> Space {
        match self.inner.host_addressable(device) {
            true => Space::Host,
            false => Space::Device(self.wrapper, device),
        }
    }

    fn touch(&self, region: Region, writes: bool) -> (Space, Touch) {
        (self.space(region.device), Touch { region, writes })
    }

    fn touches(&self, touches: &[Touch]) -> Vec<(Space, Touch)> {
        touches.iter().map(|&it| (self.space(it.region.device), it)).collect()
    }

    /// The backend's name of the stream.
    fn native(&self, stream: NativeStream) -> Result<NativeStream> {
        self.detector.native(stream).ok_or_else(|| {
            let reason = format!("stream #{} is not open", stream.0);
            Error::new(ErrorKind::InvalidArgument, "use a stream", reason).on(&self.name)
        })
    }

    /// Whether the backend says that the point has not ended. A device that can't tell is no finding.
    fn has_not_ended(&self, at: Point) -> bool {
        let Some(stream) = self.detector.native(at.stream) else { return false };
        matches!(self.inner.is_done(Point { stream, ..at }), Ok(false))
    }

    /// Enters an issue, and gives the backend's name of the stream.
    fn issue(
        &self,
        stream: NativeStream,
        what: What,
        touches: &[(Space, Touch)],
    ) -> Result<NativeStream> {
        let native = self.native(stream)?;
        for point in self.detector.promised(stream) {
            if self.has_not_ended(point) {
                let detail = "work was issued that the host had to hold back until then";
                self.detector.not_ended(point, detail);
            }
        }
        self.detector.issue(stream, what, touches);
        Ok(native)
    }

    /// Gives the memory back that was kept longest, until the rest is little enough.
    fn release(&self, parked: Vec<Parked>) {
        for it in parked {
            self.detector.forget(it.space, it.address);
            // SAFETY: `allocate` of the inner backend gave the address for this device and layout;
            // the quarantine holds it once, because the detector lets a block be freed once; and it
            // came there only because everything that touched it had ended, as the detector found.
            unsafe { self.inner.free(it.device, it.address, it.layout) }
        }
    }

    /// The layout with a guard behind it, where there is room for one. What is kept back goes first
    /// if the device is short of memory.
    fn guarded(&self, device: DeviceId, layout: Layout) -> Layout {
        let extent = layout.size().checked_add(GUARD);
        let guarded = extent.and_then(|it| Layout::from_size_align(it, layout.align()).ok());
        let Some(guarded) = guarded else { return layout };
        let room = || self.inner.memory_info(device).map_or(u64::MAX, |it| it.free);
        if room() < guarded.size() as u64 {
            self.release(self.quarantine.take_all());
            if room() < guarded.size() as u64 {
                return layout;
            }
        }
        guarded
    }
}

impl<B: ?Sized> Drop for Checked<B> {
    fn drop(&mut self) {
        for it in self.quarantine.take_all() {
            self.detector.forget(it.space, it.address);
            // SAFETY: as in `release`.
            unsafe { self.inner.free(it.device, it.address, it.layout) }
        }
    }
}

impl<B: ?Sized> fmt::Debug for Checked<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Checked({})", self.name)
    }
}

// SAFETY: allocations, copies, ends and orders are those of the inner backend, which keeps the
// contract. Memory goes back to it later than it was freed, or never, which takes nothing from
// anybody; the guard makes allocations larger than asked, and they are freed with the layout that
// they were made with.
unsafe impl<B: Backend + ?Sized> Backend for Checked<B> {
    fn name(&self) -> &str {
        &self.name
    }

    fn allocate(&self, device: DeviceId, layout: Layout, zeroed: bool) -> Result<Address> {
        let given = self.guarded(device, layout);
        let address = self.inner.allocate(device, given, zeroed)?;
        let region = Region { device, address, bytes: layout.size() };
        self.detector.allocated(self.space(device), region, layout, given.size());
        Ok(address)
    }

    unsafe fn free(&self, device: DeviceId, address: Address, layout: Layout) {
        let space = self.space(device);
        let Some((extent, over)) = self.detector.freed(space, device, address, layout) else {
            return;
        };
        let Ok(given) = Layout::from_size_align(extent, layout.align()) else { return };
        // Memory that unordered work may still touch is never given back.
        if over {
            let parked = Parked { space, device, address, layout: given };
            self.release(self.quarantine.park(parked));
        }
    }

    unsafe fn copy(&self, stream: NativeStream, dst: Region, src: Region) -> Result<()> {
        self.detector.copy_is_apart((self.space(dst.device), dst), (self.space(src.device), src));
        let touches = [self.touch(src, false), self.touch(dst, true)];
        let native = self.issue(stream, What::Copy, &touches)?;
        // SAFETY: the caller promises what the inner backend asks, in the same words.
        unsafe { self.inner.copy(native, dst, src) }
    }

    unsafe fn fill(&self, stream: NativeStream, dst: Region, pattern: &[u8]) -> Result<()> {
        let native = self.issue(stream, What::Fill, &[self.touch(dst, true)])?;
        // SAFETY: the caller promises what the inner backend asks, in the same words.
        unsafe { self.inner.fill(native, dst, pattern) }
    }

    fn host_addressable(&self, device: DeviceId) -> bool {
        self.inner.host_addressable(device)
    }

    fn adopts(&self, device: DeviceId) -> bool {
        self.inner.adopts(device)
    }

    fn link(&self, device: DeviceId, other: &Device) -> Link {
        self.inner.link(device, &inward(other, self, &self.inner))
    }

    fn staging(&self, device: DeviceId) -> Option<Device> {
        self.inner.staging(device).map(|it| outward(it, &self.inner, &self.me))
    }

    unsafe fn copy_rows(
        &self,
        stream: NativeStream,
        dst: Region,
        src: Region,
        rows: Rows,
    ) -> Result<()> {
        let parts = |region: Region, pitch: usize, writes: bool| {
            let dense = pitch == rows.bytes;
            let (count, bytes) = match dense {
                true => (rows.count.min(1), rows.bytes.saturating_mul(rows.count)),
                false => (rows.count, rows.bytes),
            };
            (0..count).map(move |row| {
                let address = region.address.add(row.saturating_mul(pitch));
                self.touch(Region { address, bytes, ..region }, writes)
            })
        };
        let touches: Vec<_> =
            parts(src, rows.src_pitch, false).chain(parts(dst, rows.dst_pitch, true)).collect();
        let native = self.issue(stream, What::Copy, &touches)?;
        // SAFETY: the caller promises what the inner backend asks, in the same words.
        unsafe { self.inner.copy_rows(native, dst, src, rows) }
    }

    fn is_asynchronous(&self) -> bool {
        self.inner.is_asynchronous()
    }

    fn shares_copies(&self) -> bool {
        self.inner.shares_copies()
    }

    fn open_stream(&self, device: DeviceId) -> Result<NativeStream> {
        // Names of its own, because a backend may have one name for all its streams.
        Ok(self.detector.open(self.inner.open_stream(device)?))
    }

    fn close_stream(&self, stream: NativeStream) {
        let Some((native, last)) = self.detector.close(stream) else { return };
        if matches!(self.inner.is_done(Point { stream: native, ticket: last }), Ok(false)) {
            self.detector.closed_early(stream);
        }
        self.inner.close_stream(native);
    }

    fn mark(&self, at: Point) -> Result<()> {
        let stream = self.native(at.stream)?;
        self.inner.mark(Point { stream, ..at })?;
        self.detector.mark(at);
        Ok(())
    }

    fn is_done(&self, at: Point) -> Result<bool> {
        let stream = self.native(at.stream)?;
        self.inner.is_done(Point { stream, ..at })
    }

    fn wait(&self, stream: NativeStream, on: Point) -> Result<Ordered> {
        let inner_on = Point { stream: self.native(on.stream)?, ..on };
        let ordered = self.inner.wait(self.native(stream)?, inner_on)?;
        self.detector.wait(stream, on, ordered == Ordered::ByHost);
        Ok(ordered)
    }

    fn acquired(&self, at: Point) {
        let Some(stream) = self.detector.native(at.stream) else { return };
        if self.has_not_ended(at) {
            self.detector.not_ended(at, "the host went on as if it had");
            return;
        }
        self.inner.acquired(Point { stream, ..at });
        self.detector.acquired(at);
    }

    fn observe(&self, stream: Option<NativeStream>, touches: &[Touch]) {
        let located = self.touches(touches);
        let Some(stream) = stream else {
            self.detector.host_access(&located);
            self.inner.observe(None, touches);
            return;
        };
        if let Ok(native) = self.issue(stream, What::Work, &located) {
            self.inner.observe(Some(native), touches);
        }
    }

    fn raw_stream(&self, stream: NativeStream) -> u64 {
        self.native(stream).map_or(0, |it| self.inner.raw_stream(it))
    }

    fn memory_info(&self, device: DeviceId) -> Option<MemoryInfo> {
        self.inner.memory_info(device)
    }

    fn description(&self, device: DeviceId) -> String {
        format!("{}, checked", self.inner.description(device))
    }
}

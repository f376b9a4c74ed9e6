//! Backends that each break one promise.

use std::alloc::Layout;
use std::collections::HashMap;
use std::sync::Mutex;

use aether_conformance::doubles::wrapping::Hooks;
use aether_core::{
    Address, Backend, Device, DeviceId, Error, ErrorKind, Link, NativeStream, Ordered, Point,
    Region, Result, Rows,
};

/// Which promise is broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Broken {
    AllocatesTooMuch,
    CopiesDenseRows,
    CopiesFromTheStart,
    CopiesTooLittle,
    EndsEarly,
    EndsNever,
    FillsBytes,
    FillsTooLittle,
    FillsTooMuch,
    ForgetsAlignment,
    ForgetsOrder,
    ForgetsZeros,
    HidesFailures,
    Leaks,
    LinksOneWay,
    MixesStreams,
    NamesNoDevice,
    ServesAnyDevice,
    SharesAllocations,
}

/// The hooks that break it.
pub(crate) struct Hook {
    broken: Broken,
    /// Streams opened beside those of the user.
    beside: Mutex<HashMap<u64, NativeStream>>,
    copies: Mutex<u64>,
    last: Mutex<Option<(Layout, Address)>>,
}

impl Hook {
    pub(crate) fn new(broken: Broken) -> Self {
        Self { broken, beside: Mutex::default(), copies: Mutex::default(), last: Mutex::default() }
    }

    fn is(&self, broken: Broken) -> bool {
        self.broken == broken
    }

    /// Whether the mutant makes aether free memory that is in use: it is leaked instead, so that the
    /// test program stays whole.
    fn endangers_memory(&self) -> bool {
        use Broken::*;
        matches!(self.broken, EndsEarly | ForgetsOrder | Leaks | MixesStreams | SharesAllocations)
    }

    /// The user's stream, or the one beside it by turns.
    fn some_stream(&self, stream: NativeStream) -> NativeStream {
        let mut copies = self.copies.lock().unwrap();
        *copies += 1;
        let beside = self.beside.lock().unwrap().get(&stream.0).copied();
        beside.filter(|_| copies.is_multiple_of(2)).unwrap_or(stream)
    }
}

fn shorter(region: Region, by: usize) -> Region {
    Region { bytes: region.bytes.saturating_sub(by), ..region }
}

impl Hooks for Hook {
    fn allocate(
        &self,
        inner: &dyn Backend,
        device: DeviceId,
        layout: Layout,
        zeroed: bool,
    ) -> Result<Address> {
        match self.broken {
            Broken::AllocatesTooMuch => {
                let size = layout.size().min(1 << 20);
                inner.allocate(
                    device,
                    Layout::from_size_align(size, layout.align()).unwrap(),
                    zeroed,
                )
            }
            Broken::ForgetsAlignment => {
                inner.allocate(device, Layout::from_size_align(layout.size(), 1).unwrap(), zeroed)
            }
            Broken::ForgetsZeros => inner.allocate(device, layout, false),
            Broken::NamesNoDevice => inner
                .allocate(device, layout, zeroed)
                .map_err(|_| Error::new(ErrorKind::OutOfMemory, "allocate", "no memory")),
            Broken::ServesAnyDevice => {
                inner.allocate(DeviceId { index: 0, ..device }, layout, zeroed)
            }
            Broken::SharesAllocations => {
                let mut last = self.last.lock().unwrap();
                if let Some((_, address)) = last.filter(|it| it.0 == layout) {
                    return Ok(address);
                }
                let address = inner.allocate(device, layout, zeroed)?;
                *last = Some((layout, address));
                Ok(address)
            }
            _ => inner.allocate(device, layout, zeroed),
        }
    }

    unsafe fn free(&self, inner: &dyn Backend, device: DeviceId, address: Address, layout: Layout) {
        if self.endangers_memory() {
            return;
        }
        let layout = match self.broken {
            Broken::AllocatesTooMuch => {
                Layout::from_size_align(layout.size().min(1 << 20), layout.align()).unwrap()
            }
            Broken::ForgetsAlignment => Layout::from_size_align(layout.size(), 1).unwrap(),
            _ => layout,
        };
        let device = match self.broken {
            Broken::ServesAnyDevice => DeviceId { index: 0, ..device },
            _ => device,
        };
        // SAFETY: the caller promises what the inner backend asks, for the device and layout that the
        // memory was allocated with above.
        unsafe { inner.free(device, address, layout) }
    }

    unsafe fn copy(
        &self,
        inner: &dyn Backend,
        stream: NativeStream,
        dst: Region,
        src: Region,
    ) -> Result<()> {
        let (stream, dst, src) = match self.broken {
            Broken::CopiesTooLittle => (stream, shorter(dst, 1), shorter(src, 1)),
            Broken::CopiesFromTheStart => {
                let address = Address::from_ptr(src.address.as_ptr().map_addr(|it| it & !63));
                (stream, dst, Region { address, ..src })
            }
            Broken::MixesStreams => (self.some_stream(stream), dst, src),
            _ => (stream, dst, src),
        };
        // SAFETY: the regions are those of the caller or parts of them; the case that is to catch
        // reading from a lower address reads from within an allocation that is aligned to 64 bytes.
        let outcome = unsafe { inner.copy(stream, dst, src) };
        if self.is(Broken::HidesFailures) { Ok(()) } else { outcome }
    }

    unsafe fn copy_rows(
        &self,
        inner: &dyn Backend,
        stream: NativeStream,
        dst: Region,
        src: Region,
        rows: Rows,
    ) -> Result<()> {
        let rows = match self.is(Broken::CopiesDenseRows) {
            true => Rows { dst_pitch: rows.bytes, src_pitch: rows.bytes, ..rows },
            false => rows,
        };
        // SAFETY: dense rows lie within the regions too, whose pitches are at least that.
        unsafe { inner.copy_rows(stream, dst, src, rows) }
    }

    unsafe fn fill(
        &self,
        inner: &dyn Backend,
        stream: NativeStream,
        dst: Region,
        pattern: &[u8],
    ) -> Result<()> {
        let (dst, pattern) = match self.broken {
            Broken::FillsBytes => (dst, &pattern[..1]),
            Broken::FillsTooLittle => (shorter(dst, pattern.len()), pattern),
            Broken::FillsTooMuch => (Region { bytes: dst.bytes + pattern.len(), ..dst }, pattern),
            _ => (dst, pattern),
        };
        let stream = match self.is(Broken::MixesStreams) {
            true => self.some_stream(stream),
            false => stream,
        };
        // SAFETY: the region is the caller's or part of it; the case that is to catch what is written
        // behind it leaves room for that in its allocation.
        let outcome = unsafe { inner.fill(stream, dst, pattern) };
        if self.is(Broken::HidesFailures) { Ok(()) } else { outcome }
    }

    fn link(&self, inner: &dyn Backend, device: DeviceId, other: &Device) -> Link {
        let found = inner.link(device, other);
        match self.broken {
            Broken::LinksOneWay if device.index < other.id().index => Link::None,
            _ => found,
        }
    }

    fn open_stream(&self, inner: &dyn Backend, device: DeviceId) -> Result<NativeStream> {
        let stream = inner.open_stream(device)?;
        if self.is(Broken::MixesStreams) {
            self.beside.lock().unwrap().insert(stream.0, inner.open_stream(device)?);
        }
        Ok(stream)
    }

    fn is_done(&self, inner: &dyn Backend, at: Point) -> Result<bool> {
        match self.broken {
            Broken::EndsEarly => Ok(true),
            Broken::EndsNever => Ok(at.ticket == 0),
            _ => inner.is_done(at),
        }
    }

    fn wait(&self, inner: &dyn Backend, stream: NativeStream, on: Point) -> Result<Ordered> {
        match self.is(Broken::ForgetsOrder) {
            true => Ok(Ordered::ByDevice),
            false => inner.wait(stream, on),
        }
    }
}

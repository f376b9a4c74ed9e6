//! What a memory backend implements.

use std::alloc::Layout;
use std::fmt;

use crate::{Device, DeviceId, Result};

/// An address in the memory of some device. It is a number: only a backend, or unsafe code that
/// knows the device to be host-addressable, makes something of it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Address(*mut u8);

// SAFETY: an `Address` gives no access to what it points to; whoever dereferences it does so in
// unsafe code with a proof of its own.
unsafe impl Send for Address {}
// SAFETY: as for `Send`: a shared `Address` can only be copied and compared.
unsafe impl Sync for Address {}

impl Address {
    /// The address that a pointer of the host holds; it keeps the pointer's provenance.
    pub const fn from_ptr(pointer: *mut u8) -> Self {
        Self(pointer)
    }

    /// An address of a device that the host can't reach: it has no provenance.
    pub const fn from_raw(address: usize) -> Self {
        Self(std::ptr::without_provenance_mut(address))
    }

    /// The pointer, to dereference where the device is host-addressable.
    pub const fn as_ptr(self) -> *mut u8 {
        self.0
    }

    /// The number.
    pub fn addr(self) -> usize {
        self.0.addr()
    }

    /// The address so many bytes further. Nothing checks that it is still within its allocation.
    #[must_use]
    pub const fn add(self, bytes: usize) -> Self {
        Self(self.0.wrapping_add(bytes))
    }
}

impl fmt::Debug for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#x}", self.addr())
    }
}

/// A contiguous range of one device's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Region {
    /// Whose memory.
    pub device: DeviceId,
    /// Where it begins.
    pub address: Address,
    /// How long it is.
    pub bytes: usize,
}

/// Rows of equal length at a fixed distance: what one pitched copy moves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rows {
    /// How many rows.
    pub count: usize,
    /// The length of a row, in bytes.
    pub bytes: usize,
    /// From the start of a row to the start of the next, in the destination, in bytes.
    pub dst_pitch: usize,
    /// From the start of a row to the start of the next, in the source, in bytes.
    pub src_pitch: usize,
}

/// A backend's own name for one of its streams.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct NativeStream(pub u64);

/// A point on a stream of a backend: what was issued on it up to and with the operation `ticket`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Point {
    /// The stream.
    pub stream: NativeStream,
    /// The number of the operation on this stream, counted from 1.
    pub ticket: u64,
}

/// Who orders a stream behind a point.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ordered {
    /// The device: what is issued on the stream from now on runs after the point.
    ByDevice,
    /// The host: aether issues nothing on the stream until the point is done.
    ByHost,
}

/// How memory of one device gets to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Link {
    /// Not by one copy: it has to be staged through a third device.
    None,
    /// By one copy, but only by a blocking one (pageable host memory beside pinned memory).
    Blocking,
    /// By one copy, on a stream too, through whatever the driver stages it.
    Indirect,
    /// By one copy, on a stream too, straight from memory to memory.
    Direct,
}

/// One range that work touches, as [`Backend::observe`] is told of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Touch {
    /// The range.
    pub region: Region,
    /// Whether it is written, or only read.
    pub writes: bool,
}

/// How much memory a device has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryInfo {
    /// All of it, in bytes.
    pub total: u64,
    /// What is free, in bytes.
    pub free: u64,
}

/// A memory backend: allocation, copies and streams of the devices that it serves.
///
/// aether-core queues operations itself and hands each to the backend in the order of its stream,
/// when everything that it depends on has ended or has been ordered behind by [`Backend::wait`]. A
/// backend whose copies are done when they return (a file, a host kind) implements the required
/// methods only, and has streams, completions and ordering for nothing. A backend with streams of
/// its own implements [`Backend::open_stream`], [`Backend::mark`], [`Backend::is_done`] and
/// [`Backend::wait`] as well.
///
/// A backend of a new kind of memory takes a number from `1 << 16` up, and a name for it, with
/// [`DeviceKind::register`](crate::DeviceKind::register).
///
/// # Threads
/// Any thread calls any method, aether's workers included, and several at once. Only what is issued
/// on one stream comes one after the other: its queue never has two of `copy`, `copy_rows`, `fill`,
/// `mark` and `wait` for the same stream under way, but for the parts of one copy where the backend
/// [shares](Backend::shares_copies) them. [`Backend::free`] and [`Backend::close_stream`]
/// run on whichever thread looks when the work is over, so a library with a current device per
/// thread has to be told it at every call.
///
/// `is_done`, `wait`, `mark`, `acquired` and `observe` are called while aether holds locks or a place
/// in a queue: they neither block nor call back into aether (they allocate, copy, await and drop no
/// chunk).
///
/// # Panics
/// A method that panics is taken to have failed, with the panic's text in the error, where its work
/// is already queued; before that the panic is the caller's.
///
/// # Safety
/// aether frees memory, and lends it to safe code, because of what a backend says. So an
/// implementation promises that
/// - an allocation is as large and aligned as asked, belongs to nobody else until it is freed, and
///   is valid from any thread; on a host-addressable device it is ordinary memory; where zeros were
///   asked for, every byte reads as zero;
/// - `copy`, `copy_rows` and `fill` write what they are asked to, and no byte outside of their region
///   or rows;
/// - the streams that [`Backend::open_stream`] gives and that are open have different names, unless
///   all work is done when it returns, so that one name does for all;
/// - what it issues on one stream runs in the order in which it was issued;
/// - a `copy`, `copy_rows` or `fill` that fails leaves nothing behind that touches memory, but for
///   what the next [`Backend::mark`] of the stream covers: it is marked as one that went well;
/// - [`Backend::is_done`] answers true only when everything up to that point has ended and no longer
///   touches any memory;
/// - when `mark` or `is_done` fails, or panics, no work on that stream touches memory any more that
///   the backend did not allocate: a blocking call returns then, and its caller's memory with it;
/// - [`Backend::wait`] answers [`Ordered::ByDevice`] only when later work on the stream really runs
///   after the point;
/// - [`Backend::host_addressable`], [`Backend::adopts`], [`Backend::link`],
///   [`Backend::is_asynchronous`] and [`Backend::shares_copies`] tell the truth, and the same at every
///   call.
pub unsafe trait Backend: Send + Sync + 'static {
    /// The backend's name in messages and listings.
    fn name(&self) -> &str;

    /// Allocates `layout.size()` bytes, never zero, and fills them with zeros if asked.
    ///
    /// # Errors
    /// `OutOfMemory` if there is not as much. It may be `UnknownDevice` if the backend doesn't serve
    /// the device. Both name the device ([`Error::on`](crate::Error::on)) and the size
    /// ([`Error::of_bytes`](crate::Error::of_bytes)), because nobody adds them later.
    fn allocate(&self, device: DeviceId, layout: Layout, zeroed: bool) -> Result<Address>;

    /// Frees what [`Backend::allocate`] gave.
    ///
    /// # Safety
    /// The address came from `allocate` of this backend with the same device and layout, was not
    /// freed yet, and no work touches it any more.
    unsafe fn free(&self, device: DeviceId, address: Address, layout: Layout);

    /// Copies `src` to `dst` on the stream; both have the same size. It may return before the copy
    /// has ended, but then only with [`Backend::is_done`] telling the end.
    ///
    /// Sizes are never zero. Not every region comes from [`Backend::allocate`]: one may be memory of
    /// the host that was borrowed for a blocking call, an owner's ([`Backend::adopts`]), a part of an
    /// allocation, or memory of another backend that [`Backend::link`] allows.
    ///
    /// # Errors
    /// Whatever the device says. Some of the copy may run nevertheless; whatever does is covered by the
    /// mark that follows, and nothing else of it touches memory. What `dst` holds is then unknown.
    ///
    /// # Safety
    /// Both regions are valid until the copy has ended, nobody writes `src` and nobody touches `dst`
    /// until then, they don't overlap, and [`Backend::link`] allows the pair.
    unsafe fn copy(&self, stream: NativeStream, dst: Region, src: Region) -> Result<()>;

    /// Fills the region with copies of a pattern of 1, 2, 4 or 8 bytes that divides its size,
    /// which is never zero. The region may come from elsewhere, as for [`Backend::copy`].
    ///
    /// # Errors
    /// As for [`Backend::copy`].
    ///
    /// # Safety
    /// As for the destination of [`Backend::copy`].
    unsafe fn fill(&self, stream: NativeStream, dst: Region, pattern: &[u8]) -> Result<()>;

    /// Whether the host may read and write the device's memory by address.
    fn host_addressable(&self, device: DeviceId) -> bool;

    /// Whether memory that the backend did not allocate may count as the device's: a vector or an
    /// owner becomes a chunk without a copy. Asked of host-addressable devices only. False where the
    /// device's memory is of one make: pinned, or in a segment that others map.
    fn adopts(&self, device: DeviceId) -> bool {
        let _ = device;
        false
    }

    /// How memory gets between `device`, which this backend serves, and `other`. It is the same in both
    /// directions.
    ///
    /// Where only one side is host-addressable, the answer of the other side's backend counts; where
    /// both are, the weaker of both answers; where neither is, the stronger, because the one backend
    /// that knows the way makes the copy.
    fn link(&self, device: DeviceId, other: &Device) -> Link;

    /// The host-addressable device through which copies to and from `device` are staged.
    fn staging(&self, device: DeviceId) -> Option<Device> {
        let _ = device;
        None
    }

    /// Copies rows of bytes. Provided as one copy a row. There is never no row, nor an empty one.
    ///
    /// # Errors
    /// As for [`Backend::copy`]: some rows may be on their way, and the mark that follows covers them.
    ///
    /// # Safety
    /// As for [`Backend::copy`], for every row; the regions span all rows.
    unsafe fn copy_rows(
        &self,
        stream: NativeStream,
        dst: Region,
        src: Region,
        rows: Rows,
    ) -> Result<()> {
        for row in 0..rows.count {
            let at = |region: Region, pitch: usize| Region {
                address: region.address.add(row * pitch),
                bytes: rows.bytes,
                ..region
            };
            // SAFETY: the caller promises for every row what `copy` asks.
            unsafe { self.copy(stream, at(dst, rows.dst_pitch), at(src, rows.src_pitch)) }?;
        }
        Ok(())
    }

    /// Whether copies and fills return before they have ended. Those of other backends are left to
    /// whoever waits, or to a worker, so that enqueueing stays quick. Asked once for each stream.
    fn is_asynchronous(&self) -> bool {
        false
    }

    /// Whether several threads may copy at a time on one stream, each another part: a large copy then
    /// comes in slices, as a `copy` or `copy_rows` each, from whoever waits and from the workers. Asked
    /// of backends only whose copies are done when they return.
    fn shares_copies(&self) -> bool {
        false
    }

    /// Opens a stream on the device. Provided for backends whose work is done when it returns.
    ///
    /// # Errors
    /// Whatever keeps the device from having one more.
    fn open_stream(&self, device: DeviceId) -> Result<NativeStream> {
        let _ = device;
        Ok(NativeStream(0))
    }

    /// Closes a stream on which nothing is pending.
    fn close_stream(&self, stream: NativeStream) {
        let _ = stream;
    }

    /// Remembers what was issued on the stream so far as the point `ticket`. Every operation is marked
    /// once, failed ones too, and tickets of a stream only grow. Provided as nothing, for backends
    /// whose work is done when it returns.
    ///
    /// # Errors
    /// Whatever the device says. The operation is then taken to have failed, and since nothing tells
    /// its end any more, the memory that it touches is never freed. A borrowed one goes back to its
    /// owner nevertheless, so the backend first makes sure that the device has let go of it.
    fn mark(&self, at: Point) -> Result<()> {
        let _ = at;
        Ok(())
    }

    /// Whether everything up to the point has ended. It never blocks. A ticket whose mark failed has
    /// ended when everything marked before it has.
    ///
    /// # Errors
    /// The device can't tell any more. The operation is then taken to have failed, the memory that it
    /// touches is never freed, and whatever conflicts with it gets the error. Of borrowed memory: as
    /// for [`Backend::mark`].
    fn is_done(&self, at: Point) -> Result<bool> {
        let _ = at;
        Ok(true)
    }

    /// Orders what is issued on the stream from now on behind a point of another stream of the same
    /// backend, which was marked. Provided as [`Ordered::ByHost`].
    ///
    /// # Errors
    /// Whatever the device says; what was to be issued then fails. It isn't asked again.
    fn wait(&self, stream: NativeStream, on: Point) -> Result<Ordered> {
        let _ = (stream, on);
        Ok(Ordered::ByHost)
    }

    /// Tells that the host goes on because it saw that the point is done: a wait of the user, a host
    /// access, or a dependency that is left out for this reason. Only detectors care.
    fn acquired(&self, at: Point) {
        let _ = at;
    }

    /// Tells what work on the stream touches that doesn't come through `copy` and `fill`: what a
    /// collective reads and writes. Without a stream it is the host itself that touches memory of
    /// this backend. Only detectors care.
    fn observe(&self, stream: Option<NativeStream>, touches: &[Touch]) {
        let _ = (stream, touches);
    }

    /// The handle by which the device's own library knows the stream, such as a `CUstream`. Zero
    /// where there is none.
    fn raw_stream(&self, stream: NativeStream) -> u64 {
        let _ = stream;
        0
    }

    /// How much memory the device has, where that can be told.
    fn memory_info(&self, device: DeviceId) -> Option<MemoryInfo> {
        let _ = device;
        None
    }

    /// A line for people about the device: its product name, its capability.
    fn description(&self, device: DeviceId) -> String {
        let _ = device;
        self.name().to_owned()
    }
}

//! One allocation, shared by its chunk, its views and its exports, and freed after its work.

use std::alloc::Layout;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::backend::{Address, Region, Touch};
use crate::extent::Extent;
use crate::hazard::Hazards;
use crate::stream::Completion;
use crate::sync::lock;
use crate::unwind::{contain, log, shield};
use crate::{Device, Error, ErrorKind, Result, progress};

/// One allocation.
pub(crate) struct Memory {
    device: Device,
    address: Address,
    bytes: usize,
    writable: bool,
    /// How many exported tensors read the memory.
    exports: AtomicUsize,
    hazards: Mutex<Hazards>,
    /// Nothing is on record. Whoever conflicts with what is being recorded has been given the memory
    /// after that, so that the flag needs no order of its own.
    quiet: AtomicBool,
    /// Taken when the memory is retired.
    origin: Mutex<Option<Origin>>,
}

/// Where memory came from, and so how it goes.
pub(crate) enum Origin {
    /// The device's backend allocated it.
    Backend(Layout),
    /// It belongs to this owner, which frees it when it is dropped.
    Owner(Box<dyn Send>),
    /// It belongs to somebody who promised to keep it.
    Borrowed,
    /// There is none: zero bytes allocate nothing.
    Nothing,
}

/// Memory that nobody can reach any more and that goes when its work has ended.
pub(crate) struct Retired {
    device: Device,
    address: Address,
    origin: Option<Origin>,
    work: Vec<Completion>,
}

impl Memory {
    pub(crate) fn new(
        device: Device,
        address: Address,
        bytes: usize,
        writable: bool,
        origin: Origin,
    ) -> Self {
        Self {
            device,
            address,
            bytes,
            writable,
            exports: AtomicUsize::new(0),
            hazards: Mutex::default(),
            quiet: AtomicBool::new(true),
            origin: Mutex::new(Some(origin)),
        }
    }

    #[inline]
    pub(crate) fn device(&self) -> &Device {
        &self.device
    }

    #[inline]
    pub(crate) fn address(&self) -> Address {
        self.address
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(crate) fn is_writable(&self) -> bool {
        self.writable
    }

    /// Whether the memory goes with its chunk, rather than with somebody who lent it.
    pub(crate) fn is_owned(&self) -> bool {
        !matches!(*lock(&self.origin), Some(Origin::Borrowed))
    }

    /// The record, to add to it.
    pub(crate) fn hazards(&self) -> MutexGuard<'_, Hazards> {
        let hazards = lock(&self.hazards);
        self.quiet.store(false, Ordering::Relaxed);
        hazards
    }

    /// Whether nothing at all is on record, as far as a look without a lock can tell: what the caller
    /// has a right to know of, it knows.
    #[inline]
    pub(crate) fn is_quiet(&self) -> bool {
        self.quiet.load(Ordering::Relaxed)
    }

    /// Drops records that tell nothing any more, and says whether none is left that an access conflicts
    /// with.
    pub(crate) fn settle(&self, extent: &Extent, writes: bool) -> bool {
        let mut hazards = lock(&self.hazards);
        let free = hazards.settle(extent, writes);
        self.quiet.store(hazards.is_empty(), Ordering::Relaxed);
        free
    }

    /// Whether the last write of some byte is known to have failed.
    ///
    /// # Errors
    /// That failure.
    pub(crate) fn failure(&self, extent: &Extent) -> Result<()> {
        if self.is_quiet() { Ok(()) } else { lock(&self.hazards).failure(extent) }
    }

    /// One more exported tensor reads the memory.
    pub(crate) fn begin_export(&self) {
        self.exports.fetch_add(1, Ordering::AcqRel);
    }

    /// The exported tensor is gone.
    pub(crate) fn end_export(&self) {
        self.exports.fetch_sub(1, Ordering::AcqRel);
    }

    /// Refuses what would write read-only memory or memory that an exported tensor reads.
    #[inline]
    pub(crate) fn check_writable(&self, attempted: &'static str) -> Result<()> {
        let refuse = |kind, reason: &str| {
            Err(Error::new(kind, attempted, reason).on(&self.device).of_bytes(self.bytes as u64))
        };
        if !self.writable {
            return refuse(ErrorKind::ReadOnly, "the memory may only be read");
        }
        if self.exports.load(Ordering::Acquire) > 0 {
            return refuse(ErrorKind::Exported, "an exported tensor still reads the memory");
        }
        Ok(())
    }

    /// Waits for the work that a host access of the range conflicts with.
    ///
    /// # Errors
    /// The failure of the last write of some byte of the range, or of conflicting work that may never
    /// let go of it.
    pub(crate) fn wait_for_host(&self, range: Range<usize>, writes: bool) -> Result<()> {
        if range.is_empty() {
            return Ok(());
        }
        let extent = Extent::from(range.clone());
        while !self.is_quiet() && !self.settle(&extent, writes) {
            let pending = lock(&self.hazards).pending(&extent, writes)?;
            let Some(work) = pending else { break };
            // How it ended is told by the record, byte by byte.
            drop(work.wait());
        }
        let region = Region {
            device: self.device.id(),
            address: self.address.add(range.start),
            bytes: range.len(),
        };
        let told = contain(|| self.device.backend().observe(None, &[Touch { region, writes }]));
        told.map_err(|panic| {
            Error::new(ErrorKind::Panicked, "tell of a host access", format!("the backend {panic}"))
                .on(&self.device)
                .of_bytes(region.bytes as u64)
        })
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        let origin = self.origin.get_mut().unwrap_or_else(PoisonError::into_inner).take();
        let hazards =
            std::mem::take(self.hazards.get_mut().unwrap_or_else(PoisonError::into_inner));
        let retired = Retired {
            device: self.device.clone(),
            address: self.address,
            origin,
            work: hazards.into_work(),
        };
        if !retired.is_over() {
            progress::retire(retired);
        }
    }
}

impl Retired {
    /// Whether nothing touches the memory any more, or nobody will ever be able to tell.
    pub(crate) fn is_over(&self) -> bool {
        self.work.iter().all(|it| it.queue.is_done(it.ticket))
    }
}

impl Drop for Retired {
    fn drop(&mut self) {
        let Some(origin) = self.origin.take() else { return };
        let proved =
            |it: &Completion| it.queue.is_done(it.ticket) && !it.queue.is_unproved(it.ticket);
        if !self.work.iter().all(proved) {
            // Work that can't be proved finished may still touch it: leaked, never freed.
            let why = "memory is leaked: its work can't be proved ended";
            log(|| tracing::warn!(device = %self.device, "{why}"));
            std::mem::forget(origin);
            return;
        }
        self.work.iter().for_each(Completion::acquire);
        // A destructor of somebody else must not take the thread with it that happens to run it.
        shield(&self.device, "the owner of memory", || match origin {
            Origin::Backend(layout) => {
                // SAFETY: `origin` says that the backend allocated the address with this layout; it
                // is taken once, so it is freed once; no chunk, view or export is left, because they
                // hold the `Memory`; and all recorded work has ended.
                unsafe { self.device.backend().free(self.device.id(), self.address, layout) }
            }
            Origin::Owner(owner) => drop(owner),
            Origin::Borrowed | Origin::Nothing => {}
        });
    }
}

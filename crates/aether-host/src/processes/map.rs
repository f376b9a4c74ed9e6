//! Memory that several processes map: one writes it, the others read it.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;

use aether_core::{Error, ErrorKind, Result};
use rustix::fs::{FallocateFlags, MemfdFlags, SealFlags};
use rustix::mm::{MapFlags, ProtFlags};
use rustix::process::{Resource, getrlimit};

/// A mapping of a whole file, undone when it is dropped.
pub(crate) struct Map {
    base: NonNull<u8>,
    bytes: usize,
}

// SAFETY: a mapping belongs to the process, not to a thread; who touches what is said by those who make
// pointers into it.
unsafe impl Send for Map {}
// SAFETY: as for `Send`.
unsafe impl Sync for Map {}

/// What a mapping may be used for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Access {
    /// Read and write: its owner's.
    Own,
    /// Read: that of everybody else.
    Shown,
}

impl Map {
    /// Maps the first `bytes` bytes of the file, which are never fewer.
    ///
    /// # Errors
    /// `OutOfMemory` if the address space has no room (RLIMIT_AS, overcommit).
    pub(crate) fn new(file: BorrowedFd<'_>, bytes: usize, access: Access) -> Result<Self> {
        let allowed = match access {
            Access::Own => ProtFlags::READ | ProtFlags::WRITE,
            Access::Shown => ProtFlags::READ,
        };
        let flags = MapFlags::SHARED | MapFlags::NORESERVE;
        // SAFETY: the system chooses a free place, so nothing that is mapped changes.
        let base =
            unsafe { rustix::mm::mmap(std::ptr::null_mut(), bytes, allowed, flags, file, 0) };
        let refused = |why: String| {
            Error::new(ErrorKind::OutOfMemory, "map shared memory", why).of_bytes(bytes as u64)
        };
        let base = base.map_err(|error| {
            refused(format!("{error}: the address space of the process has no room for it"))
        })?;
        let base = NonNull::new(base.cast()).ok_or_else(|| refused("no address".to_owned()))?;
        Ok(Self { base, bytes })
    }

    /// Where it begins.
    pub(crate) fn base(&self) -> *mut u8 {
        self.base.as_ptr()
    }

    /// How long it is.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }
}

impl Drop for Map {
    fn drop(&mut self) {
        // SAFETY: this mapping was made by `new`, and whoever has pointers into it keeps it alive.
        // It can't fail for a range that is mapped.
        let _ = unsafe { rustix::mm::munmap(self.base.as_ptr().cast(), self.bytes) };
    }
}

/// A file in memory of this size, without a name, that can neither grow nor shrink. Nothing of it is
/// left when the last process that has it ends.
///
/// # Errors
/// `OutOfMemory` if the limit of the size of files is lower; `Io`.
pub(crate) fn anonymous(name: &str, bytes: usize) -> Result<OwnedFd> {
    let failed = |what: &str, error: rustix::io::Errno| {
        Error::new(ErrorKind::Io, "make shared memory", format!("{what}: {error}"))
            .of_bytes(bytes as u64)
            .caused_by(std::io::Error::from(error))
    };
    // Beyond the limit the system would end the process by a signal (SIGXFSZ).
    if let Some(limit) = getrlimit(Resource::Fsize).current.filter(|it| *it < bytes as u64) {
        let reason = format!("the limit of the size of files (RLIMIT_FSIZE) is {limit} bytes");
        return Err(
            Error::new(ErrorKind::OutOfMemory, "make shared memory", reason).of_bytes(bytes as u64)
        );
    }
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let file =
        rustix::fs::memfd_create(name, flags).map_err(|error| failed("memfd_create", error))?;
    rustix::fs::ftruncate(&file, bytes as u64).map_err(|error| failed("ftruncate", error))?;
    rustix::fs::fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW)
        .map_err(|error| failed("seal", error))?;
    Ok(file)
}

/// Makes the range of the file be there, so that a lack of memory is an error now, and no signal when
/// the range is written.
///
/// # Errors
/// `OutOfMemory`.
pub(crate) fn commit(file: BorrowedFd<'_>, offset: u64, bytes: usize) -> Result<()> {
    loop {
        match rustix::fs::fallocate(file, FallocateFlags::empty(), offset, bytes as u64) {
            Ok(()) => return Ok(()),
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => {
                let reason = format!("the machine has not as much shared memory ({error})");
                return Err(Error::new(ErrorKind::OutOfMemory, "get shared memory", reason)
                    .of_bytes(bytes as u64)
                    .caused_by(std::io::Error::from(error)));
            }
        }
    }
}

/// Has nobody map the file to write any more, nor write it; who has mapped it to write still can.
///
/// # Errors
/// `Unsupported` before Linux 5.1.
pub(crate) fn forbid_writers(file: BorrowedFd<'_>) -> Result<()> {
    rustix::fs::fcntl_add_seals(file, SealFlags::FUTURE_WRITE | SealFlags::SEAL).map_err(|error| {
        let reason = format!("the system can't keep others from writing shared memory: {error}");
        Error::new(ErrorKind::Unsupported, "seal shared memory", reason)
            .caused_by(std::io::Error::from(error))
    })
}

/// The file, open for nothing but reading.
///
/// # Errors
/// `Io` if /proc is not there.
pub(crate) fn reopened(file: &OwnedFd) -> Result<OwnedFd> {
    let path = format!("/proc/self/fd/{}", file.as_fd().as_raw_fd());
    let opened = std::fs::File::open(&path).map_err(|error| {
        Error::new(ErrorKind::Io, "open shared memory to read", error.to_string())
            .on(&path)
            .caused_by(error)
    })?;
    Ok(opened.into())
}

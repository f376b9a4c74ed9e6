//! The shared heap of the process: memory that the other processes of a group reach directly.

use std::os::fd::OwnedFd;

use aether_core::Result;

/// The heap.
pub(crate) struct Heap;

/// The heap of this process, if it has one.
pub(crate) fn existing() -> Option<&'static Heap> {
    None
}

impl Heap {
    pub(crate) fn shown(&self) -> Result<(OwnedFd, u64)> {
        Err(aether_core::Error::new(aether_core::ErrorKind::Unsupported, "a", "b"))
    }
    pub(crate) fn offset_of(&self, _address: usize, _bytes: usize) -> Option<u64> {
        None
    }
}

//! A range of host memory, as the driver addresses it.

use aether_core::Address;

/// A range of host memory, as the driver addresses it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HostRange {
    /// Where it begins.
    pub address: Address,
    /// How long it is, in bytes.
    pub bytes: usize,
}

impl HostRange {
    /// Whether both have a byte in common.
    pub(crate) fn overlaps(&self, other: &Self) -> bool {
        let (one, two) = (self.address.addr(), other.address.addr());
        one < two.saturating_add(other.bytes) && two < one.saturating_add(self.bytes)
    }
}

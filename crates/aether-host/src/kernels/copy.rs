//! The reduction of one rank: its bits, unchanged.

/// Copies `bytes` bytes of the source to every destination that is not the source itself.
///
/// # Safety
/// The source is valid for reads of `bytes` bytes, every destination for writes; a destination is
/// the source exactly or does not overlap it; meanwhile no one else writes the source or touches
/// the destinations.
pub(super) unsafe fn copy(source: *const u8, destinations: &[*mut u8], bytes: usize) {
    for &destination in destinations {
        if !std::ptr::eq(destination, source) {
            // SAFETY: the caller vouches for both ranges, and that a destination other than the
            // source does not overlap it; bytes have no alignment.
            unsafe { destination.copy_from_nonoverlapping(source, bytes) };
        }
    }
}

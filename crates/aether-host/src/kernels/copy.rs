//! Copies from one source to any number of destinations: all bits, unchanged.

use aether_core::Stores;

/// How much of the source is copied to all destinations before the next, so that it is read once.
const BLOCK: usize = 8 << 10;

/// Copies `bytes` bytes of the source to every destination that is not the source itself. The stores have
/// to be settled before anybody else is told.
///
/// # Safety
/// The source is valid for reads of `bytes` bytes, every destination for writes; a destination is
/// the source exactly or does not overlap it; destinations don't overlap each other; meanwhile no one
/// else writes the source or touches the destinations.
pub(crate) unsafe fn copy(
    source: *const u8,
    destinations: &[*mut u8],
    bytes: usize,
    stores: Stores,
) {
    let block = if destinations.len() > 1 { BLOCK } else { bytes.max(1) };
    for at in (0..bytes).step_by(block) {
        let length = block.min(bytes - at);
        for &destination in destinations {
            if !std::ptr::eq(destination, source) {
                let (from, to) = (source.wrapping_add(at), destination.wrapping_add(at));
                // SAFETY: `at + length` is at most `bytes`, for which the caller vouches at both; a
                // destination other than the source does not overlap it.
                unsafe { stores.copy(from, to, length) };
            }
        }
    }
}

//! Which process this is.

use std::hash::{BuildHasher, RandomState};
use std::sync::OnceLock;

/// A number that tells this process from others that run at the time, on this machine or another, or
/// ran before.
pub(crate) fn this_process() -> u64 {
    static SEED: OnceLock<RandomState> = OnceLock::new();
    // The seed is the operating system's random bytes. A fork has its parent's seed, and a number of
    // its own.
    SEED.get_or_init(RandomState::new).hash_one(std::process::id())
}

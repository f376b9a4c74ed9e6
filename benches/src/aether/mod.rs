//! Aether as a contender, through its public interface: typed blocking calls on chunks, with hazards,
//! checks and deadlines as they are by default.

mod set;
mod threads;

use std::sync::atomic::{AtomicU64, Ordering};

use aether::GroupConfig;

pub use set::Set;
pub use threads::{Threads, Work};

/// The configuration of a group that nobody else in this process has, even over the same devices.
fn own_group() -> GroupConfig {
    static LAST: AtomicU64 = AtomicU64::new(0);
    let number = LAST.fetch_add(1, Ordering::Relaxed) + 1;
    GroupConfig::default().named(format!("bench {number}"))
}

#[cfg(test)]
mod tests;

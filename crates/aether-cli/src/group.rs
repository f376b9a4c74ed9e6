//! The groups of this program.

use std::sync::atomic::{AtomicU64, Ordering};

use aether::GroupConfig;

/// The configuration of a group that nobody else in this process has, even over the same devices.
pub(crate) fn own_group(purpose: &str) -> GroupConfig {
    static LAST: AtomicU64 = AtomicU64::new(0);
    let number = LAST.fetch_add(1, Ordering::Relaxed) + 1;
    GroupConfig::default().named(format!("{purpose} {number}"))
}

//! Panics of other people's code stop here.

use std::panic::{AssertUnwindSafe, catch_unwind};

/// Runs code of a backend, a driver or an owner, and gives nothing if it panicked: the thread that
/// runs it is mostly not the one whom it concerns, and a lock or a worker must not go with it.
pub(crate) fn contain<T>(run: impl FnOnce() -> T) -> Option<T> {
    let payload = match catch_unwind(AssertUnwindSafe(run)) {
        Ok(value) => return Some(value),
        Err(payload) => payload,
    };
    // The payload is other people's code as well. One that panics when it is dropped is leaked.
    if let Err(second) = catch_unwind(AssertUnwindSafe(|| drop(payload))) {
        std::mem::forget(second);
    }
    None
}

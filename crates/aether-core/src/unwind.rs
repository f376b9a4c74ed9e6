//! Panics of other people's code stop here.

use std::any::Any;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::Device;

/// Runs code of a backend, a driver or an owner, and gives what it said if it panicked: the thread
/// that runs it is mostly not the one whom it concerns, and a lock or a worker must not go with it.
pub(crate) fn contain<T>(run: impl FnOnce() -> T) -> Result<T, Panic> {
    let payload = match catch_unwind(AssertUnwindSafe(run)) {
        Ok(value) => return Ok(value),
        Err(payload) => payload,
    };
    let panic = Panic::of(&*payload);
    // The payload is other people's code as well. One that panics when it is dropped is leaked.
    if let Err(second) = catch_unwind(AssertUnwindSafe(|| drop(payload))) {
        std::mem::forget(second);
    }
    Err(panic)
}

/// Runs code whose failure is nobody's: a panic goes to the log, and no further.
pub(crate) fn shield(device: &Device, who: &str, run: impl FnOnce()) {
    if let Err(panic) = contain(run) {
        log(|| tracing::error!(%device, "{who} {panic}"));
    }
}

/// Writes to the log where nothing may unwind: its subscribers are other people's code as well.
pub(crate) fn log(write: impl FnOnce()) {
    // Where could the panic be told?
    drop(contain(write));
}

/// A panic that was contained: prints as what becomes of "the backend ...".
#[derive(Debug)]
pub(crate) struct Panic(Option<String>);

impl Panic {
    fn of(payload: &(dyn Any + Send)) -> Self {
        let text = payload.downcast_ref::<&str>().map(|it| (*it).to_owned());
        Self(text.or_else(|| payload.downcast_ref::<String>().cloned()))
    }
}

impl fmt::Display for Panic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Some(text) => write!(f, "panicked: {text}"),
            None => f.write_str("panicked"),
        }
    }
}

//! The synchronisation primitives, so that a model checker can stand in for the real ones:
//! `tests/loom.rs` takes in the sources that use them, with a module of its own in this place.

pub(crate) use std::sync::atomic::{AtomicU64, Ordering};

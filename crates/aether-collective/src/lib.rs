//! The CollectiveDriver trait, and the safe groups over it.

mod reduce;

pub use reduce::ReduceOp;

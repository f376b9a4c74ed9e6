//! aether

pub use aether_collective::ReduceOp;
pub use aether_core::{DType, Error, ErrorKind};

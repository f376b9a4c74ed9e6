//! Devices, chunks of their memory, views, streams, completions and copies.

mod dtype;
mod error;

pub use dtype::{DType, Element};
pub use error::{Error, ErrorKind, Result};

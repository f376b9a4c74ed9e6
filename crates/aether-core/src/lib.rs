#![doc = include_str!("../README.md")]

mod backend;
mod chunk;
mod copy;
mod device;
pub mod dlpack;
mod dtype;
mod error;
mod extent;
mod failures;
mod gate;
mod hand;
mod hazard;
mod host;
mod listed;
mod memory;
mod operation;
mod order;
mod owner;
pub mod progress;
mod queue;
mod span;
mod spread;
mod stores;
mod stream;
mod sweep;
mod sync;
mod task;
mod unwind;
mod view;

pub use backend::{
    Address, Backend, Link, MemoryInfo, NativeStream, Ordered, Point, Region, Rows, Touch,
};
pub use chunk::{ALIGNMENT, Chunk};
pub use copy::{copy, copy_async, copy_rows, copy_rows_async, fill, fill_async, link};
pub use device::{Device, DeviceId, DeviceKind};
pub use dtype::{DType, Element};
pub use error::{Error, ErrorKind, Result};
pub use hand::{InHand, Steps};
pub use host::HostBackend;
pub use operation::{Operation, Step};
pub use order::{check_tracked, enqueue};
pub use span::{AsSpan, AsSpanMut, Span, SpanMut};
pub use spread::{copy_each, copy_each_async};
pub use stores::Stores;
pub use stream::{Completion, Status, Stream};
pub use view::{DynView, View, ViewMut};

//! Tensors to and from other libraries, without a copy, by the DLPack protocol.
//!
//! | | by value | by shared reference |
//! | --- | --- | --- |
//! | function | [`export`], [`export_on`] | [`share`], [`share_on`] |
//! | the consumer may | read and write | read (the tensor is flagged read-only) |
//! | ABI | both | [`DLManagedTensorVersioned`]: the legacy struct has no flag, so it is refused |
//! | waits for | all work on the elements | what writes the elements |
//! | meanwhile | the chunk belongs to the tensor | writes to the chunk are refused (`Exported`) |
//!
//! The memory lives until the consumer calls the deleter, on any thread. Memory that may only be read
//! is exported read-only by value too. Memory that is only lent ([`Chunk::borrow`](crate::Chunk::borrow),
//! views of slices) is not exported at all: a tensor may outlive any borrow.
//!
//! [`import`] takes a tensor of another library, in either ABI. It refuses whatever is malformed, and
//! calls the deleter exactly once: when the [`Imported`] chunk and all work on it are gone, or when it
//! refuses.
//!
//! # Streams
//! The functions without a stream wait on the host, so the memory is ready for everybody. With a
//! [`Stream`](crate::Stream) of the device, nothing waits but the stream: what the consumer puts on it
//! afterwards, by [`Stream::raw`](crate::Stream::raw) say, runs behind the work that is pending on the
//! memory, and the memory is reused only behind what was on the stream when the deleter was called.
//! Python's `__dlpack__(stream=...)` has numbers of its own (-1: no ordering is asked for; 0, 1 and 2:
//! a backend's default streams; others: a raw handle). A binding translates them into a `Stream`, or
//! into none, before it comes here.
//!
//! # Decisions where the protocol leaves room
//! - A higher minor version is accepted, as the protocol asks, and everything in it that is not known
//!   is refused: type codes, device types and flag bits.
//! - The first element is at `data` and `byte_offset` is 0 in what is exported, because consumers are
//!   known to ignore the offset. Imports honour it.
//! - Host memory and pinned host memory are exported with index 0, as the protocol says. An imported
//!   tensor of index 0 in such memory fits every device of its kind; of other memory the index has to
//!   be the device's.
//! - Strides of 0, and others by which two indices name one element, are accepted only of tensors that
//!   are flagged read-only. Negative strides are refused.
//! - Strides of dimensions of one index mean nothing, and are replaced by dense ones.
//! - At most [`MAX_RANK`] dimensions.
//!
//! # Example
//! ```
//! use aether_core::dlpack::{self, DLManagedTensorVersioned, Layout};
//! use aether_core::{Chunk, DType, Device};
//!
//! # fn main() -> aether_core::Result<()> {
//! let device = Device::cpu(0);
//! let chunk = Chunk::from_vec(&device, vec![1.0f32, 2.0, 3.0, 4.0, 5.0, 6.0])?;
//! let tensor = dlpack::export::<DLManagedTensorVersioned>(chunk, &Layout::dense(DType::F32, &[2, 3]))?;
//! let raw = tensor.into_raw(); // for the other library
//!
//! // SAFETY: `raw` is a tensor that was just exported, and it is imported once.
//! let back = unsafe { dlpack::import(raw, &device) }?;
//! assert_eq!(back.view::<f32, 2>()?.at([1, 2])?, 6.0);
//! # Ok(())
//! # }
//! ```

mod abi;
mod codes;
mod export;
mod fault;
mod handover;
mod import;
mod layout;
mod validate;

pub use dlpark::ffi::{DLManagedTensor, DLManagedTensorVersioned};

pub use abi::{Abi, Tensor};
pub use export::{Refused, export, export_on, share, share_on};
pub use import::{Imported, import, import_on};
pub use layout::Layout;

/// How many dimensions a tensor may have. More are refused as nonsense, before that many extents are
/// read; it is what the array libraries allow at most.
pub const MAX_RANK: usize = 64;

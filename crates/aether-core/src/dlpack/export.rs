//! Chunks and views to tensors.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use dlpark::DlpackFlags;
use dlpark::allocation::dynamic::Initialized;
use dlpark::ffi::{DLDataType, DLDevice};
use dlpark::metadata::{Dynamic, PreparedDynamic};

use super::abi::{Abi, Tensor};
use super::fault::Fault;
use super::handover::Lease;
use super::layout::Layout;
use super::{MAX_RANK, codes};
use crate::backend::Address;
use crate::memory::Memory;
use crate::view::refuse_self_overlap;
use crate::{Chunk, DynView, Error, ErrorKind, Result, Stream};

const ATTEMPTED: &str = "export by DLPack";

/// Gives a chunk away as a tensor, once all work on the elements has ended. The consumer may write it.
///
/// Memory that may only be read is flagged so.
///
/// # Errors
/// With the chunk, which stays the caller's: those of [`DynView::new`] for the layout; `Overlap` if two
/// indices name one element; the failure of the last write of some element; `Exported` while a shared
/// tensor reads the memory; `BorrowedMemory` for memory that is only lent; `Unsupported` for read-only
/// memory by the legacy ABI; `Dlpack` for what DLPack can't express.
pub fn export<A: Abi>(chunk: Chunk, layout: &Layout) -> Result<Tensor<A>, Refused> {
    give(chunk, layout, None)
}

/// As [`export`], without waiting on the host: what is on the consumer's stream from now on runs
/// behind all work on the elements.
///
/// It waits only until that order is on the stream, which takes until the work has ended where the
/// device can't order streams itself. A failure of the work after that is not seen by the consumer.
///
/// # Errors
/// Those of [`export`]; `WrongDevice` if the stream is not one of the chunk's device.
pub fn export_on<A: Abi>(
    chunk: Chunk,
    layout: &Layout,
    stream: &Stream,
) -> Result<Tensor<A>, Refused> {
    give(chunk, layout, Some(stream))
}

/// Shares what a view shows as a read-only tensor, once what writes it has ended.
///
/// While the tensor lives, writes to the whole memory of the chunk are refused (`Exported`), and the
/// memory stays, even if the chunk is dropped.
///
/// # Errors
/// `Unsupported` for the legacy ABI, which can't say that the tensor is read-only; the failure of the
/// last write of some element; `BorrowedMemory` for memory that is only lent; `Dlpack` for what DLPack
/// can't express.
pub fn share<'a, A: Abi>(view: impl Into<DynView<'a>>) -> Result<Tensor<A>> {
    lend(&view.into(), None)
}

/// As [`share`], without waiting on the host: see [`export_on`].
///
/// # Errors
/// Those of [`share`]; `WrongDevice` if the stream is not one of the chunk's device.
pub fn share_on<'a, A: Abi>(view: impl Into<DynView<'a>>, stream: &Stream) -> Result<Tensor<A>> {
    lend(&view.into(), Some(stream))
}

/// A chunk that was not exported, and why. `?` keeps the reason and drops the chunk.
pub struct Refused {
    /// Why.
    pub error: Error,
    /// The chunk, as it was.
    pub chunk: Chunk,
}

impl fmt::Debug for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.error.fmt(f)
    }
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.error.fmt(f)
    }
}

impl std::error::Error for Refused {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.error.source()
    }
}

impl From<Refused> for Error {
    fn from(refused: Refused) -> Self {
        refused.error
    }
}

fn give<A: Abi>(
    chunk: Chunk,
    layout: &Layout,
    stream: Option<&Stream>,
) -> Result<Tensor<A>, Refused> {
    match layout.view(&chunk).and_then(|view| give_view(&view, stream)) {
        // The tensor holds the memory now.
        Ok(tensor) => Ok(tensor),
        Err(error) => Err(Refused { error, chunk }),
    }
}

fn give_view<A: Abi>(view: &DynView<'_>, stream: Option<&Stream>) -> Result<Tensor<A>> {
    let memory = exportable(view)?;
    if memory.is_writable() {
        memory.check_writable(ATTEMPTED)?;
        refuse_self_overlap(view.shape(), view.strides())?;
    }
    let outline = Outline::<A>::new(view, memory, !memory.is_writable())?;
    let mut lease = Lease::take(memory);
    lease.settle(outline.range.clone(), stream)?;
    outline.finish(lease)
}

fn lend<A: Abi>(view: &DynView<'_>, stream: Option<&Stream>) -> Result<Tensor<A>> {
    let memory = exportable(view)?;
    let outline = Outline::<A>::new(view, memory, true)?;
    let mut lease = Lease::share(memory);
    lease.settle(outline.range.clone(), stream)?;
    outline.finish(lease)
}

/// The memory of a view, if it stays as long as somebody holds it.
fn exportable<'a>(view: &DynView<'a>) -> Result<&'a Arc<Memory>> {
    view.memory().filter(|it| it.is_owned()).ok_or_else(|| {
        let reason = "the memory is only lent, and a tensor may outlive that: copy it to a chunk";
        Error::new(ErrorKind::BorrowedMemory, ATTEMPTED, reason)
    })
}

/// A tensor in all but its owner: everything that may be refused is behind it.
struct Outline<A: Abi> {
    prepared: PreparedDynamic<A>,
    data: Option<Address>,
    device: DLDevice,
    dtype: DLDataType,
    flags: DlpackFlags,
    /// The bytes of the memory that the tensor shows.
    range: Range<usize>,
}

impl<A: Abi> Outline<A> {
    fn new(view: &DynView<'_>, memory: &Memory, read_only: bool) -> Result<Self> {
        let device = memory.device();
        if read_only && !A::HAS_FLAGS {
            let reason = format!(
                "{} can't say that the memory may only be read: use DLManagedTensorVersioned",
                A::NAME
            );
            return Err(Error::new(ErrorKind::Unsupported, ATTEMPTED, reason).on(device));
        }
        let refuse = |fault: Fault| fault.into_error(ATTEMPTED, device);
        if view.shape().len() > MAX_RANK {
            return Err(refuse(Fault::Rank(view.shape().len() as i64)));
        }
        let range = view.offsets()?;
        let prepared = Dynamic::new(view.shape(), view.strides()).prepare_as::<A>();
        Ok(Self {
            prepared: prepared.map_err(|error| {
                Error::new(ErrorKind::Dlpack, ATTEMPTED, error.to_string())
                    .on(device)
                    .caused_by(error)
            })?,
            // dlpack.h: "if the tensor is of size zero, then the data pointer should be set to `NULL`."
            data: (!range.is_empty()).then(|| view.address()),
            device: codes::device(device.id()).map_err(refuse)?,
            dtype: codes::data_type(view.dtype()),
            flags: if read_only { DlpackFlags::READ_ONLY } else { DlpackFlags::empty() },
            range,
        })
    }

    fn finish(self, lease: Lease) -> Result<Tensor<A>> {
        let mut tensor: Initialized<A> = self.prepared.initialize(Box::new(lease));
        tensor
            .set_data(self.data.map_or(std::ptr::null_mut(), |it| it.as_ptr().cast()))
            .set_device(self.device)
            .set_dtype(self.dtype)
            .set_flags(self.flags)
            .map_err(|error| Error::new(ErrorKind::Dlpack, ATTEMPTED, error.to_string()))?;
        // SAFETY: the fields describe elements inside of the memory (`DynView`: "`OutOfBounds` if the
        // chunk is too short"), which the lease holds until the deleter drops it; the tensor is flagged
        // read-only unless the memory is writable and was given away with its chunk; and the strides
        // are explicit.
        Ok(Tensor(unsafe { tensor.finish() }))
    }
}

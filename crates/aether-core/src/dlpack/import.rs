//! Tensors to chunks.

use dlpark::ffi::{DLPACK_MAJOR_VERSION, DLPackVersion};
use dlpark::{DlpackFlags, Managed};

use super::abi::Abi;
use super::fault::Fault;
use super::handover::{check_stream, mark};
use super::validate::{Described, Rules, validate};
use crate::memory::Origin;
use crate::{
    Chunk, DType, Device, DynView, Element, Error, ErrorKind, Result, Stream, View, ViewMut,
};

const ATTEMPTED: &str = "import by DLPack";

/// The first version that forbids null strides.
const EXPLICIT_STRIDES: DLPackVersion = DLPackVersion { major: 1, minor: 2 };

/// Takes a tensor over as a chunk of `device`, without a copy.
///
/// The tensor is this call's from the beginning: the deleter is called once, when the chunk and all work
/// on it are gone, or before the call returns an error. A null deleter means that there is nothing to
/// call: the memory is then only lent, as by [`Chunk::borrow`]. A tensor that is flagged read-only
/// makes a chunk that may only be read.
///
/// # Errors
/// `Dlpack` for a malformed tensor, or one that aether can't express, with the name of the field;
/// `WrongDevice` if it is not memory of the device; `Overflow`, `Misaligned`; `Overlap` if two indices
/// name one element of a tensor that may be written.
///
/// # Safety
/// - `tensor` is null, or points to an initialised struct of this ABI which nobody else uses or deletes
///   any more, and which stays as it is until its deleter is called. Of another major version than 1,
///   this holds of the fields up to the deleter.
/// - Its deleter is null or may be called once, from any thread, and doesn't unwind.
/// - `shape` and `strides` are null or point to `ndim` numbers each, for as long as the struct lives.
/// - All bytes from the first element to the last, those between elements too, are memory of `device`,
///   initialised if the host may address it, and valid until the deleter is called (with a null
///   deleter: until the chunk is gone and all work on it has ended).
/// - Until then nobody else writes them, and unless the tensor is flagged read-only nobody else reads
///   them either. Work of others that is still under way on them is what [`import_on`] is for.
pub unsafe fn import<A: Abi>(tensor: *mut A, device: &Device) -> Result<Imported> {
    // SAFETY: the caller promises what `take` asks.
    unsafe { take(tensor, device) }
}

/// As [`import`], for a tensor whose producer ordered `stream` behind its pending work: everything that
/// aether does with the memory comes behind what is on the stream now.
///
/// # Errors
/// Those of [`import`]; `WrongDevice` if the stream is not one of the device.
///
/// # Safety
/// As for [`import`], but for work on the memory that the stream is ordered behind.
pub unsafe fn import_on<A: Abi>(
    tensor: *mut A,
    device: &Device,
    stream: &Stream,
) -> Result<Imported> {
    // SAFETY: the caller promises what `take` asks.
    let imported = unsafe { take(tensor, device) }?;
    let memory = imported.chunk.memory();
    check_stream(ATTEMPTED, memory, stream)?;
    mark(stream, memory, 0..memory.bytes(), true);
    Ok(imported)
}

/// A tensor that was taken over: its memory, and how its elements lie there.
///
/// The memory reaches from the first element to the last.
#[derive(Debug)]
pub struct Imported {
    chunk: Chunk,
    dtype: DType,
    shape: Vec<usize>,
    strides: Vec<usize>,
}

impl Imported {
    /// The memory.
    pub fn chunk(&self) -> &Chunk {
        &self.chunk
    }

    /// The memory, to change it.
    pub fn chunk_mut(&mut self) -> &mut Chunk {
        &mut self.chunk
    }

    /// The memory alone.
    pub fn into_chunk(self) -> Chunk {
        self.chunk
    }

    /// The element type.
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// The extent of each dimension.
    pub fn shape(&self) -> &[usize] {
        &self.shape
    }

    /// From one index to the next in each dimension, in elements.
    pub fn strides(&self) -> &[usize] {
        &self.strides
    }

    /// The elements.
    ///
    /// # Errors
    /// Those of [`DynView::new`].
    pub fn to_dyn(&self) -> Result<DynView<'_>> {
        DynView::new(&self.chunk, 0, self.dtype, &self.shape, &self.strides)
    }

    /// The elements, by their type and rank.
    ///
    /// # Errors
    /// `DTypeMismatch` for another type, which for `bool` is every one; `SizeMismatch` for another
    /// rank.
    pub fn view<T: Element, const R: usize>(&self) -> Result<View<'_, T, R>> {
        self.to_dyn()?.typed()
    }

    /// The elements, by their type and rank, to change them.
    ///
    /// # Errors
    /// Those of [`Imported::view`]; `ReadOnly`, `Exported`.
    pub fn view_mut<T: Element, const R: usize>(&mut self) -> Result<ViewMut<'_, T, R>> {
        let view = self.view::<T, R>()?;
        let (shape, strides) = (view.shape(), view.strides());
        self.chunk.view_strided_mut(shape, strides)
    }
}

/// # Safety
/// As for [`import`], bar the work that is under way.
unsafe fn take<A: Abi>(tensor: *mut A, device: &Device) -> Result<Imported> {
    let refuse = |fault: Fault| fault.into_error(ATTEMPTED, device);
    if tensor.is_null() {
        return Err(refuse(Fault::NullTensor));
    }
    // SAFETY: the caller promises a tensor of this ABI, of any version.
    let version = unsafe { A::read_version(tensor) };
    if let Some(other) = version.filter(|it| it.major != DLPACK_MAJOR_VERSION) {
        // SAFETY: as for the version.
        if let Some(deleter) = unsafe { A::read_deleter(tensor) } {
            // SAFETY: the caller promises that it may be called once, and the tensor is not used
            // after; dlpack.h, of another major version: "the consumer must call the deleter (and it
            // is safe to do so)".
            unsafe { deleter(tensor) };
        }
        return Err(refuse(Fault::Version(other)));
    }
    // From here on the deleter is called when `managed` goes, whatever happens.
    // SAFETY: the caller promises an initialised tensor of the version that we know, its arrays to
    // stay as they are, and a deleter that may be called once.
    let managed = unsafe { Managed::from_raw(tensor) }.map_err(|error| malformed(error, device))?;
    // SAFETY: the tensor is of the version that we know.
    let flags = unsafe { A::read_flags(tensor) };
    let unknown = flags & !DlpackFlags::all().bits();
    if unknown != 0 {
        return Err(refuse(Fault::Flags(unknown)));
    }
    let rules = Rules {
        read_only: flags & DlpackFlags::READ_ONLY.bits() != 0,
        strides_may_be_null: version.is_none_or(|it| !it.supports(EXPLICIT_STRIDES)),
    };
    // SAFETY: as for the flags.
    let inner = unsafe { A::read_tensor(tensor) };
    // SAFETY: the caller promises of `shape` and `strides` what `validate` asks.
    let described = unsafe { validate(&inner, rules, device) }.map_err(refuse)?;
    // What dlpark knows to refuse is refused as well; but for nothing at all, whose other extents it
    // multiplies before it finds the zero.
    if described.bytes > 0 {
        managed.validate().map_err(|error| malformed(error, device))?;
    }
    let Described { address, bytes, dtype, shape, strides } = described;
    // SAFETY: as for the flags.
    let origin = match unsafe { A::read_deleter(tensor) } {
        Some(_) => Origin::Owner(Box::new(managed)),
        // Nobody can be told when the memory is not used any more.
        None => Origin::Borrowed,
    };
    let chunk = Chunk::of(device, address, bytes, !rules.read_only, origin);
    Ok(Imported { chunk, dtype, shape, strides })
}

fn malformed(error: impl std::error::Error + Send + Sync + 'static, device: &Device) -> Error {
    Error::new(ErrorKind::Dlpack, ATTEMPTED, error.to_string()).on(device).caused_by(error)
}

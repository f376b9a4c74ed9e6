//! Another library: it makes tensors of both ABIs, malformed ones too, and counts their deletions.

use std::ffi::c_void;
use std::ptr::null_mut;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use aether_core::dlpack::{DLManagedTensor, DLManagedTensorVersioned};
use dlpark::DlpackFlags;
use dlpark::ffi::{DLDataType, DLDevice, DLPackVersion, DLTensor};

/// What a tensor says, each part for the tests to spoil.
pub(crate) struct Foreign {
    /// The memory: 32-bit numbers, aligned for 64 bits.
    pub(crate) memory: Vec<u64>,
    pub(crate) data: Data,
    pub(crate) byte_offset: u64,
    pub(crate) dtype: DLDataType,
    pub(crate) device: DLDevice,
    /// The length of the shape, unless it is lied about.
    pub(crate) ndim: Option<i32>,
    pub(crate) shape: Option<Vec<i64>>,
    pub(crate) strides: Option<Vec<i64>>,
    pub(crate) version: (u32, u32),
    pub(crate) flags: u64,
    pub(crate) has_deleter: bool,
}

/// What `data` says.
pub(crate) enum Data {
    Null,
    /// So many bytes into the memory.
    At(usize),
    /// This number.
    Number(usize),
}

/// How often a tensor was deleted.
#[derive(Clone, Default)]
pub(crate) struct Deleted(Arc<AtomicUsize>);

impl Deleted {
    pub(crate) fn times(&self) -> usize {
        self.0.load(Ordering::SeqCst)
    }
}

/// What belongs to a tensor, and goes with it.
pub(crate) struct Owned {
    memory: Vec<u64>,
    shape: Option<Vec<i64>>,
    strides: Option<Vec<i64>>,
    deleted: Deleted,
}

impl Foreign {
    /// Dense `u32` of this shape, with the numbers of [`crate::numbers`] in a memory of 64 of them.
    pub(crate) fn new(shape: &[i64]) -> Self {
        let pair = |it: &[u32]| u64::from(it[0]) | u64::from(it[1]) << 32;
        let memory = crate::numbers(64).chunks(2).map(pair).collect();
        let mut strides = vec![1; shape.len()];
        for at in (1..shape.len()).rev() {
            strides[at - 1] = i64::saturating_mul(strides[at], shape[at]);
        }
        Self {
            memory,
            data: Data::At(0),
            byte_offset: 0,
            dtype: DLDataType::U32,
            device: DLDevice::CPU,
            ndim: None,
            shape: Some(shape.to_vec()),
            strides: Some(strides),
            version: (1, 3),
            flags: 0,
            has_deleter: true,
        }
    }

    pub(crate) fn strides(self, strides: &[i64]) -> Self {
        Self { strides: Some(strides.to_vec()), ..self }
    }

    pub(crate) fn read_only(self) -> Self {
        Self { flags: self.flags | DlpackFlags::READ_ONLY.bits(), ..self }
    }

    pub(crate) fn versioned(self) -> (*mut DLManagedTensorVersioned, Deleted) {
        let (major, minor) = self.version;
        let flags = DlpackFlags::from_bits_retain(self.flags);
        let deleter = self.has_deleter.then_some(delete_versioned as _);
        let (dl_tensor, manager_ctx, deleted) = self.parts();
        let version = DLPackVersion { major, minor };
        let tensor = DLManagedTensorVersioned { version, manager_ctx, deleter, flags, dl_tensor };
        (Box::into_raw(Box::new(tensor)), deleted)
    }

    pub(crate) fn legacy(self) -> (*mut DLManagedTensor, Deleted) {
        let deleter = self.has_deleter.then_some(delete_legacy as _);
        let (dl_tensor, manager_ctx, deleted) = self.parts();
        let tensor = DLManagedTensor { dl_tensor, manager_ctx, deleter };
        (Box::into_raw(Box::new(tensor)), deleted)
    }

    fn parts(self) -> (DLTensor, *mut c_void, Deleted) {
        let deleted = Deleted::default();
        let owned = Box::into_raw(Box::new(Owned {
            memory: self.memory,
            shape: self.shape,
            strides: self.strides,
            deleted: deleted.clone(),
        }));
        // SAFETY: the box was made just now, and nobody else has it.
        let it = unsafe { &mut *owned };
        let rank = it.shape.as_ref().map_or(0, Vec::len) as i32;
        let array =
            |it: &mut Option<Vec<i64>>| it.as_mut().map_or(null_mut(), |it| it.as_mut_ptr());
        let tensor = DLTensor {
            data: match self.data {
                Data::Null => null_mut(),
                Data::At(bytes) => it.memory.as_mut_ptr().cast::<u8>().wrapping_add(bytes).cast(),
                Data::Number(address) => std::ptr::without_provenance_mut(address),
            },
            device: self.device,
            ndim: self.ndim.unwrap_or(rank),
            dtype: self.dtype,
            shape: array(&mut it.shape),
            strides: array(&mut it.strides),
            byte_offset: self.byte_offset,
        };
        (tensor, owned.cast(), deleted)
    }
}

/// Deletes what belongs to a tensor, and counts it.
///
/// # Safety
/// The context is that of a tensor of [`Foreign`], and is deleted once.
unsafe fn delete(context: *mut c_void) {
    // SAFETY: the context was made from a box of this type, and is taken back once.
    let owned = unsafe { Box::from_raw(context.cast::<Owned>()) };
    owned.deleted.0.fetch_add(1, Ordering::SeqCst);
}

pub(crate) unsafe extern "C" fn delete_versioned(tensor: *mut DLManagedTensorVersioned) {
    // SAFETY: the tensor was made from a box, and DLPack deletes it once.
    let tensor = unsafe { Box::from_raw(tensor) };
    // SAFETY: the context is that of this tensor.
    unsafe { delete(tensor.manager_ctx) }
}

pub(crate) unsafe extern "C" fn delete_legacy(tensor: *mut DLManagedTensor) {
    // SAFETY: as above.
    let tensor = unsafe { Box::from_raw(tensor) };
    // SAFETY: as above.
    unsafe { delete(tensor.manager_ctx) }
}

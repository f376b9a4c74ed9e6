//! The two structs that DLPack knows, and the owner of one.

use std::fmt;

use dlpark::Managed;
use dlpark::ffi::{DLManagedTensor, DLManagedTensorVersioned};

/// One of the two ABIs: [`DLManagedTensorVersioned`], and the legacy [`DLManagedTensor`].
pub trait Abi: sealed::Abi {}

impl Abi for DLManagedTensor {}
impl Abi for DLManagedTensorVersioned {}

/// A tensor that was exported and that nobody has taken yet. Dropping it calls the deleter.
pub struct Tensor<A: Abi>(pub(super) Managed<A>);

impl<A: Abi> Tensor<A> {
    /// Hands the tensor over: whoever takes the pointer calls its deleter once.
    pub fn into_raw(self) -> *mut A {
        self.0.into_raw()
    }

    /// Where the struct is, for a look at it. The tensor keeps it.
    pub fn as_ptr(&self) -> *const A {
        self.0.as_ptr()
    }
}

impl<A: Abi> fmt::Debug for Tensor<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Tensor({})", A::NAME)
    }
}

pub(super) mod sealed {
    use dlpark::ManagedTensorBase;
    use dlpark::ffi::{DLManagedTensor, DLManagedTensorVersioned, DLPackVersion, DLTensor};

    /// Reads the fields of a struct one by one, through the pointer: of another major version only
    /// the first ones are there, so a reference to the whole would claim too much.
    pub trait Abi: ManagedTensorBase + Sized + 'static {
        const NAME: &'static str;
        /// Whether the struct can say that its memory may only be read.
        const HAS_FLAGS: bool;

        /// The version, if the struct has one.
        ///
        /// # Safety
        /// The pointer is to a tensor of this ABI, of any version.
        unsafe fn read_version(tensor: *const Self) -> Option<DLPackVersion>;

        /// The deleter.
        ///
        /// # Safety
        /// The pointer is to a tensor of this ABI, of any version.
        unsafe fn read_deleter(tensor: *const Self) -> Option<unsafe extern "C" fn(*mut Self)>;

        /// The flags, those unknown to us too; 0 where the struct has none.
        ///
        /// # Safety
        /// The pointer is to a tensor of this ABI, of the major version that we know.
        unsafe fn read_flags(tensor: *const Self) -> u64;

        /// The tensor proper.
        ///
        /// # Safety
        /// The pointer is to a tensor of this ABI, of the major version that we know.
        unsafe fn read_tensor(tensor: *const Self) -> DLTensor;
    }

    impl Abi for DLManagedTensor {
        const NAME: &'static str = "DLManagedTensor";
        const HAS_FLAGS: bool = false;

        unsafe fn read_version(_: *const Self) -> Option<DLPackVersion> {
            None
        }

        unsafe fn read_deleter(tensor: *const Self) -> Option<unsafe extern "C" fn(*mut Self)> {
            // SAFETY: the caller promises a pointer to such a struct.
            unsafe { (*tensor).deleter }
        }

        unsafe fn read_flags(_: *const Self) -> u64 {
            0
        }

        unsafe fn read_tensor(tensor: *const Self) -> DLTensor {
            // SAFETY: as above.
            unsafe { (*tensor).dl_tensor }
        }
    }

    impl Abi for DLManagedTensorVersioned {
        const NAME: &'static str = "DLManagedTensorVersioned";
        const HAS_FLAGS: bool = true;

        unsafe fn read_version(tensor: *const Self) -> Option<DLPackVersion> {
            // SAFETY: the caller promises a pointer to such a struct; dlpack.h: "Future ABI changes
            // should keep everything until this field stable", of the flags, which come after.
            Some(unsafe { (*tensor).version })
        }

        unsafe fn read_deleter(tensor: *const Self) -> Option<unsafe extern "C" fn(*mut Self)> {
            // SAFETY: as for the version: the deleter comes before the flags.
            unsafe { (*tensor).deleter }
        }

        unsafe fn read_flags(tensor: *const Self) -> u64 {
            // SAFETY: the caller promises a struct of our version.
            unsafe { (*tensor).flags }.bits()
        }

        unsafe fn read_tensor(tensor: *const Self) -> DLTensor {
            // SAFETY: as for the flags.
            unsafe { (*tensor).dl_tensor }
        }
    }
}

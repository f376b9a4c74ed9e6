//! What keeps the memory of a chunk that no backend allocated.

use crate::Element;

/// An owner behind a raw pointer: moving a `Box` would claim what it points to for the `Box` alone,
/// and the chunk's address points there too.
pub(crate) struct Owner<O>(pub(crate) *mut O);

// SAFETY: it stands for the `Box<O>` that it was made from, and is sent as that is: `O` is `Send`.
unsafe impl<O: Send> Send for Owner<O> {}

impl<O> Drop for Owner<O> {
    fn drop(&mut self) {
        // SAFETY: the pointer comes from `Box::into_raw`, and is taken back once, here.
        drop(unsafe { Box::from_raw(self.0) });
    }
}

/// A vector of elements as an owner of bytes.
pub(crate) struct Elements<T>(pub(crate) Vec<T>);

impl<T: Element> AsMut<[u8]> for Elements<T> {
    fn as_mut(&mut self) -> &mut [u8] {
        let bytes = size_of_val(self.0.as_slice());
        let pointer = self.0.as_mut_ptr().cast::<u8>();
        // SAFETY: the vector's elements are that many initialised bytes without padding, any bits
        // that are written there are a `T` ("Every bit pattern of `Self` is a value, `Self` has no
        // padding"), and the vector is borrowed mutably as long as the slice.
        unsafe { std::slice::from_raw_parts_mut(pointer, bytes) }
    }
}

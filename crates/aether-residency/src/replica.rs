//! The same elements on every device of a list.

use std::fmt;
use std::marker::PhantomData;

use aether_core::{
    AsSpan, Chunk, Completion, Device, Element, Error, ErrorKind, Result, Stream, View, ViewMut,
};

use crate::{ReplicaSet, StreamTransport, Transport};

/// A [`ReplicaSet`] in elements of `T`, over any transport.
pub struct Replica<T, Tr = StreamTransport> {
    set: ReplicaSet<Tr>,
    elements: usize,
    element: PhantomData<T>,
}

impl<T: Element> Replica<T> {
    /// So many elements on each of the devices.
    ///
    /// # Errors
    /// `Overflow`, and those of [`Chunk::allocate`].
    pub fn new(devices: &[Device], elements: usize) -> Result<Self> {
        Self::with_transport(devices, elements, StreamTransport::new())
    }
}

impl<T: Element, Tr: Transport> Replica<T, Tr> {
    /// As [`Replica::new`], with elements moved by this transport.
    ///
    /// # Errors
    /// `Overflow`, and those of [`Chunk::allocate`].
    pub fn with_transport(devices: &[Device], elements: usize, transport: Tr) -> Result<Self> {
        let bytes = elements.checked_mul(size_of::<T>()).ok_or_else(|| {
            let reason = format!("{elements} elements of {} overflow", T::DTYPE);
            Error::new(ErrorKind::Overflow, "make replicas", reason)
        })?;
        let set = ReplicaSet::with_transport(devices, bytes, transport)?;
        Ok(Self { set, elements, element: PhantomData })
    }

    /// How many replicas there are.
    pub fn len(&self) -> usize {
        self.set.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.set.is_empty()
    }

    /// How many elements each replica has.
    pub fn elements(&self) -> usize {
        self.elements
    }

    /// The devices, by replica.
    pub fn devices(&self) -> impl ExactSizeIterator<Item = &Device> {
        self.set.devices()
    }

    /// The replicas in bytes.
    pub fn set(&self) -> &ReplicaSet<Tr> {
        &self.set
    }

    /// The chunk of one replica.
    ///
    /// # Errors
    /// `OutOfBounds` if there are not as many.
    pub fn chunk(&self, index: usize) -> Result<&Chunk> {
        self.set.chunk(index)
    }

    /// The chunk of one replica, to change it alone.
    ///
    /// # Errors
    /// `OutOfBounds` if there are not as many.
    pub fn chunk_mut(&mut self, index: usize) -> Result<&mut Chunk> {
        self.set.chunk_mut(index)
    }

    /// One replica.
    ///
    /// # Errors
    /// `OutOfBounds` if there are not as many.
    pub fn view(&self, index: usize) -> Result<View<'_, T, 1>> {
        self.set.chunk(index)?.view([self.elements])
    }

    /// One replica, to change it alone.
    ///
    /// # Errors
    /// `OutOfBounds` if there are not as many; `Exported`.
    pub fn view_mut(&mut self, index: usize) -> Result<ViewMut<'_, T, 1>> {
        let shape = [self.elements];
        self.set.chunk_mut(index)?.view_mut(shape)
    }

    /// All replicas to change them, in the order of the devices: what a collective takes.
    ///
    /// # Errors
    /// `Exported`.
    pub fn views_mut(&mut self) -> Result<Vec<ViewMut<'_, T, 1>>> {
        let shape = [self.elements];
        self.set.chunks_mut().map(|it| it.view_mut(shape)).collect()
    }

    /// The elements of one replica in the host's memory.
    ///
    /// # Errors
    /// `OutOfBounds` if there are not as many; the failure of its last write; those of the transport.
    pub fn to_vec(&self, index: usize) -> Result<Vec<T>> {
        use aether_core::AsSpanMut as _;
        let chunk = self.set.chunk(index)?;
        let mut elements = vec![T::default(); self.elements];
        self.set.transport().copy(elements.span_mut()?, chunk.span()?)?;
        Ok(elements)
    }

    /// As [`ReplicaSet::broadcast`].
    ///
    /// # Errors
    /// `DTypeMismatch` if the source is of other elements (a plain chunk counts as bytes of any);
    /// those of [`ReplicaSet::broadcast`].
    pub fn broadcast<S: AsSpan + ?Sized>(&mut self, source: &S) -> Result<()> {
        check_elements::<T, S>(source)?;
        self.set.broadcast(source)
    }

    /// As [`ReplicaSet::broadcast_async`].
    ///
    /// # Errors
    /// `DTypeMismatch` if the source is of other elements (a plain chunk counts as bytes of any);
    /// those of [`ReplicaSet::broadcast_async`].
    pub fn broadcast_async<S: AsSpan + ?Sized>(
        &mut self,
        source: &S,
        streams: &[Stream],
    ) -> Result<Vec<Completion>> {
        check_elements::<T, S>(source)?;
        self.set.broadcast_async(source, streams)
    }

    /// As [`ReplicaSet::verify`].
    ///
    /// # Errors
    /// Those of [`ReplicaSet::verify`].
    pub fn verify(&self) -> Result<Vec<usize>> {
        self.set.verify()
    }

    /// As [`ReplicaSet::ensure_identical`].
    ///
    /// # Errors
    /// Those of [`ReplicaSet::ensure_identical`].
    pub fn ensure_identical(&self) -> Result<()> {
        self.set.ensure_identical()
    }

    /// As [`ReplicaSet::repair`].
    ///
    /// # Errors
    /// Those of [`ReplicaSet::repair`].
    pub fn repair(&mut self, from: usize) -> Result<Vec<usize>> {
        self.set.repair(from)
    }
}

fn check_elements<T: Element, S: AsSpan + ?Sized>(source: &S) -> Result<()> {
    let span = source.span()?;
    if span.dtype() == T::DTYPE || span.dtype() == aether_core::DType::U8 {
        return Ok(());
    }
    let reason =
        format!("the source has elements of {}, the replicas of {}", span.dtype(), T::DTYPE);
    Err(Error::new(ErrorKind::DTypeMismatch, "broadcast", reason).of_bytes(span.bytes() as u64))
}

impl<T, Tr> fmt::Debug for Replica<T, Tr> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.set, f)
    }
}

//! Several messages as one operation.

use aether_core::{AsSpan, AsSpanMut, Element, Result, View, ViewMut};
use smallvec::SmallVec;

use crate::{CollectiveDriver, Group, Message, Request, Work};

/// Sends and receives that are collected and then made as one operation: none waits for another, so
/// two ranks may send to each other, and a rank to itself.
#[derive(Debug, Default)]
pub struct Batch<'a> {
    messages: SmallVec<[Message<'a>; 2]>,
}

impl<'a> Batch<'a> {
    /// Sends `src` to `peer`.
    ///
    /// # Errors
    /// `NotContiguous`.
    pub fn send<T: Element, const R: usize>(
        &mut self,
        src: &'a View<'_, T, R>,
        peer: usize,
    ) -> Result<()> {
        self.messages.push(Message::Send { src: src.span()?, peer });
        Ok(())
    }

    /// Receives `dst` from `peer`.
    ///
    /// # Errors
    /// `NotContiguous`.
    pub fn recv<T: Element, const R: usize>(
        &mut self,
        dst: &'a mut ViewMut<'_, T, R>,
        peer: usize,
    ) -> Result<()> {
        self.messages.push(Message::Recv { dst: dst.span_mut()?, peer });
        Ok(())
    }

    /// Adds an untyped message.
    pub fn push(&mut self, message: Message<'a>) {
        self.messages.push(message);
    }
}

impl<D: CollectiveDriver> Group<D> {
    /// Makes the messages that `collect` names as one operation, and waits for its end.
    ///
    /// # Errors
    /// What `collect` says, and every refusal and failure of aether's semantics.
    pub fn batch<'a>(&mut self, collect: impl FnOnce(&mut Batch<'a>) -> Result<()>) -> Result<()> {
        let mut batch = Batch::default();
        collect(&mut batch)?;
        self.run(Request::Batch(batch.messages))
    }

    /// As [`Group::batch`], and returns at once.
    ///
    /// # Errors
    /// What `collect` says, and every refusal of aether's semantics; `BorrowedMemory`.
    pub fn batch_async<'a>(
        &mut self,
        collect: impl FnOnce(&mut Batch<'a>) -> Result<()>,
    ) -> Result<Work> {
        let mut batch = Batch::default();
        collect(&mut batch)?;
        self.submit(Request::Batch(batch.messages))
    }
}

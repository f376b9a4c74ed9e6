//! What others put onto streams: the calls of collective drivers and of waiting exports.

use crate::{Error, Result};

/// An operation that a driver puts on a stream: one object for many calls, each told by a token, so
/// that enqueueing allocates nothing.
///
/// # Safety
/// An implementation touches the memory of call `token` only between [`Operation::issue`] and the first
/// answer that is not [`Step::Pending`] (and, after [`Step::Issued`], until the stream's backend says
/// that the stream has come so far).
pub unsafe trait Operation: Send + Sync {
    /// Begins the call: puts it on the device's stream, or tells the other ranks that this one has
    /// arrived. Called once, when all earlier operations of the stream were issued and everything
    /// that the call depends on is ordered. It is quick: whoever enqueues does it, so the work itself
    /// belongs into [`Operation::advance`].
    ///
    /// # Errors
    /// The call has failed. Nobody touches its memory any more.
    fn issue(&self, token: u64) -> Result<Step>;

    /// Does what can be done now without waiting for anybody. Called after `issue` until an answer
    /// is not [`Step::Pending`]; never twice at a time for one token.
    ///
    /// # Errors
    /// The call has failed. Nobody touches its memory any more.
    fn advance(&self, token: u64) -> Result<Step>;

    /// Whether the CPU touches the memory, rather than the device in the order of its stream. What the
    /// call depends on, and what is before it on the stream, has then ended when it begins; otherwise
    /// it may only be ordered by the device.
    fn works_on_host(&self) -> bool {
        true
    }

    /// The call failed with this error before it began, because what it reads was never written, or
    /// because it couldn't be ordered. It is neither issued nor advanced any more.
    fn refused(&self, token: u64, error: &Error);
}

/// What [`Operation::issue`] or [`Operation::advance`] came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// It waits for others. Whoever looks will ask again; [`progress::announce`](crate::progress::announce) wakes the sleepers.
    Pending,
    /// Whatever is left is on the stream of the device.
    Issued,
}

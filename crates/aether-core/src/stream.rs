//! Streams, and points on them that can be waited for.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::backend::{NativeStream, Point};
use crate::queue::Queue;
use crate::{Device, Result, progress};

/// An ordered queue of work on one device.
///
/// Operations of one stream run in the order in which they were enqueued. Operations of different
/// streams run in any order, except that work on the same memory is ordered by aether: later work
/// waits for what it conflicts with. A stream never blocks the thread that enqueues.
///
/// Clones name the same stream. It closes when the last clone is gone and its work has ended.
#[derive(Clone)]
pub struct Stream {
    pub(crate) queue: Arc<Queue>,
}

impl Stream {
    /// Opens a stream on the device.
    ///
    /// # Errors
    /// Whatever keeps the backend from having one more.
    pub fn new(device: &Device) -> Result<Self> {
        Ok(Self { queue: Arc::new(Queue::open(device)?) })
    }

    /// The device on which the work runs.
    pub fn device(&self) -> &Device {
        self.queue.device()
    }

    /// The backend's own name of the stream.
    pub fn native(&self) -> NativeStream {
        self.queue.native()
    }

    /// The handle by which the device's own library knows the stream, such as a `CUstream`; zero
    /// where there is none. It is valid while the stream lives.
    pub fn raw(&self) -> u64 {
        self.device().backend().raw_stream(self.native())
    }

    /// The end of what is on the stream now.
    pub fn last(&self) -> Completion {
        Completion { queue: self.queue.clone(), ticket: self.queue.last_ticket() }
    }

    /// Waits until everything that is on the stream now has ended.
    ///
    /// # Errors
    /// The failure of the last operation, if it failed.
    pub fn synchronize(&self) -> Result<()> {
        self.last().wait()
    }
}

impl PartialEq for Stream {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.queue, &other.queue)
    }
}

impl Eq for Stream {}

impl fmt::Debug for Stream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Stream({}, #{})", self.device(), self.native().0)
    }
}

/// How far an operation is.
#[derive(Clone, Debug)]
pub enum Status {
    /// Not ended.
    Pending,
    /// Ended well.
    Done,
    /// Ended with this failure. What it should have written gives the same.
    Failed(crate::Error),
}

/// The end of one operation: a stream and the number of the operation on it. Cheap to clone.
///
/// Dropping it neither blocks nor cancels.
#[derive(Clone)]
pub struct Completion {
    pub(crate) queue: Arc<Queue>,
    pub(crate) ticket: u64,
}

impl Completion {
    /// How far the operation is. Looking helps: it runs what is ready.
    pub fn status(&self) -> Status {
        if !self.queue.is_done(self.ticket) {
            self.queue.advance();
            if !self.queue.is_done(self.ticket) {
                progress::look();
            }
        }
        let status = self.queue.status(self.ticket);
        if !matches!(status, Status::Pending) {
            self.acquire();
        }
        status
    }

    /// Whether the operation has ended, well or not.
    pub fn is_done(&self) -> bool {
        !matches!(self.status(), Status::Pending)
    }

    /// Whether the operation is known to have ended, without running anything to find out: for calls
    /// that have to stay quick.
    pub fn has_ended(&self) -> bool {
        self.queue.is_done(self.ticket)
    }

    /// Waits for the end, and runs what is ready meanwhile.
    ///
    /// # Errors
    /// The operation's failure.
    pub fn wait(&self) -> Result<()> {
        progress::wait_until(&self.queue, self.ticket, None);
        self.acquire();
        self.queue.outcome(self.ticket)
    }

    /// Waits for the end, at most so long. False if it hasn't ended by then; the operation goes on.
    ///
    /// Who waits runs what is ready, and breaks off no copy that it has begun: the time can be
    /// exceeded by one step of work.
    ///
    /// # Errors
    /// The operation's failure.
    pub fn wait_timeout(&self, at_most: Duration) -> Result<bool> {
        // A time beyond what the clock can express is no limit.
        let until = Instant::now().checked_add(at_most);
        if !progress::wait_until(&self.queue, self.ticket, until) {
            return Ok(false);
        }
        self.acquire();
        self.queue.outcome(self.ticket).map(|()| true)
    }

    /// The stream's name and the ticket, as the stream's backend knows them.
    pub fn point(&self) -> Point {
        Point { stream: self.queue.native(), ticket: self.ticket }
    }

    /// The device whose stream it is.
    pub fn device(&self) -> &Device {
        self.queue.device()
    }

    /// Tells the backend that the host relies on the end.
    pub(crate) fn acquire(&self) {
        if self.ticket > 0 {
            self.queue.acquire(self.ticket);
        }
    }
}

impl fmt::Debug for Completion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Completion({}, #{}.{})", self.device(), self.queue.native().0, self.ticket)
    }
}

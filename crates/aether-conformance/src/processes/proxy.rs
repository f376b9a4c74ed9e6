//! The communicator that stands for a member in a worker.

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use aether_collective::GroupConfig;
use aether_core::{DType, Device, Error, ErrorKind, Result};

use super::Remote;
use super::driver::Range;
use super::formed::Formed;
use super::pool::Lease;
use super::seat::{Seat, lock};
use super::wire::{Ask, Call, Lies, Memory, Message, What};
use crate::collectives::operation::Operation;

/// How long a worker may take for what waits for no other rank.
const PATIENCE: Duration = Duration::from_secs(30);

/// What the alignment of memory in a worker agrees with that of the rank's in.
const ALIGNMENT: usize = 64;

/// A member of a group that is in a worker.
pub struct Proxy {
    member: u64,
    rank: usize,
    lease: Lease,
    seat: Arc<Seat>,
    formed: Formed,
    left: AtomicBool,
    under_way: Mutex<UnderWay>,
}

#[derive(Default)]
struct UnderWay {
    /// Where the results of the call go that has not ended.
    targets: Option<Vec<Range>>,
    /// The batch that is open.
    batch: Option<(Vec<Message>, Vec<Range>)>,
}

impl Proxy {
    /// Has a worker join. It has joined when [`Proxy::joined`] says so.
    pub(super) fn begin<R: Remote>(
        generation: u64,
        ranks: usize,
        rank: usize,
        device: &Device,
        config: &GroupConfig,
    ) -> Result<Self> {
        static MEMBERS: AtomicU64 = AtomicU64::new(0);
        let member = MEMBERS.fetch_add(1, Ordering::Relaxed);
        let lease = Lease::new::<R>(device.id())?;
        let seat = lease.link.enter(member);
        let formed = Formed::enter(generation);
        let place = formed.place().display().to_string();
        let device = device.id().index;
        let what = What::Join { place, rank, ranks, device, config: config.clone() };
        let (left, under_way) = (AtomicBool::new(false), Mutex::default());
        let proxy = Self { member, rank, lease, seat, formed, left, under_way };
        proxy.lease.link.send(&Ask { member, what })?;
        Ok(proxy)
    }

    /// Waits until the worker has joined.
    ///
    /// # Errors
    /// What the driver under test says.
    pub(super) fn joined<R: Remote>(self, ranks: usize, config: &GroupConfig) -> Result<Self> {
        let patience = config.join_deadline.saturating_add(PATIENCE).min(10 * PATIENCE);
        let answer = self.seat.reply(patience)?;
        answer.outcome?;
        if !R::IN_THREADS {
            self.formed.is_in(self.rank, answer.process)?;
        }
        self.formed.joined(ranks);
        Ok(self)
    }

    /// Makes a collective call.
    pub(super) fn collective(
        &self,
        operation: Operation,
        dtype: DType,
        src: Option<&Range>,
        dst: Option<&Range>,
    ) -> Result<()> {
        let lies = lie(src, dst);
        let (from, to) = (src.map(|it| it.memory(true)), dst.map(|it| it.memory(false)));
        let call = Call::Collective { operation, dtype, lies, src: from, dst: to };
        self.call(call, dst.into_iter().copied().collect())
    }

    pub(super) fn barrier(&self) -> Result<()> {
        self.call(Call::Barrier, Vec::new())
    }

    pub(super) fn open_batch(&self) {
        lock(&self.under_way).batch = Some((Vec::new(), Vec::new()));
    }

    pub(super) fn close_batch(&self) -> Result<()> {
        let batch = lock(&self.under_way).batch.take();
        let (messages, targets) = batch.unwrap_or_default();
        self.call(Call::Batch(messages), targets)
    }

    pub(super) fn message(
        &self,
        sends: bool,
        memory: &Range,
        dtype: DType,
        peer: usize,
    ) -> Result<()> {
        let message = Message { sends, peer, dtype, memory: memory.memory(sends) };
        let Some((messages, targets)) = &mut lock(&self.under_way).batch else {
            let reason = "a message came outside of a batch";
            return Err(Error::new(ErrorKind::InvalidArgument, "send/recv", reason));
        };
        messages.push(message);
        if !sends {
            targets.push(*memory);
        }
        Ok(())
    }

    fn call(&self, call: Call, targets: Vec<Range>) -> Result<()> {
        lock(&self.under_way).targets = Some(targets);
        self.lease.link.send(&Ask { member: self.member, what: What::Call(call) })
    }

    /// Whether the call has ended; its results are written then.
    ///
    /// # Errors
    /// How the worker's call failed.
    pub(super) fn issued(&self) -> Result<bool> {
        if lock(&self.under_way).targets.is_none() {
            return Ok(true);
        }
        let Some(answer) = self.seat.end()? else { return Ok(false) };
        let targets = lock(&self.under_way).targets.take().unwrap_or_default();
        answer.outcome?;
        for (target, bytes) in targets.iter().zip(&answer.written) {
            target.write(bytes)?;
        }
        Ok(true)
    }

    pub(super) fn failure(&self) -> Option<Error> {
        self.ask(What::Failure).err()
    }

    pub(super) fn abort(&self, why: &Error) -> Result<()> {
        self.ask(What::Abort(why.clone()))
    }

    pub(super) fn finish(&self) -> Result<()> {
        self.ask(What::Finish)
    }

    pub(super) fn leave(&self, panicking: bool) -> Result<()> {
        if self.left.swap(true, Ordering::AcqRel) {
            return Ok(());
        }
        self.ask(What::Leave { panicking })
    }

    fn ask(&self, what: What) -> Result<()> {
        self.seat.ask(&self.lease.link, self.member, what, PATIENCE)?.outcome
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        // A worker that can't be told has ended, and has left by that.
        drop(self.leave(false));
        self.lease.link.leave(self.member);
    }
}

impl fmt::Debug for Proxy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Proxy(rank {})", self.rank)
    }
}

/// How source and destination lie. Those of no bytes are nowhere.
fn lie(src: Option<&Range>, dst: Option<&Range>) -> Lies {
    let (Some(src), Some(dst)) = (src, dst) else { return Lies::Apart };
    let (from, to) = (src.address.addr(), dst.address.addr());
    let (from_end, to_end) = (from + src.bytes, to + dst.bytes);
    match () {
        () if src.bytes == 0 || dst.bytes == 0 => Lies::Apart,
        () if from <= to && to_end <= from_end => Lies::DestinationInside(to - from),
        () if to <= from && from_end <= to_end => Lies::SourceInside(from - to),
        () => Lies::Apart,
    }
}

impl Range {
    /// The range for the worker, with what it holds if the call reads it.
    fn memory(&self, read: bool) -> Memory {
        let skew = self.address.addr() % ALIGNMENT;
        let held = if read { self.read() } else { Vec::new() };
        Memory { skew, bytes: self.bytes, held }
    }

    fn read(&self) -> Vec<u8> {
        if self.bytes == 0 {
            return Vec::new();
        }
        let from = self.address.as_ptr().cast_const();
        // SAFETY: the range is what a call reads that is being enqueued: "every resource is memory that
        // `Driver::reaches` allows", which is memory of the host, "valid until the operation has ended",
        // and "nobody else writes what is read".
        unsafe { std::slice::from_raw_parts(from, self.bytes) }.to_vec()
    }

    /// Writes the result of a call.
    ///
    /// # Errors
    /// `Backend` if the worker's is of another size.
    fn write(&self, bytes: &[u8]) -> Result<()> {
        if bytes.len() != self.bytes {
            let reason = format!("{} bytes came for a range of {}", bytes.len(), self.bytes);
            return Err(Error::new(ErrorKind::Backend, "take a result from a worker", reason));
        }
        if bytes.is_empty() {
            return Ok(());
        }
        // SAFETY: the range is the destination of a call that has not ended, valid until then and touched
        // by nobody else, as `read` quotes; the bytes are a vector's of their own, and as many.
        unsafe {
            std::ptr::copy_nonoverlapping(bytes.as_ptr(), self.address.as_ptr(), bytes.len())
        };
        Ok(())
    }
}

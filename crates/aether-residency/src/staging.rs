//! Staging memory and the streams of its copies, kept for the next one.

use std::sync::{Mutex, PoisonError};

use aether_core::{Chunk, Completion, Device, Result, Stream};

use crate::operations::host_stream;

/// How many idle pairs of pieces, and how many idle streams, are kept.
const MOST_IDLE: usize = 8;

/// What copies have lent and given back.
///
/// A copy has what it borrows for itself until its work has ended: were it shared with a copy that
/// waits for others, two copies could wait for each other. So there is no limit to how many are lent,
/// only to how many are kept.
#[derive(Default)]
pub(crate) struct Pool {
    slots: Mutex<Vec<Returned<Slots>>>,
    streams: Mutex<Vec<Returned<Stream>>>,
}

/// Two pieces of staging memory: while one is filled, the other is emptied.
pub(crate) struct Slots {
    pub(crate) even: Chunk,
    pub(crate) odd: Chunk,
}

/// What one staged copy works with.
pub(crate) struct Lane {
    /// For each stop.
    pub(crate) slots: Vec<Slots>,
    /// For each copy.
    pub(crate) streams: Vec<Stream>,
}

struct Returned<T> {
    it: T,
    /// The last work on it, unless all had ended.
    until: Option<Completion>,
}

impl Pool {
    /// Pieces of `bytes` bytes on each of the stops, and a stream on each of the devices; none means
    /// a stream for the processor.
    pub(crate) fn lend(
        &self,
        stops: &[Device],
        bytes: usize,
        streams: &[Option<Device>],
    ) -> Result<Lane> {
        let slots = stops.iter().map(|stop| {
            let fits = |it: &Slots| it.even.device() == stop && it.even.size() >= bytes;
            take(&self.slots, fits).map_or_else(
                || {
                    tracing::debug!(device = %stop, bytes, "allocate two pieces of staging memory");
                    Ok(Slots {
                        even: Chunk::allocate(stop, bytes)?,
                        odd: Chunk::allocate(stop, bytes)?,
                    })
                },
                Ok,
            )
        });
        let slots = slots.collect::<Result<Vec<_>>>()?;
        let streams = streams.iter().map(|device| {
            let host = Device::cpu(0);
            let wanted = device.as_ref().unwrap_or(&host);
            let open = || device.as_ref().map_or_else(host_stream, Stream::new);
            take(&self.streams, |it| it.device() == wanted).map_or_else(open, Ok)
        });
        Ok(Lane { slots, streams: streams.collect::<Result<Vec<_>>>()? })
    }

    /// Takes back what was lent, to be lent again when `until` has ended.
    pub(crate) fn take_back(&self, lane: Lane, until: Option<&Completion>) {
        put(&self.slots, lane.slots, until);
        put(&self.streams, lane.streams, until);
    }

    /// How much staging memory is kept, in bytes.
    pub(crate) fn kept_bytes(&self) -> usize {
        let slots = self.slots.lock().unwrap_or_else(PoisonError::into_inner);
        slots.iter().map(|it| it.it.even.size() + it.it.odd.size()).sum()
    }

    /// Frees what is kept, as far as its work has ended, and the rest after it.
    pub(crate) fn clear(&self) {
        let slots = std::mem::take(&mut *self.slots.lock().unwrap_or_else(PoisonError::into_inner));
        let streams =
            std::mem::take(&mut *self.streams.lock().unwrap_or_else(PoisonError::into_inner));
        // Freeing is the backend's code: it runs without the locks.
        drop((slots, streams));
    }
}

/// Takes something that fits and whose work has ended.
fn take<T>(from: &Mutex<Vec<Returned<T>>>, fits: impl Fn(&T) -> bool) -> Option<T> {
    let mut all = from.lock().unwrap_or_else(PoisonError::into_inner);
    let idle =
        |it: &Returned<T>| fits(&it.it) && it.until.as_ref().is_none_or(Completion::has_ended);
    let at = all.iter().rposition(idle)?;
    Some(all.remove(at).it)
}

fn put<T>(into: &Mutex<Vec<Returned<T>>>, them: Vec<T>, until: Option<&Completion>) {
    let mut all = into.lock().unwrap_or_else(PoisonError::into_inner);
    all.extend(them.into_iter().map(|it| Returned { it, until: until.cloned() }));
    let surplus = all.len().saturating_sub(MOST_IDLE);
    let oldest: Vec<_> = all.drain(..surplus).collect();
    drop(all);
    // What still works is freed, or closed, after its work.
    drop(oldest);
}

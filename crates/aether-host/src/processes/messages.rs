//! The messages of one rank: collected in batches, and then moved lane by lane.
//!
//! A sender puts pieces of its memory into the ring of the lane, or shows where in its heap the memory is;
//! the receiver takes them. A send has ended when all was taken.

use std::sync::atomic::{Ordering, fence};

use aether_core::{DType, Error, ErrorKind, Result};

use super::header::{Half, Lane};
use super::map::Map;
use super::member::Look;
use super::pod::{self, Place};
use super::table::Table;
use crate::lane::End;
use crate::resource::HostRange;

/// The messages of a rank.
#[derive(Default)]
pub(crate) struct Messages {
    /// The batch that is open.
    batch: Option<Batch>,
    /// Those that were posted last.
    posts: Vec<Post>,
    /// How far the lanes to and from each rank are.
    sent: Vec<Mark>,
    received: Vec<Mark>,
}

/// Messages that are collected.
#[derive(Default)]
struct Batch {
    posts: Vec<Post>,
    /// One of them was refused, so that the batch will be too.
    refusal: Option<Error>,
}

/// One end of a message.
#[derive(Clone, Copy)]
struct Post {
    end: End,
    peer: usize,
    memory: HostRange,
    dtype: DType,
    count: u64,
    /// Its number in its lane, from 1.
    number: u64,
    /// How many bytes of it this rank has moved.
    moved: usize,
    is_shown: bool,
    is_over: bool,
}

/// How far one end of a lane is.
#[derive(Clone, Copy, Default)]
struct Mark {
    posted: u64,
    ended: u64,
    /// The bytes of all messages that have ended.
    bytes: u64,
}

/// How much is moved at a time: small enough to be in a cache still when it is taken.
const PIECE: usize = 64 << 10;

// SAFETY: the addresses in it are numbers until unsafe code uses them.
unsafe impl Send for Messages {}

impl Messages {
    /// Whether a batch is open.
    pub(crate) fn is_open(&self) -> bool {
        self.batch.is_some()
    }

    /// Opens a batch.
    ///
    /// # Errors
    /// `InvalidArgument` if one is open.
    pub(crate) fn open(&mut self) -> Result<()> {
        if self.batch.is_some() {
            let reason = "a batch is open already";
            return Err(Error::new(ErrorKind::InvalidArgument, "begin a batch", reason).on("host"));
        }
        self.batch = Some(Batch::default());
        Ok(())
    }

    /// Closes the batch.
    ///
    /// # Errors
    /// `InvalidArgument` if none is open; the refusal of a message.
    pub(crate) fn close(&mut self) -> Result<()> {
        let Some(batch) = self.batch.take() else {
            let reason = "no batch is open";
            return Err(Error::new(ErrorKind::InvalidArgument, "end a batch", reason).on("host"));
        };
        self.posts = batch.posts;
        match batch.refusal {
            Some(refusal) => {
                self.posts.clear();
                Err(refusal)
            }
            None => Ok(()),
        }
    }

    /// Adds a message to the open batch.
    ///
    /// # Errors
    /// `GroupBroken`, `RankOutOfRange`.
    pub(crate) fn add(
        &mut self,
        table: &Table,
        end: End,
        memory: HostRange,
        dtype: DType,
        count: u64,
        peer: usize,
    ) -> Result<()> {
        let name = if end == End::Send { "send" } else { "recv" };
        let checked = table.check_alive(name).and_then(|()| {
            if peer < table.ranks {
                return Ok(());
            }
            let reason = format!("peer {peer} is out of range: there are {} ranks", table.ranks);
            Err(Error::new(ErrorKind::RankOutOfRange, name, reason).about_ranks([peer]))
        });
        if let Some(batch) = &mut self.batch {
            match &checked {
                Ok(()) => batch.posts.push(Post {
                    end,
                    peer,
                    memory,
                    dtype,
                    count,
                    number: 0,
                    moved: 0,
                    is_shown: false,
                    is_over: false,
                }),
                Err(refusal) => batch.refusal = Some(refusal.clone()),
            }
        }
        checked
    }

    /// Posts what was collected.
    pub(crate) fn post(&mut self, table: &Table) {
        self.sent.resize(table.ranks, Mark::default());
        self.received.resize(table.ranks, Mark::default());
        for post in &mut self.posts {
            let marks = if post.end == End::Send { &mut self.sent } else { &mut self.received };
            if let Some(mark) = marks.get_mut(post.peer) {
                mark.posted += 1;
                post.number = mark.posted;
                own_lane(table, post.end, post.peer).posted.set(mark.posted);
            }
        }
        for post in &mut self.posts {
            let marks = if post.end == End::Send { &self.sent } else { &self.received };
            if marks.get(post.peer).is_some_and(|it| it.ended + 1 == post.number) {
                show(table, post);
            }
        }
        table.publish();
    }

    /// Moves what can be moved.
    ///
    /// # Errors
    /// `RankMismatch`; the group's failure, if memory was read that its owner may have got back.
    pub(crate) fn advance(&mut self, table: &Table) -> Result<Look> {
        let (mut moved, mut over) = (false, true);
        for post in &mut self.posts {
            if post.is_over {
                continue;
            }
            let marks = if post.end == End::Send { &mut self.sent } else { &mut self.received };
            let Some(mark) = marks.get_mut(post.peer) else { continue };
            // The messages of a lane go one by one.
            if mark.ended + 1 != post.number {
                over = false;
                continue;
            }
            if !post.is_shown {
                show(table, post);
                moved = true;
            }
            moved |= match post.end {
                End::Send => send(table, post, mark.bytes)?,
                End::Recv => receive(table, post, mark.bytes)?,
            };
            if post.is_over {
                mark.ended += 1;
                mark.bytes += post.memory.bytes as u64;
                own_lane(table, post.end, post.peer).moved.set(mark.bytes);
                moved = true;
            }
            over &= post.is_over;
        }
        if moved {
            table.publish();
        }
        Ok(match (over, moved) {
            (true, _) => Look::Over,
            (false, true) => Look::Moved,
            (false, false) => Look::Waits,
        })
    }

    /// The ranks whose end of a message has not come.
    pub(crate) fn absent(&self, table: &Table) -> Vec<usize> {
        let open = |it: &&Post| {
            !it.is_over
                && other_lane(table, it.end, it.peer).is_none_or(|it_| it_.posted.get() < it.number)
        };
        let mut ranks: Vec<usize> = self.posts.iter().filter(open).map(|it| it.peer).collect();
        if ranks.is_empty() {
            // All have come, and some have not moved their part.
            ranks = self.posts.iter().filter(|it| !it.is_over).map(|it| it.peer).collect();
        }
        ranks.sort_unstable();
        ranks.dedup();
        ranks
    }

    /// The messages in words.
    pub(crate) fn describe(&self) -> String {
        let one = |it: &Post| {
            let verb = if it.end == End::Send { "send to" } else { "recv from" };
            format!("{verb} rank {} of {} {}", it.peer, it.count, it.dtype)
        };
        self.posts.iter().map(one).collect::<Vec<_>>().join(", ")
    }
}

/// This rank's end of the lane to or from the peer.
fn own_lane(table: &Table, end: End, peer: usize) -> &Lane {
    let at = if end == End::Send { peer } else { table.ranks + peer };
    lane(table, table.base(), at)
}

/// The peer's end of the same lane.
fn other_lane(table: &Table, end: End, peer: usize) -> Option<&Lane> {
    let map: &Map = &table.peers.get(peer)?.map;
    let at = if end == End::Send { table.ranks + table.rank } else { table.rank };
    Some(lane(table, map.base(), at))
}

fn lane(table: &Table, base: *mut u8, at: usize) -> &Lane {
    let lane = base.wrapping_add(table.shape.lanes + at * size_of::<Lane>());
    // SAFETY: `base` begins a segment that the table keeps mapped, which has two lanes a rank there
    // (`Shape`), aligned; every bit pattern is a lane, which is made of atomic words.
    unsafe { &*lane.cast::<Lane>().cast_const() }
}

fn half(lane: &Lane, number: u64) -> &Half {
    let [even, odd] = &lane.halves;
    if number % 2 == 1 { odd } else { even }
}

/// Shows the message at the front of its lane.
fn show(table: &Table, post: &mut Post) {
    let half = half(own_lane(table, post.end, post.peer), post.number);
    half.dtype.set(pod::dtype(post.dtype));
    half.count.set(post.count);
    let place = if post.end == End::Send { table.place_of(post.memory) } else { Place::Nowhere };
    half.source.set(place.to_word());
    half.number.set(post.number);
    post.is_shown = true;
}

/// Whether the other end has come; it is then compared.
fn meets(table: &Table, post: &Post) -> Result<bool> {
    let Some(lane) = other_lane(table, post.end, post.peer) else { return Ok(false) };
    let half = half(lane, post.number);
    if half.number.get() < post.number {
        return Ok(false);
    }
    let (dtype, count) = (pod::dtype_of(half.dtype.peek()), half.count.peek());
    if (dtype, count) == (Some(post.dtype), post.count) {
        return Ok(true);
    }
    let name = |it: Option<DType>| it.map_or("?", DType::name);
    let (mine, theirs) = ((post.count, post.dtype.name()), (count, name(dtype)));
    let (from, to, sent, received) = match post.end {
        End::Send => (table.rank, post.peer, mine, theirs),
        End::Recv => (post.peer, table.rank, theirs, mine),
    };
    let reason = format!(
        "the ranks disagree on a message: {} sends {} {}, and {} receives {} {}",
        table.name_of(from),
        sent.0,
        sent.1,
        table.name_of(to),
        received.0,
        received.1
    );
    Err(Error::new(ErrorKind::RankMismatch, "send/recv", reason).about_ranks([from, to]))
}

/// Puts into the ring what there is room for, and says whether anything moved.
fn send(table: &Table, post: &mut Post, base: u64) -> Result<bool> {
    let has_come = meets(table, post)?;
    let Some(other) = other_lane(table, post.end, post.peer) else { return Ok(false) };
    let taken = other.moved.get();
    if has_come && taken >= base + post.memory.bytes as u64 {
        post.is_over = true;
        return Ok(true);
    }
    let own = own_lane(table, post.end, post.peer);
    let ring = table.shape.ring;
    let mut moved = false;
    let is_staged = Place::of_word(half(own, post.number).source.peek()) == Place::Staged;
    while is_staged && post.moved < post.memory.bytes {
        let put = base + post.moved as u64;
        let room = ring - (put - taken.min(put)) as usize;
        let at = (put % ring as u64) as usize;
        let bytes = room.min(post.memory.bytes - post.moved).min(ring - at).min(PIECE);
        if bytes == 0 {
            break;
        }
        let from = post.memory.address.add(post.moved).as_ptr().cast_const();
        let to = table.base().wrapping_add(table.shape.mail + post.peer * ring + at);
        // SAFETY: the driver's contract gives the memory of a send to read until it has ended; the part
        // of the ring is this rank's, and empty: the receiver has taken all but what lies between
        // `taken` and `put`.
        unsafe { std::ptr::copy_nonoverlapping(from, to, bytes) };
        post.moved += bytes;
        own.moved.set(base + post.moved as u64);
        table.publish();
        moved = true;
    }
    Ok(moved)
}

/// Takes what there is, and says whether anything moved.
fn receive(table: &Table, post: &mut Post, base: u64) -> Result<bool> {
    if !meets(table, post)? {
        return Ok(false);
    }
    let (Some(other), Some(peer)) =
        (other_lane(table, post.end, post.peer), table.peers.get(post.peer))
    else {
        return Ok(false);
    };
    let own = own_lane(table, post.end, post.peer);
    let ring = table.shape.ring;
    let mut moved = false;
    let place = Place::of_word(half(other, post.number).source.peek());
    while post.moved < post.memory.bytes {
        let got = base + post.moved as u64;
        let left = post.memory.bytes - post.moved;
        let (from, bytes) = match place {
            Place::Heap(offset) => {
                let heap = peer.heap.as_ref();
                let end = (offset as usize).checked_add(post.memory.bytes);
                let Some(heap) = heap.filter(|it| end.is_some_and(|end| end <= it.bytes())) else {
                    let reason =
                        format!("{} shows memory that it has not", table.name_of(post.peer));
                    return Err(
                        Error::new(ErrorKind::OutOfBounds, "recv", reason).about_ranks([post.peer])
                    );
                };
                (heap.base().wrapping_add(offset as usize + post.moved), left.min(1 << 20))
            }
            _ => {
                let put = other.moved.get();
                let at = (got % ring as u64) as usize;
                let ready = put.saturating_sub(got).min(ring as u64) as usize;
                let from = table.shape.mail + table.rank * ring + at;
                let bytes = ready.min(left).min(ring - at).min(PIECE);
                (peer.map.base().wrapping_add(from), bytes)
            }
        };
        if bytes == 0 {
            break;
        }
        let to = post.memory.address.add(post.moved).as_ptr();
        // SAFETY: the driver's contract gives the memory of a receive to write until it has ended; what
        // is read was put there before `moved` said so, or lies within the sender's heap, and does not
        // overlap: a rank that sends to itself has checked that.
        unsafe { std::ptr::copy_nonoverlapping(from.cast_const(), to, bytes) };
        post.moved += bytes;
        own.moved.set(base + post.moved as u64);
        table.publish();
        moved = true;
        if matches!(place, Place::Heap(_)) {
            break;
        }
    }
    if post.moved == post.memory.bytes {
        // As at the end of a collective: what was read directly counts if it was not given back.
        fence(Ordering::Acquire);
        match table.failure() {
            Some(error) if matches!(place, Place::Heap(_)) => return Err(error.clone()),
            _ => post.is_over = true,
        }
        moved = true;
    }
    Ok(moved)
}

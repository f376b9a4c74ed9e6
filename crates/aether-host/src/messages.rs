//! A member's messages: collected in batches, posted to lanes, and moved piece by piece.

use std::sync::atomic::Ordering;
use std::time::Instant;

use aether_core::{DType, Error, ErrorKind, Result, progress};

use crate::comm::{Communicator, Look};
use crate::lane::{End, Found, Half};
use crate::resource::HostRange;
use crate::shared::{Batch, Current, Pending, Post, Seat, lock, read, write};
use crate::trouble;

impl Communicator {
    /// Opens a batch of messages.
    ///
    /// # Errors
    /// `GroupBroken`; `InvalidArgument` if one is open.
    pub(crate) fn batch_begin(&self) -> Result<()> {
        self.shared.check_alive("begin a batch")?;
        let Some(seat) = self.shared.seat(self.rank) else { return Ok(()) };
        let mut current = lock(&seat.current);
        if current.batch.is_some() {
            let reason = "a batch is open already";
            return Err(Error::new(ErrorKind::InvalidArgument, "begin a batch", reason).on("host"));
        }
        current.batch = Some(Batch::default());
        seat.collects.store(true, Ordering::Release);
        Ok(())
    }

    /// Ends the batch, and posts its messages; none of them if one was refused.
    ///
    /// # Errors
    /// `InvalidArgument` if no batch is open; `GroupBroken`; the refusal of a message.
    pub(crate) fn batch_end(&self) -> Result<()> {
        let Some(seat) = self.shared.seat(self.rank) else { return Ok(()) };
        let batch = lock(&seat.current).batch.take();
        seat.collects.store(false, Ordering::Release);
        let Some(batch) = batch else {
            let reason = "no batch is open";
            return Err(Error::new(ErrorKind::InvalidArgument, "end a batch", reason).on("host"));
        };
        if let Some(refusal) = batch.refusal {
            return Err(refusal);
        }
        self.shared.check_alive("end a batch")?;
        let mut posts = write(&seat.posts);
        *posts = batch.posts;
        for post in posts.iter_mut() {
            post.number = lock(&post.lane).post(post.end, post.half);
        }
        drop(posts);
        *lock(&seat.current) = Current::of(Pending::Messages);
        progress::announce();
        Ok(())
    }

    /// Adds a message to the open batch, or makes it one of its own.
    ///
    /// # Errors
    /// `GroupBroken`, `RankOutOfRange`.
    pub(crate) fn message(
        &self,
        end: End,
        memory: HostRange,
        dtype: DType,
        count: u64,
        peer: usize,
    ) -> Result<()> {
        let Some(seat) = self.shared.seat(self.rank) else { return Ok(()) };
        let post = self.post(end, Half { memory, dtype, count }, peer);
        if let Some(batch) = &mut lock(&seat.current).batch {
            match &post {
                Ok(post) => batch.posts.push(post.clone()),
                Err(refusal) => batch.refusal = Some(refusal.clone()),
            }
            return post.map(drop);
        }
        let post = post?;
        self.batch_begin()?;
        if let Some(batch) = &mut lock(&seat.current).batch {
            batch.posts.push(post);
        }
        self.batch_end()
    }

    fn post(&self, end: End, half: Half, peer: usize) -> Result<Post> {
        let name = if end == End::Send { "send" } else { "recv" };
        self.shared.check_alive(name)?;
        if peer >= self.shared.ranks {
            let reason =
                format!("peer {peer} is out of range: there are {} ranks", self.shared.ranks);
            return Err(Error::new(ErrorKind::RankOutOfRange, name, reason).about_ranks([peer]));
        }
        let lane = match end {
            End::Send => self.shared.lane(self.rank, peer),
            End::Recv => self.shared.lane(peer, self.rank),
        };
        Ok(Post { lane, end, peer, half, number: 0 })
    }

    /// Moves what can be moved of the messages that were posted last.
    pub(crate) fn poll_messages(
        &self,
        seat: &Seat,
        fresh: bool,
        since: &mut Option<Instant>,
    ) -> Result<Look> {
        let mut over = true;
        // One post at a time is copied out: no lock is held while memory moves.
        let nth = |at: usize| read(&seat.posts).get(at).cloned();
        for post in (0..).map_while(nth) {
            loop {
                let mut lane = lock(&post.lane);
                // After a failure no piece is taken any more; those that were end first.
                let found = lane.look(post.number, self.shared.failure().is_none());
                let news = lane.take_news();
                drop(lane);
                if news {
                    progress::announce();
                }
                match found {
                    Found::Over => break,
                    Found::Waiting => {
                        over = false;
                        break;
                    }
                    Found::Piece(piece) => {
                        // SAFETY: both ends were posted under the driver's contract, of one size, and
                        // neither is told that the message has ended before `end_piece`; sender and
                        // receiver ranges don't overlap: they are disjoint buffers of two ranks, or
                        // checked by the planner within one rank.
                        unsafe { std::ptr::copy_nonoverlapping(piece.from, piece.to, piece.bytes) };
                        let ended = lock(&post.lane).end_piece(piece.bytes);
                        if ended || self.shared.failure().is_some() {
                            progress::announce();
                        } else if self.is_late(since) {
                            return Ok(Look::Late);
                        } else if fresh {
                            progress::summon();
                            return Ok(Look::Busy);
                        }
                    }
                    Found::Disagree(send, recv) => {
                        let (from, to) = match post.end {
                            End::Send => (self.rank, post.peer),
                            End::Recv => (post.peer, self.rank),
                        };
                        self.shared.fail(trouble::disagree(&self.shared, from, to, send, recv));
                    }
                }
            }
        }
        if over {
            return Ok(Look::Over);
        }
        if self.shared.failure().is_some() {
            let inside = read(&seat.posts).iter().any(|post| lock(&post.lane).is_busy());
            return if inside { Ok(Look::Busy) } else { Err(self.why()) };
        }
        Ok(Look::Waits)
    }
}

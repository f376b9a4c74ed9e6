//! Messages from one rank to another: matched in order, moved in pieces by whoever looks.

use std::collections::VecDeque;

use aether_core::DType;

use crate::resource::HostRange;

/// The messages of one ordered pair of ranks.
#[derive(Default)]
pub(crate) struct Lane {
    sends: VecDeque<Half>,
    recvs: VecDeque<Half>,
    posted: [u64; 2],
    moving: Option<Moving>,
    ended: u64,
    /// Empty messages ended while somebody looked for something to move.
    news: bool,
}

/// Which end of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    Send,
    Recv,
}

/// One end of a message.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Half {
    pub(crate) memory: HostRange,
    pub(crate) dtype: DType,
    pub(crate) count: u64,
}

/// The message that is being moved: the front of both queues.
struct Moving {
    from: HostRange,
    to: HostRange,
    taken: usize,
    moved: usize,
}

/// A piece to move, taken under the lane's lock and moved without it.
pub(crate) struct Piece {
    pub(crate) from: *const u8,
    pub(crate) to: *mut u8,
    pub(crate) bytes: usize,
}

/// What a thread that looks at a lane finds.
pub(crate) enum Found {
    /// The message has ended.
    Over,
    /// A piece is now the caller's: move it, then say so by [`Lane::end_piece`].
    Piece(Piece),
    /// The other end has not come, all pieces are taken, or none may be.
    Waiting,
    /// The ends at the front don't agree.
    Disagree(Half, Half),
}

/// How much is moved at a time: what a deadline waits for at most.
const PIECE: usize = 1 << 20;

impl Lane {
    /// Posts one end of the next message, and gives its number, from 1.
    pub(crate) fn post(&mut self, end: End, half: Half) -> u64 {
        let (queue, posted) = match end {
            End::Send => (&mut self.sends, &mut self.posted[0]),
            End::Recv => (&mut self.recvs, &mut self.posted[1]),
        };
        queue.push_back(half);
        *posted += 1;
        *posted
    }

    /// Whether the other end of message `number` was posted.
    pub(crate) fn is_met(&self, end: End, number: u64) -> bool {
        let other = match end {
            End::Send => self.posted[1],
            End::Recv => self.posted[0],
        };
        other >= number
    }

    /// Whether a thread is inside the memory of a message.
    pub(crate) fn is_busy(&self) -> bool {
        self.moving.as_ref().is_some_and(|it| it.taken > it.moved)
    }

    /// Takes a piece of the front message if that is allowed, or says why there is none for message
    /// `number`.
    pub(crate) fn look(&mut self, number: u64, may_take: bool) -> Found {
        loop {
            if self.ended >= number {
                return Found::Over;
            }
            if !may_take {
                return Found::Waiting;
            }
            if let Some(moving) = &mut self.moving {
                return moving.take();
            }
            let (Some(&send), Some(&recv)) = (self.sends.front(), self.recvs.front()) else {
                return Found::Waiting;
            };
            if (send.dtype, send.count) != (recv.dtype, recv.count) {
                return Found::Disagree(send, recv);
            }
            self.moving = Some(Moving { from: send.memory, to: recv.memory, taken: 0, moved: 0 });
            if send.memory.bytes == 0 {
                self.end_message();
                self.news = true;
            }
        }
    }

    /// Whether messages have ended by [`Lane::look`] alone, which nobody has been told of.
    pub(crate) fn take_news(&mut self) -> bool {
        std::mem::take(&mut self.news)
    }

    /// A piece has been moved. True if its message has ended.
    pub(crate) fn end_piece(&mut self, bytes: usize) -> bool {
        let Some(moving) = &mut self.moving else { return false };
        moving.moved += bytes;
        if moving.moved < moving.from.bytes {
            return false;
        }
        self.end_message();
        true
    }

    fn end_message(&mut self) {
        self.moving = None;
        self.sends.pop_front();
        self.recvs.pop_front();
        self.ended += 1;
    }
}

impl Moving {
    fn take(&mut self) -> Found {
        let bytes = PIECE.min(self.from.bytes - self.taken);
        if bytes == 0 {
            return Found::Waiting;
        }
        let (from, to) = (self.from.address.add(self.taken), self.to.address.add(self.taken));
        self.taken += bytes;
        Found::Piece(Piece { from: from.as_ptr().cast_const(), to: to.as_ptr(), bytes })
    }
}

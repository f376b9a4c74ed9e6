//! What goes over the socket between a proxy and its worker, as bytes.

use std::io::{self, Read, Write};

use aether_collective::GroupConfig;
use aether_core::{DType, Error};

use super::sheet::{Reader, Sheet, receive, torn};
use crate::collectives::operation::Operation;

/// What a proxy asks of its worker. Every question but a call has one [`Answer`], in order; a call has one
/// when it has ended.
#[derive(Debug)]
pub(super) struct Ask {
    /// Which of the worker's members is meant.
    pub(super) member: u64,
    pub(super) what: What,
}

#[derive(Debug)]
pub(super) enum What {
    /// Join the group that meets in this directory.
    Join { place: String, rank: usize, ranks: usize, device: u32, config: GroupConfig },
    /// Make a call.
    Call(Call),
    /// Say whether the group has failed.
    Failure,
    /// Break the group.
    Abort(Error),
    /// No call follows.
    Finish,
    /// Drop the member, by a thread that unwinds if it is so.
    Leave { panicking: bool },
}

/// One call of a rank, with what it reads.
#[derive(Debug)]
pub(super) enum Call {
    Collective {
        operation: Operation,
        dtype: DType,
        lies: Lies,
        src: Option<Memory>,
        dst: Option<Memory>,
    },
    Barrier,
    Batch(Vec<Message>),
}

/// One end of a message.
#[derive(Debug)]
pub(super) struct Message {
    pub(super) sends: bool,
    pub(super) peer: usize,
    pub(super) dtype: DType,
    pub(super) memory: Memory,
}

/// How source and destination of one rank lie, as their pointers say.
#[derive(Clone, Copy, Debug)]
pub(super) enum Lies {
    Apart,
    /// The destination begins so many bytes into the source.
    DestinationInside(usize),
    /// The source begins so many bytes into the destination.
    SourceInside(usize),
}

/// A range of a rank's memory.
#[derive(Debug)]
pub(super) struct Memory {
    /// How far off the alignment of a chunk it begins, in bytes.
    pub(super) skew: usize,
    pub(super) bytes: usize,
    /// What it holds, if it is read.
    pub(super) held: Vec<u8>,
}

/// What a worker says.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) member: u64,
    /// Whether it is about the member's call, and not a question.
    pub(super) ends: bool,
    pub(super) outcome: Result<(), Error>,
    /// The worker's process.
    pub(super) process: u32,
    /// What the call wrote, by destination.
    pub(super) written: Vec<Vec<u8>>,
}

impl Ask {
    pub(super) fn send(&self, to: &mut impl Write) -> io::Result<()> {
        let mut sheet = Sheet::default();
        sheet.number(self.member);
        match &self.what {
            What::Join { place, rank, ranks, device, config } => sheet
                .number(0)
                .bytes(place.as_bytes())
                .size(*rank)
                .size(*ranks)
                .number(u64::from(*device))
                .duration(config.join_deadline)
                .duration(config.deadline)
                .number(u64::from(config.checked))
                .option(config.name.as_deref()),
            What::Call(call) => sheet.number(1).call(call),
            What::Failure => sheet.number(2),
            What::Abort(why) => sheet.number(3).error(why),
            What::Finish => sheet.number(4),
            What::Leave { panicking } => sheet.number(5).number(u64::from(*panicking)),
        };
        sheet.send(to)
    }

    pub(super) fn receive(from: &mut impl Read) -> io::Result<Self> {
        let sheet = receive(from)?;
        let mut it = Reader(&sheet);
        let member = it.number()?;
        let what = match it.number()? {
            0 => What::Join {
                place: it.text()?,
                rank: it.size()?,
                ranks: it.size()?,
                device: u32::try_from(it.number()?).map_err(|_| torn())?,
                config: {
                    let (join_deadline, deadline) = (it.duration()?, it.duration()?);
                    let config = GroupConfig::default().with_deadline(deadline);
                    let config = config.with_join_deadline(join_deadline).with_checked(it.flag()?);
                    match it.option()? {
                        Some(name) => config.named(name),
                        None => config,
                    }
                },
            },
            1 => What::Call(it.call()?),
            2 => What::Failure,
            3 => What::Abort(it.error()?),
            4 => What::Finish,
            5 => What::Leave { panicking: it.flag()? },
            _ => return Err(torn()),
        };
        Ok(Self { member, what })
    }
}

impl Answer {
    pub(super) fn send(&self, to: &mut impl Write) -> io::Result<()> {
        let mut sheet = Sheet::default();
        sheet.number(self.member).number(u64::from(self.ends)).number(u64::from(self.process));
        match &self.outcome {
            Ok(()) => sheet.number(0),
            Err(error) => sheet.number(1).error(error),
        };
        sheet.lists(&self.written).send(to)
    }

    pub(super) fn receive(from: &mut impl Read) -> io::Result<Self> {
        let sheet = receive(from)?;
        let mut it = Reader(&sheet);
        Ok(Self {
            member: it.number()?,
            ends: it.flag()?,
            process: u32::try_from(it.number()?).map_err(|_| torn())?,
            outcome: if it.flag()? { Err(it.error()?) } else { Ok(()) },
            written: it.list(Reader::bytes)?,
        })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use std::time::Duration;

    use aether_collective::ReduceOp;

    use super::*;
    use crate::processes::sheet::KINDS;

    fn memory(bytes: usize) -> Memory {
        Memory { skew: 12, bytes, held: (0..bytes).map(|it| it as u8).collect() }
    }

    fn crosses(what: What) {
        let (ask, mut bytes) = (Ask { member: 7, what }, Vec::new());
        ask.send(&mut bytes).unwrap();
        let found = Ask::receive(&mut bytes.as_slice()).unwrap();
        assert_eq!(format!("{found:?}"), format!("{ask:?}"));
        // A part of a question is none.
        for short in 0..bytes.len() {
            assert!(Ask::receive(&mut &bytes[..short]).is_err(), "{ask:?}: {short}");
        }
    }

    #[test]
    fn questions_cross_as_they_are() {
        let config = GroupConfig::default().with_deadline(Duration::from_millis(1250));
        let config = config.with_join_deadline(Duration::from_secs(9)).with_checked(true);
        for config in [config.clone(), config.with_checked(false).named("a group")] {
            let place = "/a/place".to_owned();
            crosses(What::Join { place, rank: 2, ranks: 5, device: 77, config });
        }
        let operations = Operation::alike(ReduceOp::Max, 3).into_iter();
        for operation in operations.chain(Operation::vector(ReduceOp::Mean, 3)) {
            for lies in [Lies::Apart, Lies::DestinationInside(8), Lies::SourceInside(24)] {
                let (src, dst) = (Some(memory(16)), Some(Memory { held: vec![], ..memory(40) }));
                let operation = operation.clone();
                let dtype = DType::I32;
                crosses(What::Call(Call::Collective { operation, dtype, lies, src, dst }));
            }
        }
        let messages = [true, false].map(|sends| Message {
            sends,
            peer: 4,
            dtype: DType::Bool,
            memory: memory(3),
        });
        crosses(What::Call(Call::Batch(messages.into())));
        crosses(What::Call(Call::Barrier));
        crosses(What::Failure);
        crosses(What::Abort(Error::new(KINDS[2], "go around", "a circle").about_ranks([1, 2])));
        crosses(What::Finish);
        crosses(What::Leave { panicking: true });
    }

    #[test]
    fn answers_cross_with_everything_that_an_error_says() {
        for kind in KINDS {
            let error = Error::new(kind, "try", "it can't be").about_ranks([3, 0]).of_bytes(12);
            let outcome = Err(error.on("a place"));
            let written = vec![vec![1, 2, 3], vec![]];
            let answer = Answer { member: 9, ends: true, outcome, process: 41, written };
            let mut bytes = Vec::new();
            answer.send(&mut bytes).unwrap();
            let found = Answer::receive(&mut bytes.as_slice()).unwrap();
            assert_eq!((found.member, found.ends, found.process), (9, true, 41));
            assert_eq!(found.written, answer.written);
            let (found, error) = (found.outcome.unwrap_err(), answer.outcome.unwrap_err());
            assert_eq!(format!("{found:?}"), format!("{error:?}"));
            assert_eq!(found.ranks(), [3, 0]);
        }
    }
}

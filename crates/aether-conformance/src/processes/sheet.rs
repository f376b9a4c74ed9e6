//! The bytes of what goes over the socket: numbers of eight bytes, and lists with their length before them.

use std::io::{self, Read, Write};
use std::time::Duration;

use aether_collective::ReduceOp;
use aether_core::{DType, Error, ErrorKind};

use super::wire::{Call, Lies, Memory, Message};
use crate::collectives::operation::Operation;

/// The bytes of one question or answer.
#[derive(Default)]
pub(super) struct Sheet(Vec<u8>);

impl Sheet {
    pub(super) fn number(&mut self, it: u64) -> &mut Self {
        self.0.extend_from_slice(&it.to_le_bytes());
        self
    }

    pub(super) fn size(&mut self, it: usize) -> &mut Self {
        self.number(it as u64)
    }

    pub(super) fn bytes(&mut self, it: &[u8]) -> &mut Self {
        self.size(it.len()).0.extend_from_slice(it);
        self
    }

    pub(super) fn numbers(&mut self, it: impl ExactSizeIterator<Item = u64>) -> &mut Self {
        self.size(it.len());
        it.fold(self, Self::number)
    }

    pub(super) fn lists(&mut self, it: &[Vec<u8>]) -> &mut Self {
        self.size(it.len());
        it.iter().fold(self, |to, it| to.bytes(it))
    }

    pub(super) fn duration(&mut self, it: Duration) -> &mut Self {
        self.number(it.as_secs()).number(u64::from(it.subsec_nanos()))
    }

    pub(super) fn option(&mut self, it: Option<&str>) -> &mut Self {
        self.number(u64::from(it.is_some())).bytes(it.unwrap_or_default().as_bytes())
    }

    pub(super) fn dtype(&mut self, it: DType) -> &mut Self {
        self.size(place(&DType::ALL, it))
    }

    pub(super) fn op(&mut self, it: ReduceOp) -> &mut Self {
        self.size(place(&ReduceOp::ALL, it))
    }

    pub(super) fn error(&mut self, it: &Error) -> &mut Self {
        self.size(place(&KINDS, it.kind()))
            .bytes(it.attempted().as_bytes())
            .option(it.place())
            .number(u64::from(it.bytes().is_some()))
            .number(it.bytes().unwrap_or(0))
            .bytes(it.reason().as_bytes())
            .numbers(it.ranks().iter().map(|it| *it as u64))
    }

    pub(super) fn operation(&mut self, it: &Operation) -> &mut Self {
        match it {
            Operation::AllGather => self.number(0),
            Operation::AllGatherV(counts) => self.number(1).numbers(counts.iter().copied()),
            Operation::AllReduce(op) => self.number(2).op(*op),
            Operation::AllToAll => self.number(3),
            Operation::AllToAllV(counts) => self.number(4).numbers(counts.iter().copied()),
            Operation::Broadcast(root) => self.number(5).size(*root),
            Operation::Gather(root) => self.number(6).size(*root),
            Operation::Reduce(op, root) => self.number(7).op(*op).size(*root),
            Operation::ReduceScatter(op) => self.number(8).op(*op),
            Operation::ReduceScatterV(counts, op) => {
                self.number(9).numbers(counts.iter().copied()).op(*op)
            }
            Operation::Scatter(root) => self.number(10).size(*root),
        }
    }

    pub(super) fn memory(&mut self, it: &Memory) -> &mut Self {
        self.size(it.skew).size(it.bytes).bytes(&it.held)
    }

    pub(super) fn maybe(&mut self, it: Option<&Memory>) -> &mut Self {
        match it {
            None => self.number(0),
            Some(it) => self.number(1).memory(it),
        }
    }

    pub(super) fn call(&mut self, it: &Call) -> &mut Self {
        match it {
            Call::Barrier => self.number(0),
            Call::Collective { operation, dtype, lies, src, dst } => {
                self.number(1).operation(operation).dtype(*dtype);
                match *lies {
                    Lies::Apart => self.number(0).size(0),
                    Lies::DestinationInside(at) => self.number(1).size(at),
                    Lies::SourceInside(at) => self.number(2).size(at),
                };
                self.maybe(src.as_ref()).maybe(dst.as_ref())
            }
            Call::Batch(messages) => {
                self.number(2).size(messages.len());
                for it in messages {
                    self.number(u64::from(it.sends))
                        .size(it.peer)
                        .dtype(it.dtype)
                        .memory(&it.memory);
                }
                self
            }
        }
    }

    pub(super) fn send(&self, to: &mut impl Write) -> io::Result<()> {
        to.write_all(&(self.0.len() as u64).to_le_bytes())?;
        to.write_all(&self.0)
    }
}

/// What is left to read of a sheet.
pub(super) struct Reader<'a>(pub(super) &'a [u8]);

/// What is wrong with bytes that are no question and no answer.
pub(super) fn torn() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "a message between suite and worker makes no sense")
}

impl Reader<'_> {
    pub(super) fn number(&mut self) -> io::Result<u64> {
        let (first, rest) = self.0.split_first_chunk().ok_or_else(torn)?;
        self.0 = rest;
        Ok(u64::from_le_bytes(*first))
    }

    pub(super) fn size(&mut self) -> io::Result<usize> {
        usize::try_from(self.number()?).map_err(|_| torn())
    }

    pub(super) fn flag(&mut self) -> io::Result<bool> {
        Ok(self.number()? != 0)
    }

    pub(super) fn bytes(&mut self) -> io::Result<Vec<u8>> {
        let size = self.size()?;
        let (first, rest) = self.0.split_at_checked(size).ok_or_else(torn)?;
        self.0 = rest;
        Ok(first.to_vec())
    }

    pub(super) fn text(&mut self) -> io::Result<String> {
        String::from_utf8(self.bytes()?).map_err(|_| torn())
    }

    pub(super) fn list<T>(
        &mut self,
        mut read: impl FnMut(&mut Self) -> io::Result<T>,
    ) -> io::Result<Vec<T>> {
        let size = self.size()?;
        (0..size).map(|_| read(self)).collect()
    }

    pub(super) fn one_of<T: Copy>(&mut self, all: &[T]) -> io::Result<T> {
        let at = self.size()?;
        all.get(at).copied().ok_or_else(torn)
    }

    pub(super) fn duration(&mut self) -> io::Result<Duration> {
        let (seconds, nanos) = (self.number()?, self.number()?);
        Ok(Duration::new(seconds, u32::try_from(nanos).map_err(|_| torn())?))
    }

    pub(super) fn option(&mut self) -> io::Result<Option<String>> {
        let there = self.flag()?;
        Ok(Some(self.text()?).filter(|_| there))
    }

    pub(super) fn error(&mut self) -> io::Result<Error> {
        let kind = self.one_of(&KINDS)?;
        let (attempted, place) = (self.text()?, self.option()?);
        let bytes = (self.flag()?, self.number()?);
        let (reason, ranks) = (self.text()?, self.list(Self::size)?);
        let mut error = Error::new(kind, attempted, reason).about_ranks(ranks);
        if let Some(place) = place {
            error = error.on(place);
        }
        Ok(if bytes.0 { error.of_bytes(bytes.1) } else { error })
    }

    pub(super) fn op(&mut self) -> io::Result<ReduceOp> {
        self.one_of(&ReduceOp::ALL)
    }

    pub(super) fn operation(&mut self) -> io::Result<Operation> {
        Ok(match self.number()? {
            0 => Operation::AllGather,
            1 => Operation::AllGatherV(self.list(Self::number)?),
            2 => Operation::AllReduce(self.op()?),
            3 => Operation::AllToAll,
            4 => Operation::AllToAllV(self.list(Self::number)?),
            5 => Operation::Broadcast(self.size()?),
            6 => Operation::Gather(self.size()?),
            7 => Operation::Reduce(self.op()?, self.size()?),
            8 => Operation::ReduceScatter(self.op()?),
            9 => Operation::ReduceScatterV(self.list(Self::number)?, self.op()?),
            10 => Operation::Scatter(self.size()?),
            _ => return Err(torn()),
        })
    }

    pub(super) fn memory(&mut self) -> io::Result<Memory> {
        Ok(Memory { skew: self.size()?, bytes: self.size()?, held: self.bytes()? })
    }

    pub(super) fn maybe(&mut self) -> io::Result<Option<Memory>> {
        if self.flag()? { self.memory().map(Some) } else { Ok(None) }
    }

    pub(super) fn call(&mut self) -> io::Result<Call> {
        Ok(match self.number()? {
            0 => Call::Barrier,
            1 => Call::Collective {
                operation: self.operation()?,
                dtype: self.one_of(&DType::ALL)?,
                lies: match (self.number()?, self.size()?) {
                    (0, _) => Lies::Apart,
                    (1, at) => Lies::DestinationInside(at),
                    (2, at) => Lies::SourceInside(at),
                    _ => return Err(torn()),
                },
                src: self.maybe()?,
                dst: self.maybe()?,
            },
            2 => Call::Batch(self.list(|it| {
                Ok(Message {
                    sends: it.flag()?,
                    peer: it.size()?,
                    dtype: it.one_of(&DType::ALL)?,
                    memory: it.memory()?,
                })
            })?),
            _ => return Err(torn()),
        })
    }
}

/// The next sheet.
pub(super) fn receive(from: &mut impl Read) -> io::Result<Vec<u8>> {
    let mut size = [0; 8];
    from.read_exact(&mut size)?;
    let mut sheet = Vec::new();
    let size = u64::from_le_bytes(size);
    from.take(size).read_to_end(&mut sheet)?;
    if sheet.len() as u64 == size { Ok(sheet) } else { Err(io::ErrorKind::UnexpectedEof.into()) }
}

/// Where something stands in the list of its kind; beyond the list if it isn't there.
fn place<T: PartialEq>(all: &[T], it: T) -> usize {
    all.iter().position(|one| *one == it).unwrap_or(all.len())
}

/// Every kind of error.
pub(super) const KINDS: [ErrorKind; 33] = {
    use ErrorKind::*;
    [
        Backend,
        BorrowedMemory,
        Cycle,
        DTypeMismatch,
        DeadlineExceeded,
        Dlpack,
        DuplicateDevice,
        Empty,
        Exported,
        GroupBroken,
        IllegalPair,
        InvalidArgument,
        Io,
        LibraryNotFound,
        Misaligned,
        NotContiguous,
        NotMember,
        OutOfBounds,
        OutOfMemory,
        Overflow,
        Overlap,
        Panicked,
        Parse,
        PartialElement,
        RankDied,
        RankMismatch,
        RankOutOfRange,
        ReadOnly,
        ReplicasDiffer,
        SizeMismatch,
        UnknownDevice,
        Unsupported,
        WrongDevice,
    ]
};

//! What one rank does for a case, whether it is a thread or a process.

use aether::{Device, Error, ErrorKind, Group, Host, Message, Request};

use super::Op;
use super::case::Case;
use super::driver::Plan;
use super::measure::{Times, measure};
use super::memory::Buffer;
use super::pattern::wrong;
use crate::cli::MemoryName;

/// A rank, and its memory.
pub(super) struct Rank<'a> {
    case: &'a Case,
    rank: usize,
    /// Absent where the source is a part of `memory`.
    source: Option<Buffer>,
    /// The destination, and all around it if the operation is in place.
    memory: Buffer,
}

impl<'a> Rank<'a> {
    /// Allocates what the rank needs for the case.
    pub(super) fn new(
        case: &'a Case,
        rank: usize,
        device: &Device,
        memory: MemoryName,
    ) -> aether::Result<Self> {
        let buffer = |bytes| Buffer::new(device, memory, bytes);
        let in_place = case.in_place || case.op == Op::Broadcast;
        let (source, memory) = match in_place {
            true => (None, buffer(case.layout.bytes)?),
            false => (Some(buffer(case.layout.source)?), buffer(case.layout.destination)?),
        };
        Ok(Self { case, rank, source, memory })
    }

    /// Times the case and checks it.
    pub(super) fn run(
        &mut self,
        group: &mut Group<Host>,
        plan: Plan,
    ) -> aether::Result<(Times, Option<u64>)> {
        // Memory that nobody ever wrote may be one page of zeros, however large it looks.
        self.fill(0)?;
        self.memory.slice_mut()?;
        // The clock is around blocking calls of the group and nothing else.
        let times = measure(
            plan,
            &mut (&mut *self, &mut *group),
            |(_, group)| group.barrier(),
            |(rank, group)| rank.carry_out(group),
        )?;
        let mut found = None;
        let mut expected = vec![0; self.case.layout.destination];
        for run in 1..=u64::from(plan.checks) {
            self.fill(run)?;
            self.carry_out(group)?;
            self.case.fill_expected(run, self.rank, &mut expected);
            *found.get_or_insert(0) +=
                wrong(&expected, self.destination()?, self.case.dtype.size());
        }
        Ok((times, found))
    }

    /// Writes this rank's source.
    fn fill(&mut self, run: u64) -> aether::Result<()> {
        let bytes = match &mut self.source {
            Some(source) => source.slice_mut()?,
            None => {
                let start = self.case.source_offset(self.rank);
                &mut self.memory.slice_mut()?[start..][..self.case.layout.source]
            }
        };
        self.case.fill_source(run, self.rank, bytes);
        Ok(())
    }

    fn destination(&self) -> aether::Result<&[u8]> {
        let start = if self.case.in_place { self.case.destination_offset(self.rank) } else { 0 };
        Ok(&self.memory.slice()?[start..][..self.case.layout.destination])
    }

    /// One operation.
    fn carry_out(&mut self, group: &mut Group<Host>) -> aether::Result<()> {
        let Case { op, dtype, reduction, root, ranks, .. } = *self.case;
        let src = self.source.as_ref().map(|it| it.span(dtype)).transpose()?;
        let mut dst = self.memory.span_mut(dtype)?;
        let request = match (op, src) {
            (Op::AllGather, src) => Request::AllGather { src, dst },
            (Op::AllReduce, src) => Request::AllReduce { src, dst, op: reduction },
            (Op::ReduceScatter, Some(src)) => Request::ReduceScatter { src, dst, op: reduction },
            (Op::ReduceScatter, None) => {
                Request::ReduceScatterInPlace { buffer: dst, op: reduction }
            }
            // The root's destination is its source.
            (Op::Broadcast, src) => Request::Broadcast { src, dst, root },
            (Op::AllToAll, Some(src)) => Request::AllToAll { src, dst },
            (Op::SendRecv, Some(src)) => {
                let send = Message::Send { src, peer: (self.rank + 1) % ranks };
                let recv = Message::Recv { dst, peer: (self.rank + ranks - 1) % ranks };
                Request::Batch([send, recv].into_iter().collect())
            }
            (Op::Memcpy, Some(src)) => return aether::copy(&mut dst, &src),
            (Op::AllToAll | Op::SendRecv | Op::Memcpy, None) | (Op::Replicate | Op::Scatter, _) => {
                let reason = format!("{op} has no such form in a group");
                return Err(Error::new(ErrorKind::Unsupported, "bench", reason));
            }
        };
        group.run(request)
    }
}

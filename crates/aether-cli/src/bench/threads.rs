//! The host driver in threads mode: one thread a rank, each a member of one group on a host device of
//! its own. Sources and destinations are chunks of that device.

use std::sync::{Mutex, PoisonError};

use aether::{Chunk, Device, Error, ErrorKind, Group, GroupConfig, Host, Message, Request};

use super::Op;
use super::case::Case;
use super::driver::{Driver, Outcome, Plan};
use super::measure::{Times, measure, outcome};
use super::movers;
use super::pattern::wrong;
use crate::failure::{Failure, Result};
use crate::group::own_group;

/// The ranks; the threads live as long as a case.
pub(super) struct Threads {
    devices: Vec<Device>,
    config: GroupConfig,
}

impl Threads {
    pub(super) fn new(devices: Vec<Device>) -> Self {
        Self { devices, config: own_group("bench") }
    }
}

impl Driver for Threads {
    fn run(&mut self, case: &Case, plan: Plan) -> Result<Outcome> {
        if matches!(case.op, Op::Replicate | Op::Scatter) {
            return Ok(movers::run(&self.devices, case, plan)?);
        }
        let Self { devices, config } = &*self;
        // Ranks start once all have a thread: they would wait for one that never comes.
        let gate = Mutex::new(false);
        let ranks: Vec<_> = std::thread::scope(|scope| {
            let mut open = gate.lock().unwrap_or_else(PoisonError::into_inner);
            let threads: std::io::Result<Vec<_>> = devices
                .iter()
                .enumerate()
                .map(|(rank, device)| {
                    let gate = &gate;
                    std::thread::Builder::new().spawn_scoped(scope, move || {
                        if !*gate.lock().unwrap_or_else(PoisonError::into_inner) {
                            let reason = "another rank has no thread";
                            return Err(Error::new(ErrorKind::GroupBroken, "bench", reason));
                        }
                        let mut group = Group::<Host>::join_with(devices, device, config)?;
                        let done = Rank::new(case, rank, device)
                            .and_then(|mut it| it.run(&mut group, plan));
                        match &done {
                            // The others hear of it now, and not at the deadline.
                            Err(error) => group.abort(error),
                            Ok(_) => group.finish()?,
                        }
                        done
                    })
                })
                .collect();
            *open = threads.is_ok();
            drop(open);
            let threads = threads.map_err(|error| {
                let all = devices.len();
                Failure::new(format!("bench {}: start {all} threads: {error}", case.op))
            })?;
            Ok::<_, Failure>(threads.into_iter().map(std::thread::ScopedJoinHandle::join).collect())
        })?;
        let mut times = Vec::with_capacity(ranks.len());
        let mut failures = Vec::new();
        let mut found = None;
        for rank in ranks {
            match rank.map_err(|_| Failure::new(format!("bench {}: a rank panicked", case.op)))? {
                Ok((of_rank, wrong)) => {
                    times.push(of_rank);
                    found = wrong.map(|it| it + found.unwrap_or(0));
                }
                Err(error) => failures.push(error),
            }
        }
        // That the group is broken is what the others say of one rank's failure.
        failures.sort_by_key(|it| it.kind() == ErrorKind::GroupBroken);
        match failures.into_iter().next() {
            Some(error) => Err(error.into()),
            None => Ok(outcome(plan, &times, found)),
        }
    }
}

/// What one thread works on.
struct Rank<'a> {
    case: &'a Case,
    rank: usize,
    device: &'a Device,
    /// Absent where the source is a part of `memory`.
    source: Option<Chunk>,
    /// The destination, and all around it if the operation is in place.
    memory: Chunk,
}

impl<'a> Rank<'a> {
    fn new(case: &'a Case, rank: usize, device: &'a Device) -> aether::Result<Self> {
        let in_place = case.in_place || case.op == Op::Broadcast;
        let (source, memory) = match in_place {
            true => (None, Chunk::allocate(device, case.layout.bytes)?),
            false => (
                Some(Chunk::allocate(device, case.layout.source)?),
                Chunk::allocate(device, case.layout.destination)?,
            ),
        };
        Ok(Self { case, rank, device, source, memory })
    }

    /// Times the case and checks it.
    fn run(&mut self, group: &mut Group<Host>, plan: Plan) -> aether::Result<(Times, Option<u64>)> {
        // Memory that nobody ever wrote may be one page of zeros, however large it looks.
        self.fill(0)?;
        self.memory.slice_mut::<u8>()?;
        let group = std::cell::RefCell::new(group);
        let times = measure(
            plan,
            || group.borrow_mut().barrier(),
            || self.carry_out(&mut group.borrow_mut()),
        )?;
        let group = group.into_inner();
        let mut found = None;
        let mut expected = Chunk::allocate(self.device, self.case.layout.destination)?;
        for run in 1..=u64::from(plan.checks) {
            self.fill(run)?;
            self.carry_out(group)?;
            self.case.fill_expected(run, self.rank, expected.slice_mut()?);
            *found.get_or_insert(0) +=
                wrong(expected.slice()?, self.destination()?, self.case.dtype.size());
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
        let src = self.source.as_ref().map(|it| it.span_of(.., dtype)).transpose()?;
        let mut dst = self.memory.span_of_mut(.., dtype)?;
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

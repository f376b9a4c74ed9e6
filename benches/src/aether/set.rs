//! All ranks behind one caller.

use std::time::Instant;

use aether::{Device, GroupSet, Host, ReduceOp};

use crate::cell::{Cell, Op};
use crate::contender::{Contender, Took};
use crate::failure::Result;
use crate::memory::Memory;

/// A [`GroupSet`], called by this thread.
pub struct Set<'a> {
    memory: &'a Memory,
    members: GroupSet<Host>,
}

impl<'a> Set<'a> {
    /// The name in tables.
    pub const NAME: &'static str = "aether GroupSet";

    /// Over the devices whose chunks `memory` has.
    ///
    /// # Errors
    /// Those of joining.
    pub fn new(memory: &'a Memory, devices: &[Device]) -> Result<Self> {
        Ok(Self { memory, members: GroupSet::join_with(devices, &super::own_group())? })
    }
}

impl Contender for Set<'_> {
    fn name(&self) -> &str {
        Self::NAME
    }

    fn takes(&self, cell: &Cell) -> bool {
        cell.ranks == self.memory.ranks()
    }

    fn sample(&mut self, cell: &Cell, warmup: u32, iterations: u32) -> Result<Took> {
        let mut ranks = self.memory.all();
        let mut sources = Vec::with_capacity(ranks.len());
        let mut destinations = Vec::with_capacity(ranks.len());
        for (rank, buffers) in ranks.iter_mut().enumerate() {
            let buffers = &mut **buffers;
            if cell.op == Op::Broadcast && rank == 0 {
                destinations.push(buffers.source.view_mut::<f32, 1>([cell.given()])?);
                continue;
            }
            sources.push(buffers.source.view::<f32, 1>([cell.given()])?);
            destinations.push(buffers.destination.view_mut::<f32, 1>([cell.got()])?);
        }
        let members = &mut self.members;
        let mut all = |times: u32| {
            (0..times).try_for_each(|_| match cell.op {
                Op::AllReduce => members.all_reduce(&sources, &mut destinations, ReduceOp::Sum),
                Op::AllGather => members.all_gather(&sources, &mut destinations),
                Op::ReduceScatter => {
                    members.reduce_scatter(&sources, &mut destinations, ReduceOp::Sum)
                }
                Op::Broadcast => members.broadcast_in_place(&mut destinations, 0),
                Op::AllToAll => members.all_to_all(&sources, &mut destinations),
            })
        };
        all(warmup)?;
        let begun = Instant::now();
        all(iterations)?;
        Took::between(&[(begun, Instant::now())], iterations)
    }
}

//! The host driver in threads mode: one thread a rank, each a member of one group on a host device of
//! its own.

use std::sync::{Mutex, PoisonError};

use aether::{Device, Error, ErrorKind, Group, GroupConfig, Host};

use super::Op;
use super::case::Case;
use super::driver::{Driver, Outcome, Plan};
use super::measure::outcome;
use super::movers;
use super::rank::Rank;
use crate::cli::MemoryName;
use crate::failure::{Failure, Result};
use crate::group::own_group;

/// The ranks; the threads live as long as a case.
pub(super) struct Threads {
    devices: Vec<Device>,
    config: GroupConfig,
    memory: MemoryName,
}

impl Threads {
    pub(super) fn new(devices: Vec<Device>, memory: MemoryName) -> Self {
        Self { devices, config: own_group("bench"), memory }
    }
}

impl Driver for Threads {
    fn run(&mut self, case: &Case, plan: Plan) -> Result<Outcome> {
        if matches!(case.op, Op::Replicate | Op::Scatter) {
            return Ok(movers::run(&self.devices, case, plan)?);
        }
        let Self { devices, config, memory } = &*self;
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
                        let done = Rank::new(case, rank, device, *memory)
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

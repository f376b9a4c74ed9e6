//! Ranks that one thread plays in plain memory, one after the other: what the operations mean,
//! without any device.

use std::time::{Duration, Instant};

use super::case::Case;
use super::driver::{Driver, Outcome, Plan};
use super::pattern::{elements, wrong};
use super::{Op, number};
use crate::failure::{Failure, Result};

/// The driver; it has no state.
pub(super) struct Plain;

/// The memory of all ranks. In place, a rank's memory is the one in `shared`, and the others hold
/// what an operation reads from there and writes to there.
struct Buffers {
    sources: Vec<Vec<u8>>,
    destinations: Vec<Vec<u8>>,
    shared: Vec<Vec<u8>>,
}

impl Driver for Plain {
    fn run(&mut self, case: &Case, plan: Plan) -> Result<Outcome> {
        let all = |bytes| (0..case.ranks).map(|_| zeroed(bytes)).collect::<Result<Vec<_>>>();
        let mut buffers = Buffers {
            sources: all(case.layout.source)?,
            destinations: all(case.layout.destination)?,
            shared: if case.in_place { all(case.layout.bytes)? } else { Vec::new() },
        };
        for _ in 0..plan.warmup {
            carry_out(case, &mut buffers);
        }
        let mut outcome = Outcome { iterations: plan.iterations, ..Outcome::default() };
        for _ in 0..plan.rounds {
            let mut total = Duration::ZERO;
            for _ in 0..plan.iterations {
                let start = Instant::now();
                carry_out(case, &mut buffers);
                let took = start.elapsed();
                total += took;
                outcome.each.push(took);
            }
            outcome.rounds.push(vec![total; case.ranks]);
        }
        let mut expected = zeroed(case.layout.destination)?;
        for run in 0..u64::from(plan.checks) {
            for rank in 0..case.ranks {
                case.fill_source(run, rank, buffers.source(case, rank));
            }
            carry_out(case, &mut buffers);
            for rank in 0..case.ranks {
                case.fill_expected(run, rank, &mut expected);
                let found = wrong(&expected, buffers.destination(case, rank), case.dtype.size());
                *outcome.wrong.get_or_insert(0) += found;
            }
        }
        Ok(outcome)
    }
}

impl Buffers {
    fn source(&mut self, case: &Case, rank: usize) -> &mut [u8] {
        match self.shared.get_mut(rank) {
            Some(shared) => &mut shared[case.source_offset(rank)..][..case.layout.source],
            None => &mut self.sources[rank],
        }
    }

    fn destination(&mut self, case: &Case, rank: usize) -> &mut [u8] {
        match self.shared.get_mut(rank) {
            Some(shared) => &mut shared[case.destination_offset(rank)..][..case.layout.destination],
            None => &mut self.destinations[rank],
        }
    }
}

fn zeroed(bytes: usize) -> Result<Vec<u8>> {
    let mut out = Vec::new();
    out.try_reserve_exact(bytes)
        .map_err(|it| Failure::new(format!("bench: allocate {bytes} bytes: {it}")))?;
    out.resize(bytes, 0);
    Ok(out)
}

fn carry_out(case: &Case, buffers: &mut Buffers) {
    let Buffers { sources, destinations, shared } = buffers;
    for (rank, shared) in shared.iter().enumerate() {
        sources[rank].copy_from_slice(&shared[case.source_offset(rank)..][..case.layout.source]);
    }
    let ranks = case.ranks;
    for (rank, destination) in destinations.iter_mut().enumerate() {
        let chunk = destination.len();
        match case.op {
            Op::AllReduce => reduce(case, sources, 0, destination),
            Op::ReduceScatter => reduce(case, sources, rank * chunk, destination),
            Op::AllGather => destination.copy_from_slice(&sources.concat()),
            Op::AllToAll => {
                let part = chunk / ranks;
                for (from, source) in sources.iter().enumerate() {
                    destination[from * part..][..part]
                        .copy_from_slice(&source[rank * part..][..part]);
                }
            }
            Op::Broadcast | Op::Replicate => destination.copy_from_slice(&sources[case.root]),
            Op::Scatter => {
                destination.copy_from_slice(&sources[case.root][rank * chunk..][..chunk]);
            }
            Op::SendRecv => destination.copy_from_slice(&sources[(rank + ranks - 1) % ranks]),
            Op::Memcpy => destination.copy_from_slice(&sources[rank]),
        }
    }
    for (rank, shared) in shared.iter_mut().enumerate() {
        shared[case.destination_offset(rank)..][..case.layout.destination]
            .copy_from_slice(&destinations[rank]);
    }
}

fn reduce(case: &Case, sources: &[Vec<u8>], offset: usize, destination: &mut [u8]) {
    let size = case.dtype.size();
    let parts = sources.iter().map(|it| &it[offset..][..destination.len()]);
    let mut parts: Vec<_> = parts.map(|it| elements(it, size)).collect();
    let mut column = Vec::with_capacity(parts.len());
    for element in destination.chunks_exact_mut(size) {
        column.clear();
        column.extend(parts.iter_mut().filter_map(Iterator::next));
        let bits = number::reduce(case.dtype, case.reduction, &column).to_le_bytes();
        element.copy_from_slice(&bits[..size]);
    }
}

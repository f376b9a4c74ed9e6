//! What this machine's memory allows: every rank's input is read once and every rank's output is written
//! once, by as many threads as can run, which don't speak to each other while the clock runs.
//!
//! It is no collective, since nobody waits for anybody's input, and it is what one could do at best. The
//! better of ordinary and non-temporal stores counts.

mod kernel;
mod share;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

pub use kernel::Stores;
use share::{Piece, shares};

use crate::cell::Cell;
use crate::contender::{Contender, Took};
use crate::failure::{Failure, Result};
use crate::memory::Memory;

/// The limit, with one kind of stores.
pub struct Limit<'a> {
    memory: &'a Memory,
    threads: usize,
    stores: Stores,
}

impl<'a> Limit<'a> {
    /// Over the ranks of `memory`, by at most `cores` threads.
    pub fn new(memory: &'a Memory, cores: usize, stores: Stores) -> Self {
        Self { memory, threads: memory.ranks().min(cores), stores }
    }
}

impl Contender for Limit<'_> {
    fn name(&self) -> &str {
        self.stores.name()
    }

    /// Below that size the work can't be split into whole cache lines that are worth a thread.
    fn takes(&self, cell: &Cell) -> bool {
        cell.ranks == self.memory.ranks() && share::can_split(cell, self.threads)
    }

    fn sample(&mut self, cell: &Cell, warmup: u32, iterations: u32) -> Result<Took> {
        let mut ranks = self.memory.all();
        let mut sources = Vec::with_capacity(ranks.len());
        let mut destinations = Vec::with_capacity(ranks.len());
        for buffers in &mut ranks {
            let buffers = &mut **buffers;
            sources.push(&buffers.source.slice::<f32>()?[..cell.given()]);
            destinations.push(&mut buffers.destination.slice_mut::<f32>()?[..cell.got()]);
        }
        let shares = shares(cell.op, &sources, destinations, self.threads);
        run_all(shares, self.stores, warmup, iterations)
    }
}

/// What a copy of the source to every destination takes by so many threads. All are equally long.
///
/// # Errors
/// A thread that panicked.
pub fn copies(
    source: &[f32],
    destinations: Vec<&mut [f32]>,
    threads: usize,
    stores: Stores,
    (warmup, iterations): (u32, u32),
) -> Result<Took> {
    let pieces = share::split(vec![source], destinations, threads);
    run_all(pieces.into_iter().map(|it| vec![it]).collect(), stores, warmup, iterations)
}

/// A thread for each share.
fn run_all(
    shares: Vec<Vec<Piece<'_>>>,
    stores: Stores,
    warmup: u32,
    iterations: u32,
) -> Result<Took> {
    let gate = Gate::new(shares.len());
    let spans = std::thread::scope(|scope| {
        let mut threads = Vec::with_capacity(shares.len());
        for share in shares {
            let gate = &gate;
            threads.push(scope.spawn(move || run(share, stores, gate, warmup, iterations)));
        }
        let ended = threads.into_iter().map(std::thread::ScopedJoinHandle::join);
        ended.collect::<std::thread::Result<Vec<_>>>()
    });
    let spans = spans.map_err(|_| Failure::new("a thread of the limit panicked"))?;
    Took::between(&spans, iterations)
}

/// One thread's share, so often.
fn run(
    mut share: Vec<Piece<'_>>,
    stores: Stores,
    gate: &Gate,
    warmup: u32,
    iterations: u32,
) -> (Instant, Instant) {
    let mut all = |times| {
        for _ in 0..times {
            share.iter_mut().for_each(|piece| kernel::run(piece, stores));
            kernel::fence(stores);
        }
    };
    all(warmup);
    gate.pass();
    let begun = Instant::now();
    all(iterations);
    (begun, Instant::now())
}

/// Where threads begin together. They spin, since one that is woken comes late; there are no more of
/// them than cores.
struct Gate {
    absent: AtomicUsize,
}

impl Gate {
    fn new(threads: usize) -> Self {
        Self { absent: AtomicUsize::new(threads) }
    }

    fn pass(&self) {
        self.absent.fetch_sub(1, Ordering::AcqRel);
        let mut spins = 0u32;
        while self.absent.load(Ordering::Acquire) > 0 {
            spins += 1;
            if spins.is_multiple_of(1000) {
                std::thread::yield_now()
            } else {
                std::hint::spin_loop()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use aether::Device;

    use super::*;
    use crate::cell::Op;
    use crate::memory::value;

    /// What `rank` must get at `at`.
    fn expected(cell: &Cell, rank: usize, at: usize) -> f32 {
        let chunk = cell.elements() / cell.ranks;
        let sum = |at| (0..cell.ranks).map(|rank| value(rank, at)).sum();
        match cell.op {
            Op::AllReduce => sum(at),
            Op::AllGather => value(at / chunk, at % chunk),
            Op::ReduceScatter => sum(rank * chunk + at),
            Op::Broadcast => value(0, at),
            Op::AllToAll => value(at / chunk, rank * chunk + at % chunk),
        }
    }

    #[test]
    fn the_limit_does_the_work_of_every_operation_whole_and_no_more() {
        for (ranks, threads) in [(2, 1), (2, 2), (4, 3), (8, 2)] {
            let devices = Device::cpus(ranks as u32);
            for op in Op::ALL {
                let cell = Cell { op, ranks, bytes: 8 * ranks * 512 };
                for stores in Stores::ALL {
                    let memory = Memory::new(&devices, cell.bytes + 64).unwrap();
                    let mut limit = Limit::new(&memory, threads, stores);
                    assert!(limit.takes(&cell));
                    limit.sample(&cell, 0, 2).unwrap();
                    for (rank, buffers) in memory.all().iter().enumerate() {
                        let out = buffers.destination.slice::<f32>().unwrap();
                        let written = if op == Op::Broadcast && rank == 0 { 0 } else { cell.got() };
                        let should =
                            |at| if at < written { expected(&cell, rank, at) } else { -1.0 };
                        let wrong = (0..out.len()).find(|at| out[*at] != should(*at));
                        assert_eq!(
                            wrong, None,
                            "{cell} by {threads} threads, {stores:?}, rank {rank}"
                        );
                    }
                }
            }
        }
    }

    #[test]
    fn what_can_not_be_split_into_lines_is_not_taken() {
        let devices = Device::cpus(2);
        let memory = Memory::new(&devices, 8192).unwrap();
        let limit = Limit::new(&memory, 2, Stores::Ordinary);
        let takes = |ranks, bytes| limit.takes(&Cell { op: Op::AllGather, ranks, bytes });
        assert!(takes(2, 8192));
        assert!(takes(2, 2048));
        assert!(!takes(2, 1024));
        assert!(!takes(2, 4096 + 8));
        assert!(!takes(4, 8192));
    }
}

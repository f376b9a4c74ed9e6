//! What every operation gives, to ranks that are processes.

use aether_collective::{Group, ReduceOp};
use aether_core::{Chunk, DType, Device};
use aether_host::Host;

use crate::case::{Case, Kind};
use crate::world::{World, run};

/// Every operation, element type and reduction, at sizes that are nothing, one, odd, and more than what
/// comes with a call.
pub(crate) fn collectives(world: &World) {
    all(world, world.join("collectives"));
}

/// The same with memory that the others reach directly, some of the ranks' or all.
pub(crate) fn on_the_heap(world: &World) {
    let device = |rank: usize| aether_host::shared_device(rank as u32).unwrap();
    all(world, world.join_on("heap", &device(world.rank)));
    let own = if world.rank == 0 { Device::cpu(0) } else { device(world.rank) };
    all(world, world.join_on("mixed", &own));
}

fn all(world: &World, mut group: Group<Host>) {
    let counts = [0, 1, 67, 1009, 20_011];
    let at_length = [DType::F32, DType::BF16, DType::U8];
    let mut seed = 0;
    for kind in Kind::ALL {
        for dtype in DType::ALL {
            if kind.reduces() && dtype == DType::Bool {
                continue;
            }
            let most = if at_length.contains(&dtype) { 5 } else { 4 };
            for &count in &counts[..most] {
                seed += 1;
                let op = ReduceOp::ALL[seed as usize % 5];
                let (root, in_place) = (seed as usize % world.ranks, seed & 1 == 0);
                let any_bits = seed & 2 == 0;
                let ranks = world.ranks;
                let case = Case { kind, dtype, op, ranks, count, root, in_place, any_bits, seed };
                case.check_rank(&mut group);
            }
        }
    }
    group.finish().unwrap();
}

/// More than is staged at a time.
pub(crate) fn large(world: &World) {
    in_pieces(world, world.join("large"));
    let device = aether_host::shared_device(world.rank as u32).unwrap();
    in_pieces(world, world.join_on("large on the heap", &device));
}

fn in_pieces(world: &World, mut group: Group<Host>) {
    for (seed, kind) in Kind::ALL.into_iter().enumerate() {
        let (ranks, root, seed) = (world.ranks, seed % world.ranks, seed as u64);
        // 64-bit integers, since the naive ones take their time for each element.
        let (dtype, op, count) = (DType::I64, ReduceOp::Sum, 300_007);
        let (in_place, any_bits) = (seed & 1 == 0, true);
        let case = Case { kind, dtype, op, ranks, count, root, in_place, any_bits, seed };
        case.check_rank(&mut group);
    }
    group.finish().unwrap();
}

/// Many calls in a row, none of which waits for anything but the others' arrival.
pub(crate) fn small_after_small(world: &World) {
    let mut group = world.join("small");
    let device = group.device().clone();
    let mut chunk = Chunk::from_vec(&device, vec![0u64; 3]).unwrap();
    for call in 0..3000u64 {
        let own = call * 10 + world.rank as u64;
        chunk.slice_mut::<u64>().unwrap().copy_from_slice(&[own, 1, call]);
        let mut view = chunk.view_mut::<u64, 1>([3]).unwrap();
        group.all_reduce_in_place(&mut view, ReduceOp::Sum).unwrap();
        let ranks = world.ranks as u64;
        let sum = call * 10 * ranks + ranks * (ranks - 1) / 2;
        assert_eq!(chunk.to_vec::<u64>().unwrap(), [sum, ranks, call * ranks]);
        if call % 7 == 0 {
            group.barrier().unwrap();
        }
    }
    group.finish().unwrap();
}

#[test]
fn two_processes_get_what_the_naive_ones_give() {
    run("collectives", 2);
}

#[test]
fn three_processes_get_what_the_naive_ones_give() {
    run("collectives", 3);
}

#[test]
fn memory_that_others_reach_directly_gives_the_same() {
    run("on the heap", 2);
    run("on the heap", 3);
}

#[test]
fn five_processes_get_what_the_naive_ones_give() {
    run("collectives", 5);
}

#[test]
fn what_is_larger_than_the_staging_memory_goes_through_it_in_pieces() {
    run("large", 3);
}

#[test]
fn small_calls_follow_each_other() {
    run("small after small", 2);
    run("small after small", 3);
}

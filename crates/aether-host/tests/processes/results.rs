//! What every operation gives, to ranks that are processes.

use aether_collective::ReduceOp;
use aether_core::{Chunk, DType};

use crate::case::{Case, Kind};
use crate::world::{World, run};

/// Every operation, element type and reduction, at sizes that are nothing, one, odd, and more than what
/// comes with a call.
pub(crate) fn collectives(world: &World) {
    let mut group = world.join("collectives");
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
    let mut group = world.join("large");
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

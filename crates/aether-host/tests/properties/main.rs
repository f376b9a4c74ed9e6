//! Every collective against a naive fold in rank order, bit for bit.
#![allow(clippy::unwrap_used, clippy::panic, clippy::expect_used)]

mod case;
#[path = "../common/mod.rs"]
mod common;
mod reference;

use aether_collective::ReduceOp;
use aether_core::DType;
use case::{Callers, Case, Kind};
use proptest::prelude::*;

const CALLERS: [Callers; 3] = [Callers::One, Callers::OneLater, Callers::Threads];

/// Everything that a call can be: of any operation, type, reduction, size and number of ranks.
fn cases() -> impl Strategy<Value = Case> {
    let kinds = prop::sample::select(&Kind::ALL[..]);
    let dtypes = prop::sample::select(&DType::ALL[..]);
    let ops = prop::sample::select(&ReduceOp::ALL[..]);
    let counts = prop_oneof![
        9 => prop::sample::select(&[0usize, 1, 2, 3, 7, 13, 31, 64, 101, 257, 1009][..]),
        // More than one slice, most of them not whole.
        1 => prop::sample::select(&[20_011usize, 65_536, 70_001][..]),
    ];
    (kinds, dtypes, ops, 1..=9usize, counts, any::<(usize, bool, bool, u64)>()).prop_map(
        |(kind, dtype, op, ranks, count, (root, in_place, any_bits, seed))| {
            let dtype = match (kind.reduces(), dtype) {
                (true, DType::Bool) => DType::F16,
                (_, other) => other,
            };
            let root = root % ranks;
            // Large enough for several slices, not more: the naive one is slow.
            let count = count.min(150_000 / ranks / ranks);
            Case { kind, dtype, op, ranks, count, root, in_place, any_bits, seed }
        },
    )
}

/// Under miri everything is some hundred times slower.
fn effort(cases: u32) -> ProptestConfig {
    let cases = if cfg!(miri) { 8 } else { cases };
    ProptestConfig { cases, failure_persistence: None, ..ProptestConfig::default() }
}

proptest! {
    #![proptest_config(effort(160))]

    /// The same bits whoever makes the calls, and wherever the buffers begin.
    #[test]
    #[cfg_attr(miri, ignore = "slow there; the small matrix below runs")]
    fn every_collective_does_what_the_naive_one_does(case in cases()) {
        for callers in CALLERS {
            case.check(callers, &common::config());
        }
    }

    #[test]
    #[cfg_attr(miri, ignore = "slow there; the small matrix below runs")]
    fn checked_mode_gives_the_same_results(case in cases()) {
        case.check(Callers::One, &common::config().with_checked(true));
    }
}

fn small(kind: Kind, dtype: DType, op: ReduceOp, ranks: usize, seed: u64) -> Case {
    let (count, root) = (if cfg!(miri) { 3 } else { 67 }, seed as usize % ranks);
    let (in_place, any_bits) = (seed & 1 == 0, seed & 2 == 0);
    Case { kind, dtype, op, ranks, count, root, in_place, any_bits, seed }
}

#[test]
fn every_type_is_reduced_by_every_reduction_in_every_way() {
    let mut seed = 0;
    for dtype in DType::ALL.into_iter().filter(|&it| it != DType::Bool) {
        for op in ReduceOp::ALL {
            for kind in Kind::ALL.into_iter().filter(|it| it.reduces()) {
                seed += 1;
                let callers = CALLERS[seed as usize / 4 % if cfg!(miri) { 2 } else { 3 }];
                small(kind, dtype, op, 1 + seed as usize % 5, seed)
                    .check(callers, &common::config());
            }
        }
    }
}

#[test]
fn every_type_is_moved_by_every_operation() {
    let mut seed = 0;
    for dtype in DType::ALL {
        for kind in Kind::ALL.into_iter().filter(|it| !it.reduces()) {
            seed += 1;
            let callers = CALLERS[seed as usize / 4 % if cfg!(miri) { 2 } else { 3 }];
            let ranks = 1 + seed as usize % 4;
            small(kind, dtype, ReduceOp::Sum, ranks, seed).check(callers, &common::config());
        }
    }
}

#[test]
fn threads_move_and_reduce_without_undefined_behaviour() {
    for (seed, kind) in Kind::ALL.into_iter().enumerate() {
        let ranks = 2 + seed % 2;
        small(kind, DType::F32, ReduceOp::Sum, ranks, seed as u64)
            .check(Callers::Threads, &common::config());
    }
}

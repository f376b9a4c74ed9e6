//! Ranks that don't come, and ranks that are gone.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Barrier;
use std::time::{Duration, Instant};

use aether_collective::ReduceOp;
use aether_core::{ErrorKind, Result, View, ViewMut};

use crate::common::{PATIENCE, config, impatient, says, threads, within};
use crate::{Member, SLACK, SOON, all_reduce, broadcast, first};

/// Some ranks make a call that the others never make, though they live.
fn absent(ranks: usize, missing: &'static [usize], call: fn(&mut Member) -> Result<()>) {
    within(PATIENCE, move || {
        let over = Barrier::new(ranks);
        let errors = threads(ranks, &impatient(SOON), |rank, mut group| {
            let began = Instant::now();
            let error = (!missing.contains(&rank)).then(|| call(&mut group).unwrap_err());
            let took = began.elapsed();
            over.wait();
            assert_eq!(group.barrier().unwrap_err().kind(), ErrorKind::GroupBroken);
            error.map(|it| (it, took))
        });
        let mut longest = Duration::ZERO;
        for (error, took) in errors.into_iter().flatten() {
            assert_eq!(first(&error), ErrorKind::DeadlineExceeded, "{error}");
            assert_eq!(error.ranks(), missing);
            missing.iter().for_each(|it| says(&error, &[&format!("rank {it} (cpu:{it})")]));
            longest = longest.max(took);
        }
        assert!(longest >= SOON && longest < SOON + SLACK, "{longest:?}");
    });
}

#[test]
fn a_rank_that_does_not_come_is_named_at_the_deadline() {
    absent(3, &[2], |it| all_reduce::<f32>(it, 4, ReduceOp::Sum));
    absent(2, &[0], |it| it.barrier());
}

#[test]
fn all_ranks_that_do_not_come_are_named_at_the_deadline() {
    absent(5, &[0, 3, 4], |it| broadcast(it, 4, 1));
}

#[test]
fn a_receiver_that_does_not_come_is_named_at_the_deadline() {
    absent(2, &[1], |it| it.send(&View::new(&[1u8], [1])?, 1));
}

#[test]
fn a_rank_that_left_is_reported_long_before_the_deadline() {
    within(PATIENCE, || {
        let errors = threads(3, &config(), |rank, mut group| {
            group.barrier().unwrap();
            if rank == 1 {
                group.finish().unwrap();
                return None;
            }
            Some(all_reduce::<f32>(&mut group, 4, ReduceOp::Sum).unwrap_err())
        });
        for error in errors.into_iter().flatten() {
            assert_eq!((first(&error), error.ranks()), (ErrorKind::RankDied, &[1][..]), "{error}");
            says(&error, &["rank 1 (cpu:1)", "left the group"]);
        }
    });
}

#[test]
fn a_peer_that_left_is_reported_long_before_the_deadline() {
    within(PATIENCE, || {
        let errors = threads(3, &config(), |rank, mut group| {
            let mut data = [0u8];
            match rank {
                // A rank that is gone and that nobody waits for harms nobody.
                0 => None,
                1 => group.recv(&mut ViewMut::new(&mut data, [1]).unwrap(), 2).err(),
                _ => group.send(&View::new(&data, [1]).unwrap(), 1).err(),
            }
        });
        assert!(errors.iter().all(Option::is_none), "{errors:?}");
        let errors = threads(2, &config(), |rank, mut group| {
            let mut data = [0u8];
            (rank == 1)
                .then(|| group.recv(&mut ViewMut::new(&mut data, [1]).unwrap(), 0).unwrap_err())
        });
        let error = errors[1].clone().unwrap();
        assert_eq!((error.kind(), error.ranks()), (ErrorKind::RankDied, &[0][..]), "{error}");
    });
}

#[test]
fn a_rank_whose_thread_panicked_is_reported_as_such() {
    within(PATIENCE, || {
        let errors = threads(2, &config(), |rank, mut group| {
            if rank == 0 {
                let unwinds = AssertUnwindSafe(move || {
                    let _group = group;
                    panic!("of the rank's own");
                });
                assert!(catch_unwind(unwinds).is_err());
                return None;
            }
            Some(all_reduce::<f32>(&mut group, 4, ReduceOp::Sum).unwrap_err())
        });
        let error = errors[1].clone().unwrap();
        assert_eq!((error.kind(), error.ranks()), (ErrorKind::RankDied, &[0][..]), "{error}");
        says(&error, &["rank 0 (cpu:0)", "its thread panicked"]);
    });
}

//! Ranks that wait for each other.

use std::sync::Barrier;
use std::time::Duration;

use aether_collective::ReduceOp;
use aether_core::{Device, ErrorKind, View};

use crate::common::{PATIENCE, impatient, says, threads, within};
use crate::{Member, SOON, all_reduce, first};

#[test]
fn sends_that_cross_outside_a_batch_are_a_circle() {
    within(PATIENCE, || {
        let errors = threads(2, &impatient(SOON), |rank, mut group| {
            group.send(&View::new(&[1u8, 2], [2]).unwrap(), 1 - rank).unwrap_err()
        });
        for error in errors {
            assert_eq!((first(&error), error.ranks()), (ErrorKind::Cycle, &[0, 1][..]), "{error}");
            says(&error, &["rank 0 (cpu:0) waits in send to rank 1 of 2 u8 for rank 1 (cpu:1)"]);
            says(&error, &["rank 1 (cpu:1) waits in send to rank 0 of 2 u8 for rank 0 (cpu:0)"]);
        }
    });
}

#[test]
fn a_rank_that_sends_where_the_other_reduces_is_told_of_both_calls() {
    within(PATIENCE, || {
        let errors = threads(2, &impatient(SOON), |rank, mut group| match rank {
            0 => all_reduce::<f32>(&mut group, 4, ReduceOp::Sum).unwrap_err(),
            _ => group.send(&View::new(&[1f32], [1]).unwrap(), 0).unwrap_err(),
        });
        for error in errors {
            assert_eq!((first(&error), error.ranks()), (ErrorKind::Cycle, &[0, 1][..]), "{error}");
            says(&error, &["all_reduce(sum) of 4 f32", "send to rank 0 of 1 f32"]);
        }
    });
}

#[test]
fn two_groups_in_opposite_order_are_a_circle_and_both_break() {
    within(PATIENCE, || {
        let late = Duration::from_secs(2);
        let (one, two) = (impatient(late), impatient(late));
        let devices = Device::cpus(2);
        let over = Barrier::new(2);
        std::thread::scope(|scope| {
            for rank in 0..2 {
                let (devices, over, one, two) = (&devices, &over, &one, &two);
                scope.spawn(move || {
                    let join = |it| Member::join_with(devices, &devices[rank], it).unwrap();
                    let (mut one, mut two) = (join(one), join(two));
                    let first = if rank == 0 { &mut one } else { &mut two };
                    let error = first.barrier().unwrap_err();
                    assert_eq!(error.kind(), ErrorKind::Cycle, "{error}");
                    says(&error, &["rank 0 (cpu:0) waits in", "rank 1 (cpu:1) waits in"]);
                    over.wait();
                    for group in [&one, &two] {
                        let broken = group.check().unwrap_err();
                        says(&broken, &["wait for each other"]);
                    }
                });
            }
        });
    });
}

#[test]
fn a_rank_outside_of_a_circle_that_waits_for_it_is_told_of_the_circle() {
    within(PATIENCE, || {
        let errors = threads(3, &impatient(SOON), |rank, mut group| match rank {
            2 => group.barrier().unwrap_err(),
            _ => group.send(&View::new(&[1u8], [1]).unwrap(), 1 - rank).unwrap_err(),
        });
        for error in errors {
            assert_eq!((first(&error), error.ranks()), (ErrorKind::Cycle, &[0, 1][..]), "{error}");
        }
    });
}

#[test]
fn a_group_whose_peer_comes_late_is_not_broken_for_the_circle_of_another() {
    within(PATIENCE, || {
        let devices = Device::cpus(2);
        let (short, long) = (Duration::from_millis(2000), Duration::from_millis(3900));
        let (one, two) = (impatient(short), impatient(long));
        let met = Barrier::new(2);
        std::thread::scope(|scope| {
            for rank in 0..2 {
                let (devices, one, two, met) = (&devices, &one, &two, &met);
                scope.spawn(move || {
                    let join = |it| Member::join_with(devices, &devices[rank], it).unwrap();
                    let (mut one, mut two) = (join(one), join(two));
                    // Each waits for the other, in two groups; the first one's deadline ends that, and
                    // the second's call then comes in time.
                    met.wait();
                    if rank == 0 {
                        std::thread::sleep(Duration::from_millis(50));
                        assert_eq!(one.barrier().unwrap_err().kind(), ErrorKind::Cycle);
                    }
                    two.barrier().unwrap();
                });
            }
        });
    });
}

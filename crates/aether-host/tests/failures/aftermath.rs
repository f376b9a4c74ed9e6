//! What is left after a failure: memory, and ranks that go on.

use std::sync::Barrier;
use std::time::Duration;

use aether_collective::{GroupSet, ReduceOp};
use aether_core::{Chunk, Device, Error, ErrorKind, Result, Stream, View, ViewMut, fill_async};
use aether_host::Host;

use crate::common::{PATIENCE, config, impatient, says, threads, within};
use crate::{Member, SOON, first};

/// The memory is the caller's again when its call has failed: it writes there at once, and nobody
/// else does any more. Under a sanitizer for threads this is the proof; here it is a witness.
#[test]
fn after_a_deadline_nobody_else_is_inside_borrowed_memory() {
    within(PATIENCE, || {
        let count = if cfg!(miri) { 20_000 } else { 1 << 20 };
        let mut failed = 0;
        for round in 0..if cfg!(miri) { 3 } else { 24 } {
            let deadline = Duration::from_micros([0, 50, 300, 1000][round % 4]);
            let over = Barrier::new(2);
            let outcomes = threads(2, &impatient(deadline), |rank, mut group| {
                let mut data = vec![1i32; count];
                let view = &mut ViewMut::new(&mut data, [count]).unwrap();
                let outcome = group.all_reduce_in_place(view, ReduceOp::Sum);
                let mine = if outcome.is_ok() { 2 } else { 7 + rank as i32 };
                if outcome.is_err() {
                    data.fill(mine);
                }
                over.wait();
                assert!(data.iter().all(|&it| it == mine), "round {round}: {outcome:?}");
                outcome
            });
            for error in outcomes.into_iter().filter_map(Result::err) {
                assert_eq!(first(&error), ErrorKind::DeadlineExceeded, "{error}");
                failed += 1;
            }
        }
        assert!(failed > 0, "no deadline passed while a call was running");
    });
}

#[test]
#[cfg_attr(miri, ignore = "slow there")]
fn after_a_deadline_nobody_else_is_inside_the_memory_of_a_message() {
    within(PATIENCE, || {
        let count = 6 << 20;
        let mut failed = 0;
        for round in 0..20 {
            let deadline = Duration::from_micros([0, 50, 300, 1000][round % 4]);
            let over = Barrier::new(2);
            let outcomes = threads(2, &impatient(deadline), |rank, mut group| {
                let mut data = vec![rank as u8; count];
                let outcome = match rank {
                    0 => group.send(&View::new(&data, [count]).unwrap(), 1),
                    _ => group.recv(&mut ViewMut::new(&mut data, [count]).unwrap(), 0),
                };
                let mine = if outcome.is_ok() { 0 } else { 7 + rank as u8 };
                if outcome.is_err() {
                    data.fill(mine);
                }
                over.wait();
                assert!(data.iter().all(|&it| it == mine), "round {round}: {outcome:?}");
                outcome
            });
            failed += outcomes.iter().filter(|it| it.is_err()).count();
        }
        assert!(failed > 0, "no deadline passed while a message was moved");
    });
}

#[test]
fn a_group_that_is_aborted_while_calls_run_fails_them_or_lets_them_end() {
    within(PATIENCE, || {
        for round in 0..20 {
            let count = 1 << 20;
            let over = Barrier::new(3);
            threads(3, &config(), |rank, mut group| {
                let mut chunk = Chunk::from_vec(group.device(), vec![1u64; count]).unwrap();
                let work = {
                    let mut view = chunk.view_mut::<u64, 1>([count]).unwrap();
                    group.all_reduce_in_place_async(&mut view, ReduceOp::Sum)
                };
                if rank == round % 3 {
                    let why = Error::new(ErrorKind::InvalidArgument, "train", "the loss is NaN");
                    group.abort(&why);
                }
                // A rank that comes late finds the group broken.
                let outcome = work.and_then(|it| it.wait());
                over.wait();
                match outcome {
                    Ok(()) => assert!(chunk.slice::<u64>().unwrap().iter().all(|&it| it == 3)),
                    Err(error) if error.kind() == ErrorKind::GroupBroken => {}
                    Err(error) => {
                        assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
                        says(&error, &["train", "the loss is NaN"]);
                        assert!(chunk.slice::<u64>().is_err());
                    }
                }
                assert_eq!(group.barrier().unwrap_err().kind(), ErrorKind::GroupBroken);
            });
        }
    });
}

#[test]
fn what_a_failed_call_should_have_written_gives_its_error_until_overwritten() {
    within(PATIENCE, || {
        let over = Barrier::new(2);
        threads(2, &impatient(SOON), |rank, mut group| {
            if rank == 1 {
                over.wait();
                return;
            }
            let mut chunk = Chunk::from_vec(group.device(), vec![5i32; 8]).unwrap();
            let (_, middle) = chunk.view_mut::<i32, 1>([8]).unwrap().split_at(0, 2).unwrap();
            let (mut middle, _) = middle.split_at(0, 4).unwrap();
            let work = group.all_reduce_in_place_async(&mut middle, ReduceOp::Sum).unwrap();
            assert_eq!(work.wait().unwrap_err().kind(), ErrorKind::DeadlineExceeded);
            let read = |it: &Chunk, range: std::ops::Range<usize>| {
                let view = it.view::<i32, 1>([8]).unwrap();
                view.narrow(0, range.start, range.len()).unwrap().pack()
            };
            let bad = |it: Result<Vec<i32>>| it.unwrap_err().kind();
            assert_eq!(bad(read(&chunk, 0..8)), ErrorKind::DeadlineExceeded);
            assert_eq!(bad(read(&chunk, 2..3)), ErrorKind::DeadlineExceeded);
            assert_eq!(bad(read(&chunk, 5..6)), ErrorKind::DeadlineExceeded);
            assert_eq!(read(&chunk, 0..2).unwrap(), [5, 5]);
            assert_eq!(read(&chunk, 6..8).unwrap(), [5, 5]);
            assert_eq!(chunk.slice_mut::<i32>().unwrap_err().kind(), ErrorKind::DeadlineExceeded);
            // Another group refuses to read it as if it were data.
            let mut other =
                GroupSet::<Host>::join_with(&[group.device().clone()], &config()).unwrap();
            let mut views = [chunk.view_mut::<i32, 1>([8]).unwrap()];
            let refused = other.all_reduce_in_place(&mut views, ReduceOp::Sum).unwrap_err();
            assert_eq!(refused.kind(), ErrorKind::DeadlineExceeded);
            // A collective overwrites the first half, a fill the rest.
            let mut views = [chunk.view_mut::<i32, 1>([8]).unwrap().narrow(0, 2, 2).unwrap()];
            other.broadcast(&View::new(&[8, 9], [2]).unwrap(), &mut views, 0).unwrap();
            assert_eq!(read(&chunk, 2..4).unwrap(), [8, 9]);
            assert_eq!(bad(read(&chunk, 3..5)), ErrorKind::DeadlineExceeded);
            let stream = Stream::new(group.device()).unwrap();
            let mut rest = chunk.view_mut::<i32, 1>([8]).unwrap().narrow(0, 4, 2).unwrap();
            fill_async(&mut rest, 3, &stream).unwrap().wait().unwrap();
            assert_eq!(read(&chunk, 0..8).unwrap(), [5, 5, 8, 9, 3, 3, 5, 5]);
            over.wait();
        });
    });
}

#[test]
fn the_survivors_form_a_new_group() {
    within(PATIENCE, || {
        let names = [config(), config()];
        threads(3, &names[0], |rank, mut group| {
            if rank == 1 {
                return;
            }
            assert_eq!(first(&group.barrier().unwrap_err()), ErrorKind::RankDied);
            drop(group);
            let survivors = [Device::cpu(0), Device::cpu(2)];
            let own = Device::cpu(rank as u32);
            let mut group = Member::join_with(&survivors, &own, &names[1]).unwrap();
            let mut data = [rank as i32 + 1, 7];
            let mut view = ViewMut::new(&mut data, [2]).unwrap();
            group.all_reduce_in_place(&mut view, ReduceOp::Sum).unwrap();
            assert_eq!(data, [4, 14]);
        });
        // The whole group forms again too, under the name that it had.
        threads(3, &names[0], |_, mut group| group.barrier().unwrap());
    });
}

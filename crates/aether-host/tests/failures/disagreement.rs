//! Ranks that make different calls.

use aether_collective::{ReduceOp, Request};
use aether_core::{Address, AsSpanMut, DType, ErrorKind, Result, SpanMut, View, ViewMut};

use crate::common::{PATIENCE, config, says, set_with, threads, within};
use crate::{Member, all_reduce, broadcast, exchange_v, gather_v};

/// Rank 1 makes another call than ranks 0 and 2.
fn disagree(
    words: &'static [&'static str],
    call: impl Fn(&mut Member) -> Result<()> + Sync + Send + 'static,
    other: impl Fn(&mut Member) -> Result<()> + Sync + Send + 'static,
) {
    within(PATIENCE, move || {
        let errors = threads(3, &config(), |rank, mut group| {
            let error = match rank {
                1 => other(&mut group).unwrap_err(),
                _ => call(&mut group).unwrap_err(),
            };
            let later = group.barrier().unwrap_err();
            assert_eq!(later.kind(), ErrorKind::GroupBroken);
            says(&later, &["the group failed earlier", error.reason()]);
            assert_eq!(group.check().unwrap_err().kind(), ErrorKind::GroupBroken);
            // It has been told already, and is told again to whoever leaves.
            assert_eq!(group.finish().unwrap_err().kind(), ErrorKind::RankMismatch);
            error
        });
        for error in errors {
            assert_eq!(error.kind(), ErrorKind::RankMismatch, "{error}");
            says(&error, &["rank 0 (cpu:0), rank 2 (cpu:2) called", "and rank 1 (cpu:1) called"]);
            says(&error, words);
            assert_eq!(error.ranks(), [0, 2, 1]);
        }
    });
}

#[test]
fn ranks_that_disagree_on_the_operation_are_told_so() {
    disagree(
        &["all_reduce(sum) of 4 f32", "broadcast of 4 f32 with root 0"],
        |it| all_reduce::<f32>(it, 4, ReduceOp::Sum),
        |it| broadcast(it, 4, 0),
    );
}

#[test]
fn ranks_that_disagree_on_the_count_are_told_so() {
    disagree(
        &["of 5 f32", "of 4 f32"],
        |it| all_reduce::<f32>(it, 5, ReduceOp::Sum),
        |it| all_reduce::<f32>(it, 4, ReduceOp::Sum),
    );
}

#[test]
fn ranks_that_disagree_on_a_count_of_zero_are_told_so() {
    disagree(
        &["of 0 f32", "of 4 f32"],
        |it| all_reduce::<f32>(it, 0, ReduceOp::Sum),
        |it| all_reduce::<f32>(it, 4, ReduceOp::Sum),
    );
}

#[test]
fn ranks_that_disagree_on_the_type_are_told_so() {
    disagree(
        &["of 4 f32", "of 4 i32"],
        |it| all_reduce::<f32>(it, 4, ReduceOp::Sum),
        |it| all_reduce::<i32>(it, 4, ReduceOp::Sum),
    );
}

#[test]
fn ranks_that_disagree_on_the_reduction_are_told_so() {
    disagree(
        &["(sum)", "(max)"],
        |it| all_reduce::<f32>(it, 4, ReduceOp::Sum),
        |it| all_reduce::<f32>(it, 4, ReduceOp::Max),
    );
}

#[test]
fn ranks_that_disagree_on_the_root_are_told_so() {
    disagree(&["root 0", "root 1"], |it| broadcast(it, 4, 0), |it| broadcast(it, 4, 1));
}

#[test]
fn ranks_that_disagree_on_the_counts_are_told_so() {
    disagree(
        &["their lists of counts differ"],
        |it| gather_v(it, &[2, 1, 3]),
        |it| gather_v(it, &[1, 2, 3]),
    );
    disagree(
        &["their lists of counts differ"],
        |it| exchange_v(it, &[1, 2, 3, 4, 5, 6, 7, 8, 9]),
        |it| exchange_v(it, &[1, 2, 3, 4, 5, 6, 7, 9, 8]),
    );
}

#[test]
fn ranks_that_make_their_calls_in_another_order_are_told_so() {
    disagree(
        &["call 2", "all_reduce(sum) of 4 f32", "called barrier"],
        |it| {
            it.barrier()?;
            all_reduce::<f32>(it, 4, ReduceOp::Sum)?;
            it.barrier()
        },
        |it| {
            it.barrier()?;
            it.barrier()?;
            all_reduce::<f32>(it, 4, ReduceOp::Sum)
        },
    );
}

#[test]
fn one_caller_whose_members_disagree_is_told_so() {
    within(PATIENCE, || {
        let mut set = set_with(2, &config());
        let mut data = [1f32, 2.0];
        let [one, other] = data.each_mut().map(std::slice::from_mut);
        let requests = [
            Request::AllReduce { src: None, dst: one.span_mut().unwrap(), op: ReduceOp::Sum },
            Request::AllReduce { src: None, dst: other.span_mut().unwrap(), op: ReduceOp::Min },
        ];
        let error = set.run(requests).unwrap_err();
        assert_eq!((error.kind(), error.ranks()), (ErrorKind::RankMismatch, &[0, 1][..]));
        assert_eq!(data, [1.0, 2.0]);
    });
}

#[test]
fn a_message_whose_ends_differ_is_refused_at_both() {
    let differ = |words: &'static [&'static str], recv: fn(&mut Member) -> Result<()>| {
        within(PATIENCE, move || {
            let errors = threads(2, &config(), |rank, mut group| match rank {
                0 => group.send(&View::new(&[1f32, 2.0], [2]).unwrap(), 1).unwrap_err(),
                _ => recv(&mut group).unwrap_err(),
            });
            for error in errors {
                let is = (error.kind(), error.ranks());
                assert_eq!(is, (ErrorKind::RankMismatch, &[0, 1][..]), "{error}");
                says(&error, &["rank 0 (cpu:0) sends 2 f32", "rank 1 (cpu:1) receives"]);
                says(&error, words);
            }
        });
    };
    differ(&["receives 3 f32"], |it| it.recv(&mut ViewMut::new(&mut [0f32; 3], [3])?, 0));
    differ(&["receives 0 f32"], |it| it.recv(&mut ViewMut::new(&mut [0f32; 0], [0])?, 0));
    differ(&["receives 2 i32"], |it| it.recv(&mut ViewMut::new(&mut [0i32; 2], [2])?, 0));
}

#[test]
fn checked_mode_names_ranks_whose_buffers_overlap() {
    within(PATIENCE, || {
        let mut data = vec![0u32; 6];
        let address = Address::from_ptr(data.as_mut_ptr().cast());
        let errors = threads(2, &config().with_checked(true), |rank, mut group| {
            // SAFETY: the range is in `data`, which outlives the threads. That two ranks write the same
            // memory is what the group has to refuse before it touches any.
            let dst = unsafe { SpanMut::from_raw(address.add(rank * 8), 16, DType::U32) };
            group.run(Request::AllReduce { src: None, dst, op: ReduceOp::Sum }).unwrap_err()
        });
        for error in errors {
            assert_eq!((error.kind(), error.ranks()), (ErrorKind::Overlap, &[0, 1][..]), "{error}");
        }
        assert_eq!(data, [0; 6]);
    });
}

#[test]
fn lists_of_counts_are_compared_and_not_only_their_digests() {
    // Found by search: one sum, one FNV-1a digest, two lists.
    let lists: [[u64; 5]; 2] =
        [[20_559, 53_667, 64_024, 30_090, 93_800], [34_428, 51_390, 31_493, 25_184, 119_645]];
    let digests = lists.map(|it| aether_collective::Signature::digest(&it));
    assert_eq!(digests[0], digests[1]);
    within(PATIENCE, move || {
        let errors = threads(5, &config(), move |rank, mut group| {
            let counts = lists[usize::from(rank == 4)];
            let total: u64 = counts.iter().sum();
            let src = vec![1u8; total as usize];
            let mut dst = vec![0u8; counts[rank] as usize];
            let shape = [dst.len()];
            let mut to = ViewMut::new(&mut dst, shape).unwrap();
            let from = View::new(&src, [src.len()]).unwrap();
            group.reduce_scatter_v(&from, &mut to, &counts, ReduceOp::Sum).unwrap_err()
        });
        for error in errors {
            assert_eq!(crate::first(&error), ErrorKind::RankMismatch, "{error}");
            says(&error, &["the lists of counts of rank 4 (cpu:4) differ"]);
        }
    });
}

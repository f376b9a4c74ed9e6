//! The driver by its own trait, without the groups over it: what callers other than aether's could get
//! wrong, and steps that a group hides.
#![allow(clippy::unwrap_used, clippy::panic, clippy::expect_used)]

mod common;

use std::time::Duration;

use aether_collective::{CollectiveDriver, CommunicationId, Driver, Elements, ReduceOp};
use aether_core::{
    Address, DType, Device, DeviceId, DeviceKind, Error, ErrorKind, NativeStream, Region, Result,
};
use aether_host::{Communicator, Host, HostId, HostRange};
use common::{config, impatient, says, set_with};

const STREAM: NativeStream = NativeStream(0);

/// A name that no group has had before.
fn name() -> CommunicationId {
    set_with(2, &config()).id().clone()
}

fn join(id: HostId, ranks: usize, rank: usize) -> Result<Communicator> {
    join_until(id, ranks, rank, common::PATIENCE)
}

fn join_until(id: HostId, ranks: usize, rank: usize, deadline: Duration) -> Result<Communicator> {
    Host::join(id, ranks, rank, &Device::cpu(rank as u32), &impatient(deadline))
}

fn pair() -> (Communicator, Communicator) {
    pair_until(common::PATIENCE)
}

fn pair_until(deadline: Duration) -> (Communicator, Communicator) {
    let id = Host::group_id(&name()).unwrap();
    (join_until(id, 2, 0, deadline).unwrap(), join_until(id, 2, 1, deadline).unwrap())
}

fn range<T>(of: &mut [T]) -> HostRange {
    let address = Address::from_ptr(of.as_mut_ptr().cast());
    let device = DeviceId::new(DeviceKind::CPU, 0);
    Host::resource(Region { device, address, bytes: size_of_val(of) })
}

fn elements<T>(of: &[T], dtype: DType) -> Elements<DType> {
    Host::elements(dtype, size_of_val(of) as u64).unwrap()
}

fn barrier(comm: &Communicator) -> Result<()> {
    // SAFETY: a barrier has no memory.
    unsafe { Host::barrier(comm, STREAM) }
}

fn refusal(result: Result<impl Sized>) -> Error {
    result.map(drop).unwrap_err()
}

#[test]
fn a_rank_that_joins_after_another_has_left_learns_that_it_is_gone() {
    let id = Host::group_id(&name()).unwrap();
    drop(join(id, 2, 0).unwrap());
    let late = join(id, 2, 1).unwrap();
    barrier(&late).unwrap();
    let error = refusal(Host::issued(&late));
    assert_eq!((error.kind(), error.ranks()), (ErrorKind::RankDied, &[0][..]), "{error}");
}

#[test]
fn a_name_is_given_one_identifier_until_its_group_has_ended() {
    let name = name();
    let id = Host::group_id(&name).unwrap();
    assert_eq!(Host::group_id(&name).unwrap(), id);
    let (one, two) = (join(id, 2, 0).unwrap(), join(id, 2, 1).unwrap());
    drop(one);
    assert_eq!(Host::group_id(&name).unwrap(), id);
    drop(two);
    assert_ne!(Host::group_id(&name).unwrap(), id);
}

#[test]
fn identifiers_cross_as_bytes_and_anything_else_is_refused() {
    let id = Host::group_id(&name()).unwrap();
    let bytes = Host::id_to_bytes(id);
    assert_eq!(Host::id_from_bytes(&bytes).unwrap(), id);
    for wrong in [&bytes[1..], &[bytes.as_slice(), &[0]].concat(), &[]] {
        assert_eq!(refusal(Host::id_from_bytes(wrong)).kind(), ErrorKind::Parse);
    }
    let mut foreign = bytes;
    foreign[0] ^= 1;
    let foreign = Host::id_from_bytes(&foreign).unwrap();
    assert_eq!(refusal(join(foreign, 2, 0)).kind(), ErrorKind::Unsupported);
}

#[test]
fn a_rank_joins_once_in_a_world_that_all_agree_on() {
    let id = Host::group_id(&name()).unwrap();
    let _one = join(id, 2, 0).unwrap();
    assert_eq!(refusal(join(id, 2, 0)).kind(), ErrorKind::InvalidArgument);
    assert_eq!(refusal(join(id, 2, 2)).kind(), ErrorKind::RankOutOfRange);
    assert_eq!(refusal(join(id, 3, 1)).kind(), ErrorKind::SizeMismatch);
    join(id, 2, 1).unwrap();
}

#[test]
fn partial_elements_are_refused() {
    assert_eq!(refusal(Host::elements(DType::F32, 7)).kind(), ErrorKind::PartialElement);
    assert_eq!(Host::elements(DType::F32, 8).unwrap().count, 2);
}

#[test]
fn a_batch_with_a_refused_message_posts_none() {
    let (one, two) = pair();
    let (mut src, mut dst) = ([1u8, 2], [0u8; 2]);
    let (from, to) = (range(&mut src), range(&mut dst));
    let count = elements(&src, DType::U8);
    Host::batch_begin(&one).unwrap();
    // SAFETY: the arrays outlive the communicators' use of them.
    unsafe { Host::send(&one, &from, count, 1, STREAM) }.unwrap();
    // SAFETY: as above.
    let refused = refusal(unsafe { Host::send(&one, &from, count, 2, STREAM) });
    assert_eq!(refused.kind(), ErrorKind::RankOutOfRange);
    assert_eq!(refusal(Host::batch_end(&one)).kind(), ErrorKind::RankOutOfRange);
    assert_eq!(refusal(Host::batch_end(&one)).kind(), ErrorKind::InvalidArgument);
    // SAFETY: as above.
    unsafe { Host::recv(&two, &to, count, 0, STREAM) }.unwrap();
    assert!(!Host::issued(&two).unwrap());
    assert_eq!(dst, [0, 0]);
    // The next message is the first.
    let mut other = [3u8, 4];
    // SAFETY: as above.
    unsafe { Host::send(&one, &range(&mut other), count, 1, STREAM) }.unwrap();
    assert!(Host::issued(&one).unwrap() && Host::issued(&two).unwrap());
    assert_eq!(dst, [3, 4]);
}

#[test]
fn a_batch_takes_messages_alone_and_one_is_open_at_a_time() {
    let (one, _two) = pair();
    Host::batch_begin(&one).unwrap();
    assert_eq!(refusal(Host::batch_begin(&one)).kind(), ErrorKind::InvalidArgument);
    assert_eq!(refusal(barrier(&one)).kind(), ErrorKind::Unsupported);
    Host::batch_end(&one).unwrap();
    assert!(Host::issued(&one).unwrap(), "a batch of nothing is over");
}

#[test]
fn messages_without_bytes_are_matched_by_the_hundred_thousand() {
    let (one, two) = pair();
    let count = elements(&[0u8; 0], DType::U8);
    let nothing = range(&mut [0u8; 0]);
    let many = if cfg!(miri) { 100 } else { 100_000 };
    Host::batch_begin(&one).unwrap();
    Host::batch_begin(&two).unwrap();
    for _ in 0..many {
        // SAFETY: the range is empty.
        unsafe { Host::send(&one, &nothing, count, 1, STREAM) }.unwrap();
        // SAFETY: as above.
        unsafe { Host::recv(&two, &nothing, count, 0, STREAM) }.unwrap();
    }
    Host::batch_end(&one).unwrap();
    Host::batch_end(&two).unwrap();
    assert!(Host::issued(&one).unwrap() && Host::issued(&two).unwrap());
}

/// Two ranks arrive with more than one slice of work; nothing but this thread looks at it.
fn large(deadline: Duration) -> (Communicator, Communicator, Vec<u32>, Vec<u32>) {
    let (one, two) = pair_until(deadline);
    let count = if cfg!(miri) { 20_000 } else { 1 << 20 };
    let (mut first, mut second) = (vec![1u32; count], vec![2u32; count]);
    for (comm, data) in [(&one, &mut first), (&two, &mut second)] {
        let (at, count) = (range(data), elements(data, DType::U32));
        // SAFETY: both vectors live as long as the communicators, and are moved with their memory in
        // place.
        unsafe { Host::all_reduce(comm, &at, &at, count, ReduceOp::Sum, STREAM) }.unwrap();
    }
    (one, two, first, second)
}

#[test]
fn who_has_just_made_a_large_call_is_not_held_up_by_its_work() {
    let (one, two, first, second) = large(common::PATIENCE);
    // The last to arrive looks once, as part of its call.
    assert!(!Host::issued(&two).unwrap());
    let done = first.iter().filter(|it| **it == 3).count();
    assert!(0 < done && done < first.len(), "one slice was done, and no more");
    assert!(Host::issued(&two).unwrap());
    assert!(Host::issued(&one).unwrap());
    assert!(first.iter().chain(&second).all(|&it| it == 3));
}

#[test]
fn a_deadline_that_passes_in_the_middle_of_the_work_ends_it_within_a_slice() {
    let (one, two, first, second) = large(Duration::ZERO);
    let error = refusal(Host::issued(&one));
    assert_eq!(error.kind(), ErrorKind::DeadlineExceeded, "{error}");
    says(&error, &["rank 0 (cpu:0)", "before the work was done", "all_reduce(sum)", "(call 1)"]);
    assert_eq!(refusal(Host::issued(&two)).kind(), ErrorKind::DeadlineExceeded);
    assert_eq!((first[first.len() - 1], second[second.len() - 1]), (1, 2));
    assert_eq!(refusal(barrier(&one)).kind(), ErrorKind::GroupBroken);
}

#[test]
fn a_failure_that_comes_after_the_end_takes_nothing_back() {
    let (one, two) = pair();
    let (mut src, mut dst) = ([5u8, 6], [0u8; 2]);
    let count = elements(&src, DType::U8);
    let (from, to) = (range(&mut src), range(&mut dst));
    // SAFETY: the arrays outlive the communicators' use of them.
    unsafe { Host::send(&one, &from, count, 1, STREAM) }.unwrap();
    // SAFETY: as above.
    unsafe { Host::recv(&two, &to, count, 0, STREAM) }.unwrap();
    assert!(Host::issued(&two).unwrap());
    let why = Error::new(ErrorKind::InvalidArgument, "test", "on purpose");
    Host::abort(&two, &why).unwrap();
    assert!(Host::issued(&one).unwrap(), "its message had been taken");
    assert_eq!(dst, [5, 6]);
    assert_eq!(refusal(barrier(&one)).kind(), ErrorKind::GroupBroken);
}

#[test]
fn messages_posted_before_a_failure_are_never_moved_after_it() {
    let (one, two) = pair();
    let (mut src, mut dst) = ([5u8, 6], [0u8; 2]);
    let count = elements(&src, DType::U8);
    let (from, to) = (range(&mut src), range(&mut dst));
    // SAFETY: the arrays outlive the communicators' use of them.
    unsafe { Host::recv(&two, &to, count, 0, STREAM) }.unwrap();
    assert!(!Host::issued(&two).unwrap());
    // SAFETY: as above.
    unsafe { Host::send(&one, &from, count, 1, STREAM) }.unwrap();
    let why = Error::new(ErrorKind::InvalidArgument, "test", "on purpose");
    Host::abort(&two, &why).unwrap();
    assert_eq!(refusal(Host::issued(&one)).kind(), ErrorKind::InvalidArgument);
    assert_eq!(refusal(Host::issued(&two)).kind(), ErrorKind::InvalidArgument);
    assert_eq!(dst, [0, 0]);
}

#[test]
fn an_identifier_is_the_same_for_a_rank_that_is_slow_to_join_under_it() {
    let name = name();
    let first = Host::group_id(&name).unwrap();
    for _ in 0..1000 {
        drop(set_with(2, &config()));
    }
    assert_eq!(Host::group_id(&name).unwrap(), first);
    let (one, two) = (join(first, 2, 0).unwrap(), join(first, 2, 1).unwrap());
    drop((one, two));
}

//! What a failure leaves: a group that refuses work, ranges that give the failure until they are
//! overwritten, and nobody who hangs.
#![allow(clippy::unwrap_used)]

mod common;

use std::time::{Duration, Instant};

use aether_collective::{CollectiveDriver, Group, GroupSet, ReduceOp, Work};
use aether_core::{
    AsSpan, AsSpanMut, Chunk, DType, Error, ErrorKind, Stream, copy, copy_async, fill,
};
use aether_host::Host;
use common::{
    Basic, all_data, chunk_views, chunk_views_mut, chunks, config, contents, data, devices,
    has_not_happened, meanwhile, set, sum, view_mut, views_mut,
};

const SUM: ReduceOp = ReduceOp::Sum;

/// The reason of every failure here: no other error has this kind.
fn why() -> Error {
    Error::new(ErrorKind::Parse, "read a batch", "line 7 is ragged").about_ranks([1])
}

/// Two members of a group of their own.
fn pair<D: CollectiveDriver>() -> [Group<D>; 2] {
    let devices = devices(2);
    std::thread::scope(|scope| {
        let other = scope.spawn(|| Group::join_with(&devices, &devices[1], &config()).unwrap());
        [Group::join_with(&devices, &devices[0], &config()).unwrap(), other.join().unwrap()]
    })
}

/// A chunk of 16 elements whose elements 4 to 12 a call should have written, and that call pending.
fn pending_write(group: &mut Group<Host>) -> (Chunk, Work) {
    let mut chunk = Chunk::from_vec(group.device(), data(0, 16)).unwrap();
    let mut part = chunk.view_mut::<i64, 1>([16]).unwrap().narrow(0, 4, 8).unwrap();
    let work = group.all_reduce_in_place_async(&mut part, SUM).unwrap();
    (chunk, work)
}

fn failed_write() -> Chunk {
    let [mut zero, mut one] = pair();
    let (chunk, work) = pending_write(&mut zero);
    one.abort(&why());
    assert_eq!(work.wait().unwrap_err().kind(), ErrorKind::Parse);
    chunk
}

fn read(chunk: &Chunk, start: usize, count: usize) -> Result<Vec<i64>, ErrorKind> {
    let view = chunk.view::<i64, 1>([16]).unwrap().narrow(0, start, count).unwrap();
    view.as_slice().map(<[i64]>::to_vec).map_err(|it| it.kind())
}

#[test]
fn a_failed_call_leaves_its_failure_byte_by_byte_until_all_is_overwritten() {
    let mut chunk = failed_write();
    let failed = Err(ErrorKind::Parse);
    assert_eq!(read(&chunk, 0, 4), Ok(data(0, 4)));
    assert_eq!(read(&chunk, 3, 2), failed);
    assert_eq!(read(&chunk, 11, 1), failed);
    assert_eq!(read(&chunk, 12, 4), Ok(data(0, 16)[12..].to_vec()));
    assert_eq!(chunk.slice_mut::<i64>().map(drop).unwrap_err().kind(), ErrorKind::Parse);
    // Half of it by a fill, the rest by a collective.
    let mut view = chunk.view_mut::<i64, 1>([16]).unwrap().narrow(0, 4, 4).unwrap();
    fill(&mut view, 3i64).unwrap();
    assert_eq!(read(&chunk, 0, 8), Ok([&data(0, 4)[..], &[3; 4]].concat()));
    assert_eq!(read(&chunk, 7, 2), failed);
    let mut alone = GroupSet::<Host>::join_with(&[chunk.device().clone()], &config()).unwrap();
    let source = Chunk::from_vec(chunk.device(), data(5, 4)).unwrap();
    let from = source.view::<i64, 1>([4]).unwrap();
    let to = chunk.view_mut::<i64, 1>([16]).unwrap().narrow(0, 8, 4).unwrap();
    alone.all_gather_async(&[from], &mut [to]).unwrap().wait().unwrap();
    let want = [&data(0, 4)[..], &[3; 4], &data(5, 4), &data(0, 16)[12..]].concat();
    assert_eq!(chunk.to_vec::<i64>().unwrap(), want);
}

#[test]
fn a_call_that_reads_what_a_failure_left_is_refused_and_queues_nothing() {
    let other = devices(1).remove(0);
    // The last member's part is the one that is refused.
    let mut failed = failed_write();
    let devices = [failed.device().clone(), other];
    let mut set = GroupSet::<Host>::join_with(&devices, &config()).unwrap();
    let mut other = Chunk::from_vec(&devices[1], data(1, 16)).unwrap();
    let mut both = [&mut other, &mut failed];
    both.sort_by_key(|it| it.device().id());
    let mut views: Vec<_> =
        both.iter_mut().map(|it| it.view_mut::<i64, 1>([16]).unwrap()).collect();
    let error = set.all_reduce_in_place_async(&mut views, SUM).map(drop).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Parse, "{error}");
    assert_eq!(set.all_reduce_in_place(&mut views, SUM).unwrap_err().kind(), ErrorKind::Parse);
    drop(views);
    // Nobody was told of the call, so the group works.
    let mut buffers = all_data(2, 5);
    set.all_reduce_in_place(&mut views_mut(&mut buffers), SUM).unwrap();
    assert_eq!(buffers, vec![sum(2, 5); 2]);
    assert_eq!(other.to_vec::<i64>().unwrap(), data(1, 16));
    // Writing it is fine, and heals it.
    let mut to = [Chunk::from_vec(&devices[1], data(2, 16)).unwrap(), failed];
    to.sort_by_key(|it| it.device().id());
    let root = set.devices().iter().position(|it| *it == devices[1]).unwrap();
    set.broadcast_in_place_async(&mut chunk_views_mut(&mut to), root).unwrap().wait().unwrap();
    assert_eq!(contents(&to), vec![data(2, 16); 2]);
}

/// What a call depends on fails after the call was enqueued, and after others have come to wait for
/// it.
#[test]
fn a_dependency_that_fails_later_fails_the_call_and_tells_the_others() {
    fn run<D: CollectiveDriver>() {
        let [mut zero, mut one] = pair::<Host>();
        let (chunk, first) = pending_write(&mut zero);
        let devices = [chunk.device().clone(), devices(1).remove(0)];
        let mut set = GroupSet::<D>::join_with(&devices, &config().named("second")).unwrap();
        let mut lists: Vec<Chunk> =
            set.devices().iter().map(|it| Chunk::from_vec(it, vec![-1i64; 16]).unwrap()).collect();
        let other = Chunk::from_vec(&devices[1], data(1, 16)).unwrap();
        let mut src = [&chunk, &other];
        src.sort_by_key(|it| it.device().id());
        let src: Vec<_> = src.iter().map(|it| it.view::<i64, 1>([16]).unwrap()).collect();
        let second = set.all_reduce_async(&src, &mut chunk_views_mut(&mut lists), SUM).unwrap();
        let began = Instant::now();
        assert!(!second.wait_timeout(Duration::from_millis(20)).unwrap());
        one.abort(&why());
        assert_eq!(first.wait().unwrap_err().kind(), ErrorKind::Parse);
        for part in second.completions() {
            assert_eq!(part.wait().unwrap_err().kind(), ErrorKind::Parse);
        }
        assert!(began.elapsed() < Duration::from_secs(10), "they were told, and not left to wait");
        assert_eq!(set.barrier().unwrap_err().kind(), ErrorKind::GroupBroken);
        for chunk in &lists {
            assert_eq!(chunk.to_vec::<i64>().unwrap_err().kind(), ErrorKind::Parse);
        }
    }
    run::<Host>();
    run::<Basic>();
}

/// The last member's part fails between the look at all parts and its own turn, when the first member
/// waits for it already.
#[test]
fn members_that_were_queued_before_one_was_refused_are_told() {
    // A worker may begin the first member's part instead, and then the last one's turn is not awaited.
    assert!(
        (0..200).any(|_| is_refused_when_the_first_was_queued()),
        "workers were always quicker"
    );
}

/// False if it didn't come so, because a worker began the first member's part.
fn is_refused_when_the_first_was_queued() -> bool {
    let other = devices(1).remove(0);
    let [mut zero, mut one] = pair::<Host>();
    let (chunk, first) = pending_write(&mut zero);
    let list = [other, chunk.device().clone()];
    let mut set = GroupSet::<Basic>::join_with(&list, &config()).unwrap();
    let own = Chunk::from_vec(&list[0], data(1, 16)).unwrap();
    let mut dst = chunks(&list, vec![vec![-1i64; 16]; 2]);
    let src = [&own, &chunk].map(|it| it.view::<i64, 1>([16]).unwrap());
    meanwhile(move || {
        one.abort(&why());
        assert!(first.wait().is_err());
    });
    let began = Instant::now();
    let called = set.all_reduce_async(&src, &mut chunk_views_mut(&mut dst), SUM);
    if let Some(run) = has_not_happened() {
        run();
        assert_eq!(called.unwrap().wait().unwrap_err().kind(), ErrorKind::Parse);
        return false;
    }
    assert_eq!(called.map(drop).unwrap_err().kind(), ErrorKind::Parse);
    assert!(began.elapsed() < Duration::from_secs(10), "nobody was left to wait");
    assert_eq!(set.check().unwrap_err().kind(), ErrorKind::GroupBroken);
    // The first member's part was queued and has failed; the last one's never was.
    assert_eq!(dst[0].to_vec::<i64>().unwrap_err().kind(), ErrorKind::Parse);
    assert_eq!(dst[1].to_vec::<i64>().unwrap(), [-1; 16]);
    true
}

/// As above, where the call is composed of two steps.
#[test]
fn a_dependency_that_fails_later_fails_every_step_of_a_composed_call() {
    let [mut zero, mut one] = pair::<Host>();
    let (chunk, _first) = pending_write(&mut zero);
    let device = chunk.device().clone();
    let mut set = GroupSet::<Basic>::join_with(std::slice::from_ref(&device), &config()).unwrap();
    let mut dst = [Chunk::from_vec(&device, vec![-1i64; 16]).unwrap()];
    let src = [chunk.view::<i64, 1>([16]).unwrap()];
    let work =
        set.reduce_scatter_v_async(&src, &mut chunk_views_mut(&mut dst), &[16], SUM).unwrap();
    one.abort(&why());
    assert_eq!(work.wait().unwrap_err().kind(), ErrorKind::Parse);
    assert_eq!(dst[0].to_vec::<i64>().unwrap_err().kind(), ErrorKind::Parse);
    assert_eq!(set.check().unwrap_err().kind(), ErrorKind::GroupBroken);
}

#[test]
fn a_broken_group_refuses_every_call_and_names_the_first_failure() {
    let [mut zero, mut one] = pair::<Host>();
    one.abort(&why());
    one.abort(&Error::new(ErrorKind::Backend, "something else", "later"));
    for group in [&mut zero, &mut one] {
        for error in [
            group.barrier().unwrap_err(),
            group.all_reduce_in_place(&mut view_mut(&mut [1i64]), SUM).unwrap_err(),
            group.recv(&mut view_mut(&mut [1i64]), 0).unwrap_err(),
            group.check().unwrap_err(),
        ] {
            assert_eq!(error.kind(), ErrorKind::GroupBroken);
            assert_eq!(error.ranks(), [1]);
            assert!(error.reason().contains("line 7 is ragged"), "{error}");
            let first = std::error::Error::source(&error).unwrap().to_string();
            assert_eq!(first, why().to_string());
        }
    }
    assert_eq!(zero.finish().unwrap_err().kind(), ErrorKind::Parse);
    drop(one);
}

#[test]
fn a_new_group_of_the_survivors_works() {
    let devices = devices(3);
    let mut set = GroupSet::<Host>::join_with(&devices, &config()).unwrap();
    set.abort(&why());
    assert!(set.barrier().is_err());
    let mut survivors =
        GroupSet::<Host>::join_with(&devices[1..], &config().named("survivors")).unwrap();
    survivors.barrier().unwrap();
    drop(set);
    let mut again = GroupSet::<Host>::join_with(&devices, &config()).unwrap();
    let mut buffers = all_data(3, 4);
    again.all_reduce_in_place(&mut views_mut(&mut buffers), SUM).unwrap();
    assert_eq!(buffers, vec![sum(3, 4); 3]);
}

#[test]
fn a_thread_that_panics_between_its_calls_breaks_the_group_of_the_others() {
    let devices = devices(2);
    std::thread::scope(|scope| {
        let panics = scope.spawn(|| {
            let mut group = Group::<Host>::join_with(&devices, &devices[1], &config()).unwrap();
            let mut chunk = Chunk::from_vec(&devices[1], data(1, 8)).unwrap();
            let mut view = chunk.view_mut::<i64, 1>([8]).unwrap();
            let _work = group.all_reduce_in_place_async(&mut view, SUM).unwrap();
            std::panic::resume_unwind(Box::new("between two calls"));
        });
        let mut group = Group::<Host>::join_with(&devices, &devices[0], &config()).unwrap();
        let mut own = data(0, 8);
        // The call that it made before is still good.
        group.all_reduce_in_place(&mut view_mut(&mut own), SUM).unwrap();
        assert_eq!(own, sum(2, 8));
        let began = Instant::now();
        let error = group.barrier().unwrap_err();
        assert_eq!((error.kind(), error.ranks()), (ErrorKind::RankDied, [1].as_slice()), "{error}");
        assert!(error.reason().contains("panicked"), "{error}");
        assert!(began.elapsed() < Duration::from_secs(10), "well before the deadline");
        panics.join().unwrap_err();
    });
}

#[test]
fn other_work_that_reads_a_failed_range_fails_with_it() {
    let chunk = failed_write();
    let mut to = Chunk::allocate(chunk.device(), chunk.size()).unwrap();
    assert_eq!(copy(&mut to, &chunk).unwrap_err().kind(), ErrorKind::Parse);
    let stream = Stream::new(chunk.device()).unwrap();
    let refused = copy_async(&mut to, &chunk, &stream).map(drop);
    assert_eq!(refused.unwrap_err().kind(), ErrorKind::Parse);
    // Beside the range all is well.
    let from = chunk.span_of(96..128, DType::I64).unwrap();
    copy(&mut to.span_of_mut(..32, DType::I64).unwrap(), &from).unwrap();
    assert_eq!(to.to_vec::<i64>().unwrap()[..4], data(0, 16)[12..]);
    assert!(chunk.span().unwrap().check_readable().is_err());
    assert!(to.span_mut().unwrap().check_writable("test").is_ok());
}

#[test]
fn a_call_is_ordered_behind_copies_of_what_it_reads_and_before_what_overwrites_it() {
    let mut set = set::<Host>(3);
    let mut all = chunks(set.devices(), all_data(3, 40));
    let stream = Stream::new(&set.devices()[1].clone()).unwrap();
    let source = Chunk::from_vec(&set.devices()[1], data(8, 40)).unwrap();
    copy_async(&mut all[1], &source, &stream).unwrap();
    let mut dst = chunks(set.devices(), vec![vec![-1i64; 40]; 3]);
    let work =
        set.all_reduce_async(&chunk_views(&all), &mut chunk_views_mut(&mut dst), SUM).unwrap();
    // What it reads is overwritten next, and not before.
    for chunk in &mut all {
        fill(chunk, 0u8).unwrap();
    }
    work.wait().unwrap();
    let (zero, one, two) = (data(0, 40), data(8, 40), data(2, 40));
    let want: Vec<_> = (0..40).map(|at| zero[at] + one[at] + two[at]).collect();
    assert_eq!(contents(&dst), vec![want; 3]);
}

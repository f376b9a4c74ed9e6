//! Ranks that meet elsewhere than in a list of devices.
#![allow(clippy::unwrap_used)]

mod common;

use std::path::Path;
use std::time::{Duration, Instant};

use aether_collective::{Directory, Group, InProcess, ReduceOp, Rendezvous};
use aether_core::{Device, ErrorKind, Result};
use aether_host::Host;
use common::{config, data, sum, view_mut};

fn join(at: &dyn Rendezvous, deadline: Duration) -> Result<Group<Host>> {
    // Every rank on the device that it likes; two may like the same.
    Group::join_at(at, &Device::cpu(at.rank() as u32 / 2), &config().with_deadline(deadline))
}

fn all_join<R: Rendezvous>(handles: &[R]) {
    let ranks = handles.len();
    std::thread::scope(|scope| {
        for at in handles {
            scope.spawn(move || {
                let mut group = join(at, common::SOON).unwrap();
                assert_eq!((group.rank(), group.ranks()), (at.rank(), ranks));
                assert_eq!(group.id().devices()[at.rank()], group.device().id());
                let mut own = data(at.rank(), 30);
                group.all_reduce_in_place(&mut view_mut(&mut own), ReduceOp::Sum).unwrap();
                assert_eq!(own, sum(ranks, 30));
                group.finish().unwrap();
            });
        }
    });
}

fn in_directory(path: &Path, ranks: usize) -> Vec<Directory> {
    (0..ranks).map(|rank| Directory::new(path, rank, ranks).unwrap()).collect()
}

#[test]
fn threads_meet_in_process_and_in_a_directory() {
    for ranks in 1..=9 {
        all_join(&InProcess::new(ranks));
        let place = tempfile::tempdir().unwrap();
        // It is made if need be.
        let path = place.path().join("of/this/run");
        all_join(&in_directory(&path, ranks));
        let left = std::fs::read_dir(&path).unwrap().map(|it| it.unwrap().file_name());
        let drafts = left.filter(|it| it.to_string_lossy().starts_with('.'));
        assert_eq!(drafts.count(), 0, "no drafts are left");
    }
}

#[test]
fn a_rank_twice_is_refused_whoever_comes_first() {
    let place = tempfile::tempdir().unwrap();
    let handles = in_directory(place.path(), 2);
    std::thread::scope(|scope| {
        let twice = [&handles[1], &handles[1]]
            .map(|at| scope.spawn(|| join(at, common::SOON).map(|_| ()).map_err(|it| it.kind())));
        let one = join(&handles[0], common::SOON);
        assert!(one.is_ok(), "{one:?}");
        let mut found = twice.map(|it| it.join().unwrap());
        found.sort_by_key(Result::is_err);
        assert_eq!(found, [Ok(()), Err(ErrorKind::InvalidArgument)]);
    });
}

#[test]
fn a_directory_serves_one_group() {
    let place = tempfile::tempdir().unwrap();
    all_join(&in_directory(place.path(), 2));
    let error = join(&in_directory(place.path(), 2)[0], common::SOON).map(drop).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
    assert!(error.reason().contains("used before"), "{error}");
    assert!(error.place().unwrap().contains(&*place.path().to_string_lossy()), "{error}");
    // A larger world in a directory that a smaller one used.
    let later = Directory::new(place.path(), 2, 3).unwrap();
    assert_eq!(join(&later, common::SOON).map(drop).unwrap_err().kind(), ErrorKind::SizeMismatch);
}

#[test]
fn absent_ranks_are_named_at_the_deadline() {
    let place = tempfile::tempdir().unwrap();
    let handles = in_directory(place.path(), 4);
    std::thread::scope(|scope| {
        let hurried = Duration::from_millis(200);
        let joining = [&handles[1], &handles[3]].map(|at| scope.spawn(move || join(at, hurried)));
        for error in joining.map(|it| it.join().unwrap().map(drop).unwrap_err()) {
            assert_eq!(error.kind(), ErrorKind::DeadlineExceeded, "{error}");
            assert_eq!(error.ranks(), [0, 2]);
            assert!(error.reason().contains("rank 0, rank 2"), "{error}");
        }
    });
}

#[test]
fn world_sizes_that_differ_are_told_at_once() {
    let place = tempfile::tempdir().unwrap();
    let at = |rank, ranks| Directory::new(place.path(), rank, ranks).unwrap();
    let began = Instant::now();
    std::thread::scope(|scope| {
        let others = [at(0, 2), at(1, 3)]
            .map(|at| scope.spawn(move || join(&at, common::SOON).map(drop).unwrap_err()));
        for error in others.map(|it| it.join().unwrap()) {
            assert_eq!(error.kind(), ErrorKind::SizeMismatch, "{error}");
            let reason = error.reason();
            assert!(reason.contains("2") && reason.contains("3"), "{error}");
        }
    });
    assert!(began.elapsed() < common::SOON / 2);
}

#[test]
fn a_rank_out_of_range_is_refused_before_anything_is_made() {
    let place = tempfile::tempdir().unwrap();
    for (rank, ranks) in [(2, 2), (0, 0), (usize::MAX, 5)] {
        let path = place.path().join("never");
        let error = Directory::new(&path, rank, ranks).unwrap_err();
        assert_eq!((error.kind(), error.ranks()), (ErrorKind::RankOutOfRange, [rank].as_slice()));
        assert!(!path.exists());
    }
}

#[test]
fn a_directory_that_cannot_be_written_is_an_error_with_its_path() {
    let place = tempfile::tempdir().unwrap();
    let file = place.path().join("file");
    std::fs::write(&file, "no directory").unwrap();
    let error = Directory::new(file.join("below"), 0, 1).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Io);
    assert!(error.place().unwrap().contains("file"), "{error}");
    // It was there when it was opened, and is gone when the ranks meet.
    let path = place.path().join("gone");
    let handle = Directory::new(&path, 0, 1).unwrap();
    std::fs::remove_dir(&path).unwrap();
    let error = join(&handle, common::SOON).map(drop).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Io);
    assert!(error.place().unwrap().contains("gone"), "{error}");
}

#[test]
fn a_key_is_posted_once_and_whole() {
    let place = tempfile::tempdir().unwrap();
    let handles = in_directory(place.path(), 2);
    let mut all: Vec<&dyn Rendezvous> = handles.iter().map(|it| it as _).collect();
    let in_process = InProcess::new(2);
    all.extend(in_process.iter().map(|it| it as &dyn Rendezvous));
    for pair in all.chunks(2) {
        assert_eq!(pair[0].look_up("key").unwrap(), None);
        pair[0].post("key", b"first").unwrap();
        let error = pair[1].post("key", b"second").unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument);
        assert_eq!(pair[1].look_up("key").unwrap().as_deref(), Some(&b"first"[..]));
    }
}

//! How formations fill, close, fail and go.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::any::TypeId;
use std::sync::Arc;
use std::time::Duration;

use aether_core::{Device, DeviceId, DeviceKind, ErrorKind, HostBackend, Result};

use super::{Key, Place, join, lock, table};
use crate::GroupConfig;
use crate::paper::Paper;

/// Joins as these ranks of cpu:0 to cpu:2, with a name of its own for each test.
fn join_as(name: &str, ranks: &[usize], deadline: Duration) -> Result<Place> {
    let config = GroupConfig::default().named(name).with_deadline(deadline);
    join::<Paper>(&Device::cpus(3), ranks, &config)
}

const NOW: Duration = Duration::ZERO;
const SOON: Duration = Duration::from_secs(60);

fn is_known(name: &str) -> bool {
    let (driver, devices) = (TypeId::of::<Paper>(), Device::cpus(3));
    let key = Key { driver, devices, name: Some(name.to_owned()) };
    lock(&table().entries).contains_key(&key)
}

#[test]
fn joiners_fill_one_formation_and_get_its_generation() {
    let places: Vec<Place> = std::thread::scope(|scope| {
        let join = |rank| scope.spawn(move || join_as("fill", &[rank], SOON));
        let joining: Vec<_> = [2, 0, 1].map(join).into_iter().collect();
        joining.into_iter().map(|it| it.join().unwrap().unwrap()).collect()
    });
    assert!(places.iter().all(|it| it.id() == places[0].id()));
    assert!(places[0].id().generation() > 0);
    assert_eq!(places[0].id().name(), Some("fill"));
}

#[test]
fn a_formation_that_is_late_fails_for_all_naming_the_absent_and_another_can_follow() {
    let late = join_as("late", &[1], NOW).map(drop).unwrap_err();
    assert_eq!((late.kind(), late.ranks()), (ErrorKind::DeadlineExceeded, [0, 2].as_slice()));
    assert!(late.reason().contains("rank 0 (cpu:0), rank 2 (cpu:2)"), "{late}");
    assert!(!is_known("late"));
    let one = join_as("late", &[0, 1, 2], NOW).unwrap();
    drop(one);
    assert!(!is_known("late"));
}

#[test]
fn a_rank_that_waits_or_lives_keeps_others_of_its_rank_out() {
    let living = join_as("taken", &[0, 1, 2], NOW).unwrap();
    let error = join_as("taken", &[1], SOON).map(drop).unwrap_err();
    assert_eq!((error.kind(), error.ranks()), (ErrorKind::InvalidArgument, [1].as_slice()));
    let other = join_as("another", &[0, 1, 2], NOW).unwrap();
    assert_ne!(living.id(), other.id());
    drop(living);
    drop(join_as("taken", &[0, 1, 2], NOW).unwrap());
}

#[test]
fn a_new_formation_can_begin_while_others_of_the_old_group_live() {
    let join_all = || {
        std::thread::scope(|scope| {
            let join = |rank| scope.spawn(move || join_as("again", &[rank], SOON));
            let joining: Vec<_> = [0, 1, 2].map(join).into_iter().collect();
            joining.into_iter().map(|it| it.join().unwrap().unwrap()).collect::<Vec<Place>>()
        })
    };
    let mut old = join_all();
    let first = old[0].id().generation();
    // Rank 0 leaves and comes again before the others have left.
    drop(old.remove(0));
    std::thread::scope(|scope| {
        let again = scope.spawn(|| join_as("again", &[0], SOON));
        drop(old);
        let others = join_as("again", &[1, 2], SOON).unwrap();
        assert_eq!(again.join().unwrap().unwrap().id(), others.id());
        assert!(others.id().generation() > first);
    });
    assert!(!is_known("again"));
}

#[test]
fn devices_of_two_backends_are_two_groups() {
    let own = Arc::new(HostBackend::new());
    let id = |index| DeviceId::new(DeviceKind::CPU, index);
    let others: Vec<Device> = (0..3).map(|it| Device::new(id(it), own.clone())).collect();
    let config = GroupConfig::default().named("backends").with_deadline(NOW);
    let one = join_as("backends", &[0, 1, 2], NOW).unwrap();
    let two = join::<Paper>(&others, &[0, 1, 2], &config).unwrap();
    assert_ne!(one.id().generation(), two.id().generation());
}

#[test]
fn nothing_is_left_of_many_groups() {
    for _ in 0..if cfg!(miri) { 20 } else { 1000 } {
        drop(join_as("many", &[0, 1, 2], NOW).unwrap());
        assert!(join_as("many", &[2], NOW).is_err());
        assert!(!is_known("many"));
    }
}

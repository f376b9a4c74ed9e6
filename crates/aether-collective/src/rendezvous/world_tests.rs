#![allow(clippy::unwrap_used, reason = "a test fails by a panic")]

use aether_core::{Device, ErrorKind};

use super::*;
use crate::GroupConfig;
use crate::paper::Paper;
use crate::rendezvous::{Met, meet};

const SOON: Duration = Duration::from_secs(60);

fn launch(rank: usize, ranks: usize, place: &Place) -> Launch {
    let (launcher, local_rank, place) = (Launcher::Aether, rank, place.clone());
    Launch { launcher, rank, ranks, local_rank, place }
}

/// A name that no other test and no other run of the tests has.
fn local(test: &str) -> Place {
    Place::Served(Spot::Local(format!("aether-test/{test}/{}", std::process::id())), Vec::new())
}

/// Every rank forms two groups of one name and one of another, and rank 1 comes first.
fn form_three_groups(place: &Place) {
    let form = |rank: usize| {
        let world = World::of(launch(rank, 2, place), SOON).unwrap();
        ["first", "second/..", "first"].map(|name| {
            let at = world.rendezvous(name).unwrap();
            let device = Device::cpu(rank as u32);
            let config = GroupConfig::default().with_deadline(SOON);
            let Met { id, unique }: Met<Paper> = meet(&*at, &device, &config).unwrap();
            (id, unique)
        })
    };
    std::thread::scope(|scope| {
        let other = scope.spawn(|| form(1));
        let (own, other) = (form(0), other.join().unwrap());
        assert_eq!(own, other);
        assert!(own[0] != own[1] && own[0] != own[2] && own[1] != own[2]);
    });
}

#[test]
#[cfg_attr(miri, ignore = "miri makes no directories unless told to")]
fn ranks_form_any_number_of_groups_in_a_directory() {
    let place = tempfile::tempdir().unwrap();
    form_three_groups(&Place::Directory(place.path().to_owned()));
    let mut left: Vec<_> =
        std::fs::read_dir(place.path()).unwrap().map(|it| it.unwrap().file_name()).collect();
    left.sort();
    assert_eq!(left, ["first.1", "first.2", "second%2f%2e%2e.1"]);
}

#[cfg(target_os = "linux")]
#[test]
#[cfg_attr(miri, ignore = "miri has no sockets")]
fn ranks_form_any_number_of_groups_at_rank_0_under_a_name() {
    form_three_groups(&local("groups"));
}

#[test]
#[cfg_attr(miri, ignore = "miri has no sockets")]
fn ranks_form_any_number_of_groups_at_rank_0_under_an_address() {
    // A port that was free a moment ago.
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    form_three_groups(&Place::Served(Spot::Tcp(free.to_string()), b"a token".to_vec()));
}

#[cfg(target_os = "linux")]
#[test]
#[cfg_attr(miri, ignore = "miri has no sockets")]
fn two_processes_that_are_one_rank_are_told_and_the_world_goes_on() {
    let place = local("twice");
    let zero = World::of(launch(0, 2, &place), SOON).unwrap();
    let one = World::of(launch(1, 2, &place), SOON).unwrap();
    for rank in [0, 1] {
        let error = World::of(launch(rank, 2, &place), SOON).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument);
        assert_eq!(error.ranks(), [rank], "{error}");
        assert!(error.reason().contains("already"), "{error}");
    }
    let error = World::of(launch(1, 3, &place), SOON).unwrap_err();
    assert_eq!((error.kind(), error.ranks()), (ErrorKind::SizeMismatch, [1].as_slice()), "{error}");
    zero.rendezvous("g").unwrap().post("key", b"value").unwrap();
    assert!(one.rendezvous("g").unwrap().look_up("key").unwrap().is_some());
}

#[cfg(target_os = "linux")]
#[test]
#[cfg_attr(miri, ignore = "miri has no sockets")]
fn a_rank_0_that_does_not_come_is_told_at_the_deadline() {
    let error = World::of(launch(1, 2, &local("absent")), Duration::ZERO).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::DeadlineExceeded, "{error}");
    assert!(error.reason().contains("rank 1"), "{error}");
}

#[test]
fn one_rank_alone_needs_no_place() {
    let world = World::of(launch(0, 1, &Place::Alone), SOON).unwrap();
    let at = world.rendezvous("g").unwrap();
    assert_eq!((at.rank(), at.ranks()), (0, 1));
    let met: Met<Paper> = meet(&*at, &Device::cpu(0), &GroupConfig::default()).unwrap();
    assert_eq!(met.id.devices().len(), 1);
}

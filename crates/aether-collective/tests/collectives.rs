//! What one device has joined.
#![allow(clippy::unwrap_used)]

mod common;

use aether_collective::{Collectives, Group};
use aether_core::{Device, Error, ErrorKind};
use aether_host::Host;
use common::{config, devices, until, view_mut};

/// Runs one thread a device, each with what its device has joined.
fn each(devices: &[Device], run: impl Fn(usize, Collectives<Host>) + Sync) {
    std::thread::scope(|scope| {
        for (rank, device) in devices.iter().enumerate() {
            let run = &run;
            scope.spawn(move || run(rank, Collectives::new(device.clone())));
        }
    });
}

#[test]
fn groups_are_found_by_their_devices_in_any_order_and_their_name() {
    let list = devices(3);
    each(&list, |rank, mut joined| {
        let pair = &list[..2];
        joined.join(&list, &config()).unwrap();
        joined.join(&list, &config().named("other")).unwrap();
        if rank < 2 {
            joined.join(pair, &config()).unwrap().barrier().unwrap();
        }
        let mixed = [list[2].clone(), list[0].clone(), list[1].clone()];
        let mut sums = [1i64, 10, 100];
        let mut add = |group: &mut Group<Host>, at: usize| {
            let view = &mut view_mut(&mut sums[at..=at]);
            group.all_reduce_in_place(view, aether_collective::ReduceOp::Sum).unwrap();
        };
        add(joined.group(&mixed, None).unwrap(), 0);
        add(joined.group(&mixed, Some("other")).unwrap(), 1);
        if rank < 2 {
            add(joined.group(pair, None).unwrap(), 2);
        }
        assert_eq!(sums, [3, 30, if rank < 2 { 200 } else { 100 }]);
        assert_eq!(joined.groups().len(), if rank < 2 { 3 } else { 2 });
        assert_eq!(joined.device(), &list[rank]);
        joined.finish(&mixed, Some("other")).unwrap();
        let gone = joined.finish(&mixed, Some("other")).unwrap_err();
        assert_eq!(gone.kind(), ErrorKind::NotMember);
        joined.group(&list, None).unwrap().barrier().unwrap();
    });
}

#[test]
fn each_reason_not_to_find_a_group_is_told_apart() {
    let list = devices(3);
    let mut joined = Collectives::<Host>::new(list[0].clone());
    let mut check = |devices: &[Device], name, kind, words: &str| {
        let error = joined.group(devices, name).map(drop).unwrap_err();
        assert_eq!(error.kind(), kind, "{error}");
        assert!(error.reason().contains(words), "{error}");
    };
    check(&[], None, ErrorKind::Empty, "at least one device");
    let twice = [list[0].clone(), list[1].clone(), list[1].clone()];
    let named = format!("two devices of the list are named {}", list[1]);
    check(&twice, None, ErrorKind::DuplicateDevice, &named);
    check(&list[1..], None, ErrorKind::NotMember, "not in the list");
    check(&list, None, ErrorKind::NotMember, "never joined");
    joined.join(&list[..1], &config()).unwrap();
    let mut check = |devices: &[Device], name, kind| {
        assert_eq!(joined.group(devices, name).map(drop).unwrap_err().kind(), kind);
    };
    check(&list[..2], None, ErrorKind::NotMember);
    check(&list[..1], Some("other"), ErrorKind::NotMember);
    let joining = joined.join(&list[1..], &config()).map(drop).unwrap_err();
    assert_eq!(joining.kind(), ErrorKind::NotMember);
    let again = joined.join(&list[..1], &config()).map(drop).unwrap_err();
    assert_eq!(again.kind(), ErrorKind::InvalidArgument, "it lives");
}

#[test]
fn a_broken_group_is_refused_and_makes_room_for_a_new_one() {
    let list = devices(2);
    each(&list, |rank, mut joined| {
        let group = joined.join(&list, &config()).unwrap();
        let first = group.id().generation();
        // Who joins a group that is broken by then is told so at once.
        group.barrier().unwrap();
        if rank == 0 {
            group.abort(&Error::new(ErrorKind::Parse, "read a batch", "line 7 is ragged"));
        }
        until(|| joined.group(&list, None).is_err());
        let error = joined.group(&list, None).map(drop).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::GroupBroken);
        assert!(error.reason().contains("line 7 is ragged"), "{error}");
        let group = joined.join(&list, &config()).unwrap();
        assert!(group.id().generation() > first);
        group.barrier().unwrap();
        assert_eq!(joined.groups().len(), 1);
        joined.finish(&list, None).unwrap();
    });
}

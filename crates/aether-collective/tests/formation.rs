//! How the members of a group in one process find each other.
#![allow(clippy::unwrap_used)]

mod common;

use std::time::{Duration, Instant};

use aether_collective::{Group, GroupSet};
use aether_core::{Device, ErrorKind};
use aether_host::Host;
use common::{config, devices, each_rank, view, view_mut};

#[test]
fn ranks_are_places_among_the_sorted_devices_whatever_the_order_of_the_list() {
    let sorted = devices(3);
    let mixed = [sorted[2].clone(), sorted[0].clone(), sorted[1].clone()];
    let mut set = GroupSet::<Host>::join_with(&mixed, &config()).unwrap();
    assert_eq!(set.devices(), sorted);
    assert_eq!(set.ranks(), 3);
    let ids: Vec<_> = sorted.iter().map(Device::id).collect();
    assert_eq!(set.id().devices(), ids);
    set.barrier().unwrap();
    drop(set);
    std::thread::scope(|scope| {
        for (rank, device) in sorted.iter().enumerate() {
            let mixed = &mixed;
            scope.spawn(move || {
                let group = Group::<Host>::join_with(mixed, device, &config()).unwrap();
                assert_eq!((group.rank(), group.device()), (rank, device));
            });
        }
    });
}

#[test]
fn a_list_that_is_no_group_is_refused() {
    let some = devices(3);
    let twice = [some[0].clone(), some[1].clone(), some[0].clone()];
    let one = |list: &[Device]| Group::<Host>::join(list, &some[0]).map(drop).unwrap_err();
    let all = |list: &[Device]| GroupSet::<Host>::join(list).map(drop).unwrap_err();
    assert_eq!(one(&[]).kind(), ErrorKind::Empty);
    assert_eq!(all(&[]).kind(), ErrorKind::Empty);
    assert_eq!(one(&twice).kind(), ErrorKind::DuplicateDevice);
    assert_eq!(all(&twice).kind(), ErrorKind::DuplicateDevice);
    assert_eq!(one(&twice).place(), Some(some[0].to_string().as_str()));
    let error = one(&some[1..]);
    assert_eq!((error.kind(), error.place()), (ErrorKind::NotMember, Some(&*some[0].to_string())));
}

#[test]
fn who_comes_too_late_and_who_waited_get_the_same_error_and_a_new_group_can_form() {
    let list = devices(4);
    let hurried = config().with_deadline(Duration::from_millis(200));
    let join = |rank: usize| {
        let began = Instant::now();
        let error = Group::<Host>::join_with(&list, &list[rank], &hurried).map(drop).unwrap_err();
        assert!(began.elapsed() < Duration::from_secs(10));
        error
    };
    std::thread::scope(|scope| {
        let others: Vec<_> = [0, 3].map(|rank| scope.spawn(move || join(rank))).into();
        for error in others.into_iter().map(|it| it.join().unwrap()) {
            assert_eq!(error.kind(), ErrorKind::DeadlineExceeded, "{error}");
            assert_eq!(error.ranks(), [1, 2]);
            let absent = format!("rank 1 ({}), rank 2 ({})", list[1], list[2]);
            assert!(error.reason().contains(&absent), "{error}");
        }
    });
    let mut set = GroupSet::<Host>::join_with(&list, &hurried).unwrap();
    set.barrier().unwrap();
}

#[test]
fn living_groups_of_the_same_devices_need_names() {
    let list = devices(2);
    let first = GroupSet::<Host>::join_with(&list, &config()).unwrap();
    let again = || GroupSet::<Host>::join_with(&list, &config());
    let error = again().map(drop).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
    let one = Group::<Host>::join_with(&list, &list[1], &config()).map(drop).unwrap_err();
    assert_eq!((one.kind(), one.ranks()), (ErrorKind::InvalidArgument, [1].as_slice()));
    let named = GroupSet::<Host>::join_with(&list, &config().named("second")).unwrap();
    assert_eq!((first.id().name(), named.id().name()), (None, Some("second")));
    // Some of the devices, and more of them, are other groups.
    drop(GroupSet::<Host>::join_with(&list[..1], &config()).unwrap());
    let earlier = first.id().generation();
    drop(first);
    assert!(again().unwrap().id().generation() > earlier);
}

#[test]
fn groups_with_names_keep_their_calls_apart() {
    let list = devices(2);
    let join = |name: &str| GroupSet::<Host>::join_with(&list, &config().named(name)).unwrap();
    let (mut one, mut two) = (join("one"), join("two"));
    let mut buffers = [[1i64, 2], [3, 4]];
    for _ in 0..10 {
        let (left, right) = buffers.split_at_mut(1);
        let mut views = [view_mut(&mut left[0]), view_mut(&mut right[0])];
        one.broadcast_in_place(&mut views, 0).unwrap();
        two.broadcast_in_place(&mut views, 1).unwrap();
    }
    assert_eq!(buffers, [[1, 2], [1, 2]]);
}

#[test]
fn a_thousand_groups_of_the_same_devices_form_one_after_the_other() {
    let list = devices(3);
    let mut last = 0;
    for _ in 0..1000 {
        let mut set = GroupSet::<Host>::join_with(&list, &config()).unwrap();
        set.barrier().unwrap();
        assert!(set.id().generation() > last);
        last = set.id().generation();
    }
}

#[test]
fn members_of_one_group_say_the_same_identity() {
    let ids = std::sync::Mutex::new(Vec::new());
    each_rank(4, |mut group: Group<Host>| {
        group.barrier().unwrap();
        ids.lock().unwrap().push(group.id().clone());
    });
    let ids = ids.into_inner().unwrap();
    assert_eq!(ids.len(), 4);
    assert!(ids.iter().all(|it| *it == ids[0]));
}

#[test]
fn a_group_of_one_rank_copies() {
    let mut set = GroupSet::<Host>::join_with(&devices(1), &config()).unwrap();
    let (src, mut dst) = ([5i64, 7], [0; 2]);
    set.all_gather(&[view(&src)], &mut [view_mut(&mut dst)]).unwrap();
    assert_eq!(dst, src);
}

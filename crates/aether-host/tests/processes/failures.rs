//! What is said when ranks that are processes differ, leave, die, stop or don't come.

use std::time::Duration;

use aether_collective::{Group, InProcess, ReduceOp};
use aether_core::{Chunk, Device, Error, ErrorKind, Result, View, ViewMut};
use aether_host::Host;

use crate::common::says;
use crate::world::{Ranks, World, run};

fn sum(group: &mut Group<Host>, memory: &mut [u64]) -> Result<()> {
    let length = memory.len();
    group.all_reduce_in_place(&mut ViewMut::new(memory, [length])?, ReduceOp::Sum)
}

/// That it is this failure, of these ranks: told to the call that it ended, or, to a rank that made its
/// call when another had been told already, as what the group failed of.
fn is(error: &Error, kind: ErrorKind, ranks: &[usize]) {
    assert!([kind, ErrorKind::GroupBroken].contains(&error.kind()), "{error:?}");
    assert_eq!(error.ranks(), ranks, "{error:?}");
}

/// Every rank is told, the one that is alone in what it asked for too.
pub(crate) fn disagreement(world: &World) {
    let mut group = world.join("disagreement");
    sum(&mut group, &mut [1; 5]).unwrap();
    let count = if world.rank == 1 { 7 } else { 5 };
    let error = sum(&mut group, &mut vec![1; count]).unwrap_err();
    is(&error, ErrorKind::RankMismatch, error.ranks());
    says(&error, &["call 2", "rank 1 (cpu:1) called all_reduce(sum) of 7 u64", "of 5 u64"]);
    assert_eq!(sum(&mut group, &mut [1]).unwrap_err().kind(), ErrorKind::GroupBroken);
}

pub(crate) fn messages_that_disagree(world: &World) {
    let mut group = world.join("messages");
    let error = match world.rank {
        0 => group.send(&View::new(&[1u8; 3], [3]).unwrap(), 1),
        _ => group.recv(&mut ViewMut::new(&mut [0u8; 4], [4]).unwrap(), 0),
    };
    let error = error.unwrap_err();
    assert_eq!((error.kind(), error.ranks()), (ErrorKind::RankMismatch, [0, 1].as_slice()));
    says(&error, &["rank 0 (cpu:0) sends 3 u8", "rank 1 (cpu:1) receives 4 u8"]);
}

pub(crate) fn a_circle(world: &World) {
    let config = world.config("circle").with_deadline(Duration::from_millis(400));
    let config = config.with_join_deadline(crate::common::PATIENCE);
    let mut group = world.join_with("circle", &config).unwrap();
    let next = (world.rank + 1) % world.ranks;
    let error = group.recv(&mut ViewMut::new(&mut [0u8; 4], [4]).unwrap(), next).unwrap_err();
    is(&error, ErrorKind::Cycle, &[0, 1, 2]);
    says(&error, &["rank 0 (cpu:0) waits in recv from rank 1 of 4 u8 for rank 1 (cpu:1)"]);
}

pub(crate) fn one_leaves(world: &World) {
    let mut group = world.join("leaves");
    sum(&mut group, &mut vec![1; 100_000]).unwrap();
    if world.rank == 1 {
        group.finish().unwrap();
        // It stays: a process that has left a group is not one that has ended.
        world.hear("all were told");
        return;
    }
    let error = sum(&mut group, &mut [1]).unwrap_err();
    is(&error, ErrorKind::RankDied, &[1]);
    says(&error, &["rank 1 (cpu:1) will never make this call: it left the group"]);
    world.say(&format!("{} was told", world.rank));
    if world.rank == 0 {
        world.hear("2 was told");
        world.say("all were told");
    }
}

pub(crate) fn one_dies(world: &World) {
    let mut group = world.join("dies");
    let mut memory = vec![1u64; 400_000];
    sum(&mut group, &mut memory).unwrap();
    world.say(&format!("{} is ready", world.rank));
    // Rank 1 is killed somewhere among these.
    let error = (0..).find_map(|_| sum(&mut group, &mut memory).err()).unwrap();
    is(&error, ErrorKind::RankDied, &[1]);
    says(&error, &["rank 1 (cpu:1) will never make this call: its process (", ") ended"]);
}

/// The others are told at the deadline; when the one goes on it changes no byte of theirs, and is told.
pub(crate) fn one_stops(world: &World) {
    let config = world.config("stops").with_deadline(Duration::from_millis(700));
    let config = config.with_join_deadline(crate::common::PATIENCE);
    let mut group = world.join_with("stops", &config).unwrap();
    let mut memory = vec![1u64; 300_000];
    sum(&mut group, &mut memory).unwrap();
    world.say(&format!("{} is ready", world.rank));
    let error = (0..).find_map(|_| sum(&mut group, &mut memory).err()).unwrap();
    if world.rank == 1 {
        // It was stopped itself, for longer than the deadline.
        return;
    }
    is(&error, ErrorKind::DeadlineExceeded, &[1]);
    says(&error, &["rank 1 (cpu:1) did not come"]);
    memory.iter_mut().enumerate().for_each(|(at, it)| *it = at as u64);
    world.say(&format!("{} was told", world.rank));
    world.hear("rank 1 has ended");
    assert!(memory.iter().enumerate().all(|(at, it)| *it == at as u64));
}

pub(crate) fn none_comes(world: &World) {
    // All meet, and rank 2 is gone before it joins: the meeting is not yet the group.
    let config = world.config("none").with_deadline(Duration::from_millis(500));
    if world.rank == 2 {
        return;
    }
    let error = world.join_with("none", &config).unwrap_err();
    assert_eq!((error.kind(), error.ranks()), (ErrorKind::DeadlineExceeded, [2].as_slice()));
}

fn open_files() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

/// Neither files nor threads nor memory are left of groups that are over.
pub(crate) fn groups_come_and_go(world: &World) {
    let mut files = 0;
    for round in 0..30 {
        let mut group = world.join(&format!("group {round}"));
        sum(&mut group, &mut [1; 2000]).unwrap();
        group.finish().unwrap();
        if round == 2 {
            files = open_files();
        }
    }
    let until = std::time::Instant::now() + crate::common::PATIENCE;
    // The ear lets go of the last group's files when it next looks.
    while open_files() > files {
        assert!(std::time::Instant::now() < until, "{files} files became {}", open_files());
        std::thread::sleep(Duration::from_millis(2));
    }
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    assert!(maps.matches("aether-rank").count() <= 2 * world.ranks + 2, "{maps}");
}

/// Two ranks of one process beside one of another.
pub(crate) fn a_rank_twice(world: &World) {
    // In one process a rendezvous of threads: all is as it was.
    let handles = InProcess::new(2);
    std::thread::scope(|scope| {
        for at in &handles {
            scope.spawn(move || {
                let device = Device::cpu(aether_collective::Rendezvous::rank(at) as u32);
                let mut group = Group::<Host>::join_at(at, &device, &Default::default()).unwrap();
                group.barrier().unwrap();
                let chunk = Chunk::from_vec(&device, vec![1u8]).unwrap();
                drop(chunk);
            });
        }
    });
    // The second who says that it is rank 1 is refused by name.
    let mut config = world.config("twice");
    config.join_deadline = crate::common::PATIENCE;
    let first = world.join_with("twice", &config);
    if world.rank == 1 {
        let again = world.join_with("twice", &config).unwrap_err();
        assert_eq!((again.kind(), again.ranks()), (ErrorKind::InvalidArgument, [1].as_slice()));
    }
    first.unwrap().barrier().unwrap();
}

#[test]
fn calls_that_differ_are_told_to_all() {
    run("disagreement", 3);
}

#[test]
fn ends_of_a_message_that_differ_are_told_to_both() {
    run("messages that disagree", 2);
}

#[test]
fn ranks_that_wait_in_a_circle_are_told_at_the_deadline() {
    run("a circle", 3);
}

#[test]
fn who_waits_for_one_that_left_is_told() {
    run("one leaves", 3);
}

#[test]
fn a_rank_that_is_killed_is_named_to_all_others() {
    let mut ranks = Ranks::start("one dies", 3);
    (0..3).for_each(|rank| ranks.hear(&format!("{rank} is ready")));
    ranks.kill(1);
    ranks.finish();
}

#[test]
fn nothing_is_left_of_ranks_that_were_all_killed() {
    let shared = || {
        let entries = std::fs::read_dir("/dev/shm").into_iter().flatten().flatten();
        entries.filter(|it| it.file_name().to_string_lossy().contains("aether")).count()
    };
    let mut ranks = Ranks::start("one dies", 3);
    (0..3).for_each(|rank| ranks.hear(&format!("{rank} is ready")));
    (0..3).for_each(|rank| ranks.kill(rank));
    assert_eq!(shared(), 0);
}

#[test]
fn a_rank_that_was_stopped_changes_nothing_when_it_goes_on() {
    let mut ranks = Ranks::start("one stops", 3);
    (0..3).for_each(|rank| ranks.hear(&format!("{rank} is ready")));
    ranks.signal(1, "-STOP");
    ranks.hear("0 was told");
    ranks.hear("2 was told");
    ranks.signal(1, "-CONT");
    ranks.wait_for(1);
    ranks.say("rank 1 has ended");
    ranks.finish();
}

#[test]
fn ranks_that_do_not_come_are_named() {
    run("none comes", 3);
}

#[test]
fn groups_that_are_over_leave_nothing_behind() {
    run("groups come and go", 2);
}

#[test]
fn who_comes_twice_is_refused_and_the_others_go_on() {
    run("a rank twice", 2);
}

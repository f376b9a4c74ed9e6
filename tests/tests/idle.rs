//! A rank that waits for long leaves its core to others.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used)]

use std::time::Duration;

use aether::{Device, Group, GroupConfig, Host};

/// How long the calling thread has run on a core.
fn time_on_a_core() -> Duration {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap();
    Duration::from_nanos(text.split_whitespace().next().unwrap().parse().unwrap())
}

#[test]
fn a_rank_that_waits_for_another_sleeps() {
    let devices = Device::cpus(2);
    let config = GroupConfig::default().named("idle");
    let join = |rank: usize| Group::<Host>::join_with(&devices, &devices[rank], &config).unwrap();
    let wait = Duration::from_secs(1);
    let used = std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut late = join(0);
            std::thread::sleep(wait);
            late.barrier().unwrap();
        });
        let mut early = join(1);
        let before = time_on_a_core();
        early.barrier().unwrap();
        time_on_a_core() - before
    });
    // A twentieth of the time after the first 100 ms, in which it may look all the time.
    let most = Duration::from_millis(100) + wait / 20;
    assert!(used < most, "it ran for {used:?} of {wait:?}");
}

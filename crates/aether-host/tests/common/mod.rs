//! What the tests of the host driver share.
#![allow(dead_code, clippy::unwrap_used, clippy::panic, clippy::expect_used)]

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc;
use std::time::Duration;

use aether_collective::{Group, GroupConfig, GroupSet};
use aether_core::{Device, Error};
use aether_host::Host;

/// How long a test may take before it counts as hanging. Far more than it needs on a busy machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(120);

/// Runs a test on a thread of its own, and fails rather than hangs with it.
pub(crate) fn within<R: Send + 'static>(
    time: Duration,
    test: impl FnOnce() -> R + Send + 'static,
) -> R {
    let (sender, receiver) = mpsc::channel();
    let thread = std::thread::spawn(move || {
        let result = test();
        // Nobody listens if the time was over.
        let _ = sender.send(());
        result
    });
    match receiver.recv_timeout(time) {
        Err(mpsc::RecvTimeoutError::Timeout) => panic!("still not done after {time:?}"),
        // It is done, or it panicked and dropped the sender.
        _ => match thread.join() {
            Ok(result) => result,
            Err(panic) => std::panic::resume_unwind(panic),
        },
    }
}

/// A configuration whose group no other test of the process can meet.
pub(crate) fn config() -> GroupConfig {
    static NUMBER: AtomicU64 = AtomicU64::new(0);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    GroupConfig::default().with_deadline(PATIENCE / 2).named(format!("test {number}"))
}

/// As [`config`], with a deadline so short that the test can wait for it.
pub(crate) fn impatient(deadline: Duration) -> GroupConfig {
    let mut config = config();
    config.deadline = deadline;
    config
}

/// All ranks of a new group in one hand.
pub(crate) fn set(ranks: usize) -> GroupSet<Host> {
    set_with(ranks, &config())
}

pub(crate) fn set_with(ranks: usize, config: &GroupConfig) -> GroupSet<Host> {
    GroupSet::join_with(&Device::cpus(ranks as u32), config).unwrap()
}

/// Each rank of a new group on a thread of its own; what they give, by rank.
pub(crate) fn threads<R: Send>(
    ranks: usize,
    config: &GroupConfig,
    each: impl Fn(usize, Group<Host>) -> R + Sync,
) -> Vec<R> {
    let devices = Device::cpus(ranks as u32);
    std::thread::scope(|scope| {
        let (devices, each) = (&devices, &each);
        let thread = |rank: usize| {
            scope.spawn(move || {
                let group = Group::join_with(devices, &devices[rank], config).unwrap();
                assert_eq!(group.rank(), rank);
                each(rank, group)
            })
        };
        let threads: Vec<_> = (0..ranks).map(thread).collect();
        let join = |it: std::thread::ScopedJoinHandle<'_, R>| match it.join() {
            Ok(result) => result,
            Err(panic) => std::panic::resume_unwind(panic),
        };
        threads.into_iter().map(join).collect()
    })
}

/// A small mixing function: data that depends on every one of its inputs.
pub(crate) fn mix(mut it: u64) -> u64 {
    it = (it ^ (it >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    it = (it ^ (it >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    it ^ (it >> 31)
}

/// Whether the message contains all of these words.
pub(crate) fn says(error: &Error, words: &[&str]) {
    let message = error.to_string();
    for word in words {
        assert!(message.contains(word), "`{word}` is missing in: {message}");
    }
}

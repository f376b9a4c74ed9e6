//! Waiting and waking in every interleaving, on the product's own source: run with
//! `RUSTFLAGS="--cfg loom" cargo test --release -p aether-core --test loom`.
#![cfg(loom)]
#![allow(dead_code, unused_imports, clippy::unwrap_used)]

#[path = "../src/gate.rs"]
mod gate;
#[path = "../src/listed.rs"]
mod listed;
#[path = "../src/sync.rs"]
mod sync;

use std::time::Duration;

use gate::Gate;
use listed::Listed;
use loom::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use loom::sync::{Arc, Mutex};
use loom::thread;

/// Waits as `progress::wait_until` does, without a time: a wake-up that is lost is a deadlock, which
/// loom reports.
fn wait(gate: &Gate, happened: impl Fn() -> bool) {
    while !happened() {
        let entered = gate.enter();
        if happened() {
            return;
        }
        entered.sleep(Duration::MAX);
    }
}

/// So many threads wait until all of so many others have changed something and rung.
fn wakes(waiters: usize, announcers: usize) {
    let mut builder = loom::model::Builder::new();
    // Every interleaving with up to three switches away from a thread that could go on.
    builder.preemption_bound = if waiters + announcers > 2 { Some(3) } else { None };
    builder.check(move || {
        let gate = Arc::new(Gate::new());
        let changes = Arc::new(AtomicUsize::new(0));
        let mut threads = Vec::new();
        for _ in 0..announcers {
            let (gate, changes) = (gate.clone(), changes.clone());
            threads.push(thread::spawn(move || {
                changes.fetch_add(1, Ordering::Release);
                gate.ring();
            }));
        }
        for _ in 1..waiters {
            let (gate, changes) = (gate.clone(), changes.clone());
            threads.push(thread::spawn(move || {
                wait(&gate, || changes.load(Ordering::Acquire) == announcers);
            }));
        }
        wait(&gate, || changes.load(Ordering::Acquire) == announcers);
        for thread in threads {
            thread.join().unwrap();
        }
    });
}

#[test]
fn no_wake_up_is_lost_between_one_and_one() {
    wakes(1, 1);
}

#[test]
fn no_wake_up_is_lost_between_one_waiter_and_two_announcers() {
    wakes(1, 2);
}

#[test]
fn no_wake_up_is_lost_between_two_waiters_and_one_announcer() {
    wakes(2, 1);
}

#[test]
fn two_may_wait_for_each_other_in_turns() {
    loom::model(|| {
        let gate = Arc::new(Gate::new());
        let turn = Arc::new(AtomicUsize::new(0));
        let other = {
            let (gate, turn) = (gate.clone(), turn.clone());
            thread::spawn(move || {
                wait(&gate, || turn.load(Ordering::Acquire) == 1);
                turn.store(2, Ordering::Release);
                gate.ring();
            })
        };
        turn.store(1, Ordering::Release);
        gate.ring();
        wait(&gate, || turn.load(Ordering::Acquire) == 2);
        other.join().unwrap();
    });
}

/// A copy of the gate, with one mistake at a time: each has to be caught, or the tests above would
/// prove nothing.
mod mistaken {
    use loom::sync::atomic::{AtomicBool, AtomicUsize, Ordering, fence};
    use loom::sync::{Arc, Condvar, Mutex};
    use loom::thread;

    pub(super) const ALL: [Mistake; 5] = [
        Mistake::NoFence,
        Mistake::NoRing,
        Mistake::NoSecondLook,
        Mistake::RingBeforeChange,
        Mistake::RingOutsideOfTheLock,
    ];

    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub(super) enum Mistake {
        None,
        NoFence,
        NoRing,
        NoSecondLook,
        RingBeforeChange,
        RingOutsideOfTheLock,
    }

    struct Copied {
        epoch: AtomicUsize,
        inside: AtomicUsize,
        lock: Mutex<()>,
        bell: Condvar,
        mistake: Mistake,
    }

    impl Copied {
        fn wait(&self, happened: impl Fn() -> bool) {
            while !happened() {
                self.inside.fetch_add(1, Ordering::SeqCst);
                let seen = self.epoch.load(Ordering::SeqCst);
                fence(Ordering::SeqCst);
                if self.mistake == Mistake::NoSecondLook || !happened() {
                    let held = self.lock.lock().unwrap();
                    if self.epoch.load(Ordering::SeqCst) == seen {
                        drop(self.bell.wait(held).unwrap());
                    }
                }
                self.inside.fetch_sub(1, Ordering::SeqCst);
            }
        }

        fn ring(&self) {
            if self.mistake != Mistake::NoFence {
                fence(Ordering::SeqCst);
            }
            if self.inside.load(Ordering::SeqCst) == 0 {
                return;
            }
            if self.mistake == Mistake::RingOutsideOfTheLock {
                self.epoch.fetch_add(1, Ordering::SeqCst);
            } else {
                let held = self.lock.lock().unwrap();
                self.epoch.fetch_add(1, Ordering::SeqCst);
                drop(held);
            }
            self.bell.notify_all();
        }
    }

    pub(super) fn check(mistake: Mistake) {
        loom::model(move || {
            let gate = Arc::new(Copied {
                epoch: AtomicUsize::new(0),
                inside: AtomicUsize::new(0),
                lock: Mutex::new(()),
                bell: Condvar::new(),
                mistake,
            });
            let happened = Arc::new(AtomicBool::new(false));
            let announcer = {
                let (gate, happened) = (gate.clone(), happened.clone());
                thread::spawn(move || {
                    if mistake == Mistake::RingBeforeChange {
                        gate.ring();
                    }
                    happened.store(true, Ordering::Release);
                    if !matches!(mistake, Mistake::NoRing | Mistake::RingBeforeChange) {
                        gate.ring();
                    }
                })
            };
            gate.wait(|| happened.load(Ordering::Acquire));
            announcer.join().unwrap();
        });
    }
}

/// Loom reports a deadlock by a panic in the middle of a wait, which ends the process. So a mistake
/// runs in a process of its own, which is this test with a variable set.
const CHILD: &str = "AETHER_LOOM_MISTAKE";

#[test]
fn a_copy_of_the_gate_is_right_without_a_mistake() {
    let mistake = std::env::var(CHILD).ok().and_then(|it| it.parse::<usize>().ok());
    mistaken::check(mistake.map_or(mistaken::Mistake::None, |at| mistaken::ALL[at]));
}

#[test]
fn every_mistake_is_caught() {
    for (at, mistake) in mistaken::ALL.iter().enumerate() {
        let output = std::process::Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "a_copy_of_the_gate_is_right_without_a_mistake", "--nocapture"])
            .env(CHILD, at.to_string())
            .env("RUST_BACKTRACE", "0")
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success(), "{mistake:?} is not caught");
        assert!(said.contains("deadlock"), "{mistake:?} ended otherwise: {said}");
    }
}

/// One queue, as far as its place in the list goes: how much work it has.
#[derive(Debug)]
struct Queue {
    work: Mutex<usize>,
    listed: Listed,
}

/// Who pushes lists the queue; the worker runs what is listed and delists what is idle. In the end
/// either nothing is left to do or the queue is listed, and it is never listed twice.
fn lists(pushers: usize, delist: fn(&Queue, &Mutex<Vec<usize>>)) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = if pushers > 1 { Some(3) } else { None };
    builder.check(move || {
        // Listed, and run empty: as a queue is for a while after its last work.
        let queue = Arc::new(Queue { work: Mutex::new(0), listed: Listed::new() });
        assert!(queue.listed.claim());
        let list = Arc::new(Mutex::new(vec![usize::MAX]));
        let threads: Vec<_> = (0..pushers)
            .map(|at| {
                let (queue, list) = (queue.clone(), list.clone());
                thread::spawn(move || {
                    *queue.work.lock().unwrap() += 1;
                    if queue.listed.claim() {
                        list.lock().unwrap().push(at);
                    }
                })
            })
            .collect();
        for _ in 0..2 {
            if !list.lock().unwrap().is_empty() {
                *queue.work.lock().unwrap() = 0;
            }
            delist(&queue, &list);
        }
        for thread in threads {
            thread.join().unwrap();
        }
        let listed = list.lock().unwrap().len();
        let left = *queue.work.lock().unwrap();
        assert!(listed <= 1, "listed {listed} times");
        assert!(left == 0 || listed == 1, "{left} left to do, and not listed");
    });
}

/// As `progress` does it.
fn delist(queue: &Queue, list: &Mutex<Vec<usize>>) {
    let is_idle = || *queue.work.lock().unwrap() == 0;
    let mut list = list.lock().unwrap();
    if !list.is_empty() && is_idle() && queue.listed.release(is_idle) {
        list.pop();
    }
}

/// The same without the second look.
fn delist_blindly(queue: &Queue, list: &Mutex<Vec<usize>>) {
    let is_idle = || *queue.work.lock().unwrap() == 0;
    let mut list = list.lock().unwrap();
    if !list.is_empty() && is_idle() && queue.listed.release(|| true) {
        list.pop();
    }
}

#[test]
fn a_queue_with_work_is_listed() {
    lists(1, delist);
}

#[test]
fn a_queue_that_two_give_work_is_listed_once() {
    lists(2, delist);
}

#[test]
#[should_panic = "not listed"]
fn delisting_without_a_second_look_is_caught() {
    lists(1, delist_blindly);
}

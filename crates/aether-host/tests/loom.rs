//! All interleavings of a round, on the product's own source: ranks arrive, the last starts, threads
//! take slices, somebody closes, and the round serves the next call.
//!
//! `RUSTFLAGS='--cfg loom' cargo test --release -p aether-host --test loom`
#![cfg(loom)]
#![allow(dead_code, unreachable_pub, clippy::unwrap_used, clippy::panic)]

#[path = "../src/round.rs"]
mod round;

/// What stands in for the product's `src/sync.rs`: loom's atomics, one of which a test may weaken.
mod sync {
    use std::cell::Cell;

    use loom::sync::atomic as real;
    pub(crate) use loom::sync::atomic::Ordering;

    thread_local! {
        // Loom runs the threads of a model in turns on the thread of its test.
        static MADE: Cell<usize> = const { Cell::new(0) };
        static WEAK: Cell<Option<usize>> = const { Cell::new(None) };
    }

    /// Makes the accesses of one of the round's atomics relaxed: the `which`th that it makes.
    pub(crate) fn weaken(which: usize) {
        WEAK.set(Some(which));
    }

    #[derive(Debug)]
    pub(crate) struct AtomicU64 {
        it: real::AtomicU64,
        which: usize,
    }

    impl AtomicU64 {
        pub(crate) fn new(value: u64) -> Self {
            let which = MADE.get() % 4;
            MADE.set(which + 1);
            Self { it: real::AtomicU64::new(value), which }
        }

        fn order(&self, order: Ordering) -> Ordering {
            if WEAK.get() == Some(self.which) { Ordering::Relaxed } else { order }
        }

        pub(crate) fn load(&self, order: Ordering) -> u64 {
            self.it.load(self.order(order))
        }

        pub(crate) fn store(&self, value: u64, order: Ordering) {
            self.it.store(value, self.order(order));
        }

        pub(crate) fn fetch_add(&self, value: u64, order: Ordering) -> u64 {
            self.it.fetch_add(value, self.order(order))
        }

        pub(crate) fn compare_exchange(
            &self,
            from: u64,
            to: u64,
            success: Ordering,
            failure: Ordering,
        ) -> Result<u64, u64> {
            self.it.compare_exchange(from, to, self.order(success), self.order(failure))
        }

        pub(crate) fn compare_exchange_weak(
            &self,
            from: u64,
            to: u64,
            success: Ordering,
            failure: Ordering,
        ) -> Result<u64, u64> {
            self.compare_exchange(from, to, success, failure)
        }
    }
}

use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::sync::atomic::{AtomicUsize, Ordering};
use loom::thread;
use round::{Claim, Round};

const SLICES: u64 = 2;
const RANKS: u64 = 2;

/// The memory of a call: what the slices are, written by the last to arrive, and what they write. Loom
/// fails a test in which two accesses of one cell aren't ordered.
struct Call {
    entries: [UnsafeCell<u64>; RANKS as usize],
    layout: UnsafeCell<u64>,
    written: [UnsafeCell<u64>; SLICES as usize],
    inside: AtomicUsize,
}

impl Call {
    fn new() -> Self {
        Self {
            entries: [UnsafeCell::new(0), UnsafeCell::new(0)],
            layout: UnsafeCell::new(0),
            written: [UnsafeCell::new(0), UnsafeCell::new(0)],
            inside: AtomicUsize::new(0),
        }
    }
}

struct Shared {
    round: Round,
    calls: [Call; 2],
}

impl Shared {
    fn new() -> Arc<Self> {
        Arc::new(Self { round: Round::new(0), calls: [Call::new(), Call::new()] })
    }

    /// As the product's `arrive` and `begin`. The round serves every second call, so its calls are
    /// number 0, 2, and so on.
    fn arrive(&self, rank: usize, use_: u64) {
        let call = use_ * 2;
        self.round.open(call);
        let memory = &self.calls[use_ as usize];
        memory.entries[rank].with_mut(|it| unsafe { *it = call + 1 });
        if self.round.arrive(RANKS, use_) {
            for entry in &memory.entries {
                assert_eq!(entry.with(|it| unsafe { *it }), call + 1);
            }
            memory.layout.with_mut(|it| unsafe { *it = call + 1 });
            self.round.start(call, SLICES);
        }
    }

    /// One look, as the product's poll: true if the call has ended, well (`Over`) or not.
    fn look(&self, use_: u64) -> Option<Claim> {
        let memory = &self.calls[use_ as usize];
        match self.round.claim(use_ * 2) {
            Claim::Slice(slice) => {
                memory.inside.fetch_add(1, Ordering::Relaxed);
                assert_eq!(memory.layout.with(|it| unsafe { *it }), use_ * 2 + 1);
                // Exactly once: a second time would find it written, or race.
                memory.written[slice as usize].with_mut(|it| unsafe {
                    assert_eq!(*it, 0, "a slice was run twice");
                    *it = slice + 1;
                });
                memory.inside.fetch_sub(1, Ordering::Relaxed);
                self.round.end_slice();
                None
            }
            Claim::Over => {
                self.check_written(use_);
                Some(Claim::Over)
            }
            Claim::Closed => {
                // The owner of the memory writes it now: nobody may be inside.
                assert_eq!(memory.inside.load(Ordering::Relaxed), 0);
                Some(Claim::Closed)
            }
            Claim::AllTaken | Claim::Waiting | Claim::Closing => {
                thread::yield_now();
                None
            }
        }
    }

    fn finish(&self, use_: u64) -> Claim {
        loop {
            if let Some(end) = self.look(use_) {
                return end;
            }
        }
    }

    fn check_written(&self, use_: u64) {
        for (slice, cell) in self.calls[use_ as usize].written.iter().enumerate() {
            assert_eq!(cell.with(|it| unsafe { *it }), slice as u64 + 1, "a slice was left out");
        }
    }
}

#[test]
fn every_slice_is_run_once_and_seen_by_whoever_sees_the_end() {
    loom::model(|| {
        let shared = Shared::new();
        let other = shared.clone();
        let thread = thread::spawn(move || {
            other.arrive(1, 0);
            assert_eq!(other.finish(0), Claim::Over);
        });
        shared.arrive(0, 0);
        assert_eq!(shared.finish(0), Claim::Over);
        thread.join().unwrap();
    });
}

#[test]
fn a_helper_that_belongs_to_no_rank_takes_slices_and_is_waited_for() {
    loom::model(|| {
        let shared = Shared::new();
        shared.arrive(1, 0);
        let helper = shared.clone();
        let thread = thread::spawn(move || helper.look(0));
        shared.arrive(0, 0);
        assert_eq!(shared.finish(0), Claim::Over);
        thread.join().unwrap();
    });
}

/// The closer is a rank whose deadline passed: it has arrived, and leaves with its memory.
#[test]
fn whoever_sees_a_closed_call_may_write_its_memory() {
    loom::model(|| {
        let shared = Shared::new();
        let other = shared.clone();
        let thread = thread::spawn(move || {
            other.arrive(1, 0);
            other.round.close(0);
            let end = other.finish(0);
            if end == Claim::Closed {
                for cell in &other.calls[0].written {
                    // Races, and so fails, if another thread is still inside.
                    cell.with_mut(|it| unsafe { *it = 7 });
                }
            }
            end
        });
        shared.arrive(0, 0);
        let end = shared.finish(0);
        assert_eq!(thread.join().unwrap(), end, "a call ends in one way for all");
    });
}

#[test]
fn a_call_that_all_have_closed_before_it_starts_is_closed_and_never_run() {
    loom::model(|| {
        let shared = Shared::new();
        let other = shared.clone();
        shared.arrive(1, 0);
        let thread = thread::spawn(move || {
            other.round.close(0);
            other.finish(0)
        });
        shared.arrive(0, 0);
        let end = shared.finish(0);
        assert_eq!(thread.join().unwrap(), end);
        if end == Claim::Over {
            shared.check_written(0);
        }
    });
}

#[test]
fn the_round_serves_the_next_call_and_a_late_look_takes_nothing_of_it() {
    loom::model(|| {
        let shared = Shared::new();
        let other = shared.clone();
        let thread = thread::spawn(move || {
            other.arrive(1, 0);
            assert_eq!(other.finish(0), Claim::Over);
            other.arrive(1, 1);
            // Late: the round may be open for the next call, or already run by the other rank.
            assert_eq!(other.round.claim(0), Claim::Over);
            other.round.close(0);
            assert_eq!(other.finish(1), Claim::Over);
        });
        shared.arrive(0, 0);
        assert_eq!(shared.finish(0), Claim::Over);
        shared.arrive(0, 1);
        assert_eq!(shared.finish(1), Claim::Over);
        thread.join().unwrap();
    });
}

/// What the models must catch: each of these breaks one rule of the round's users.
mod mutants {
    use super::*;

    fn two_ranks(end: impl Fn(&Shared) + Send + Sync + Copy + 'static) {
        loom::model(move || {
            let shared = Shared::new();
            let other = shared.clone();
            let thread = thread::spawn(move || {
                other.arrive(1, 0);
                end(&other);
            });
            shared.arrive(0, 0);
            end(&shared);
            thread.join().unwrap();
        });
    }

    fn ordinary(shared: &Shared) {
        assert_eq!(shared.finish(0), Claim::Over);
    }

    #[test]
    #[should_panic = ""]
    fn a_start_that_releases_nothing() {
        sync::weaken(0);
        two_ranks(ordinary);
    }

    #[test]
    #[should_panic = ""]
    fn an_arrival_that_releases_nothing() {
        sync::weaken(1);
        two_ranks(ordinary);
    }

    #[test]
    #[should_panic = ""]
    fn an_end_of_a_slice_that_releases_nothing() {
        sync::weaken(3);
        two_ranks(ordinary);
    }

    #[test]
    #[should_panic = ""]
    fn a_slice_that_is_ended_before_it_is_written() {
        two_ranks(|shared| {
            let memory = &shared.calls[0];
            loop {
                match shared.round.claim(0) {
                    Claim::Slice(slice) => {
                        shared.round.end_slice();
                        memory.written[slice as usize].with_mut(|it| unsafe { *it = slice + 1 });
                    }
                    Claim::Over => break shared.check_written(0),
                    _ => thread::yield_now(),
                }
            }
        });
    }

    #[test]
    #[should_panic = ""]
    fn an_end_that_is_taken_from_all_slices_being_taken() {
        two_ranks(|shared| {
            loop {
                match shared.round.claim(0) {
                    Claim::Slice(slice) => {
                        shared.calls[0].written[slice as usize]
                            .with_mut(|it| unsafe { *it = slice + 1 });
                        shared.round.end_slice();
                    }
                    Claim::Over | Claim::AllTaken => break shared.check_written(0),
                    _ => thread::yield_now(),
                }
            }
        });
    }

    #[test]
    #[should_panic = ""]
    fn a_closed_call_whose_taken_slices_are_not_waited_for() {
        loom::model(|| {
            let shared = Shared::new();
            let other = shared.clone();
            shared.arrive(1, 0);
            let thread = thread::spawn(move || {
                other.round.close(0);
                if matches!(other.round.claim(0), Claim::Closing | Claim::Closed) {
                    for cell in &other.calls[0].written {
                        cell.with_mut(|it| unsafe { *it = 7 });
                    }
                }
            });
            shared.arrive(0, 0);
            shared.finish(0);
            thread.join().unwrap();
        });
    }

    #[test]
    #[should_panic = ""]
    fn a_layout_that_is_written_after_the_start() {
        loom::model(|| {
            let shared = Shared::new();
            let other = shared.clone();
            let thread = thread::spawn(move || {
                other.arrive(1, 0);
                other.finish(0);
            });
            shared.round.open(0);
            shared.calls[0].entries[0].with_mut(|it| unsafe { *it = 1 });
            if shared.round.arrive(RANKS, 0) {
                shared.round.start(0, SLICES);
                shared.calls[0].layout.with_mut(|it| unsafe { *it = 1 });
            }
            shared.finish(0);
            thread.join().unwrap();
        });
    }
}

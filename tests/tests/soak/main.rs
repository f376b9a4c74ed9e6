//! Groups of real processes under load: rounds in which one of them is killed, or stopped and continued,
//! millions of small calls, and what waiting costs.
//!
//! As a test it is short. `cargo xtask soak` runs it for as long as one wants.
#![allow(clippy::unwrap_used, clippy::panic, clippy::expect_used)]

#[cfg(unix)]
mod idle;
#[cfg(unix)]
mod joining;
#[cfg(unix)]
mod long;
#[cfg(unix)]
mod rank;
#[cfg(unix)]
mod round;
#[cfg(unix)]
mod schedule;
#[cfg(unix)]
mod small;
#[cfg(unix)]
mod usage;
#[cfg(unix)]
mod worker;

use std::process::ExitCode;

#[cfg(unix)]
fn main() -> ExitCode {
    use aether_conformance::libtest_mimic::Trial;

    if let Some(code) = worker::serve() {
        return code;
    }
    if let Some(code) = long::run_if_asked() {
        return code;
    }
    let trial = |name: &str, run: fn() -> Result<(), String>| {
        Trial::test(name, move || run().map_err(Into::into))
    };
    aether_conformance::run(vec![
        trial("joining::absent_ranks_are_named", joining::absent_ranks_are_named),
        trial(
            "joining::a_rank_that_comes_twice_is_refused",
            joining::a_rank_that_comes_twice_is_refused,
        ),
        trial(
            "joining::world_sizes_that_differ_are_told_to_both",
            joining::world_sizes_that_differ_are_told_to_both,
        ),
        trial(
            "joining::a_place_that_served_before_is_refused",
            joining::a_place_that_served_before_is_refused,
        ),
        trial(
            "joining::a_place_that_can_not_be_is_refused",
            joining::a_place_that_can_not_be_is_refused,
        ),
        trial(
            "joining::a_limit_of_files_too_small_names_the_rank",
            joining::a_limit_of_files_too_small_names_the_rank,
        ),
        trial("survivors_of_a_kill_or_a_stop_are_told_and_left_alone", round::twenty),
        trial("small_calls_leave_nothing_behind_in_threads", small::in_threads_shortly),
        trial("small_calls_leave_nothing_behind_in_processes", small::in_processes_shortly),
        trial("a_rank_that_waits_sleeps_in_threads", idle::in_threads),
        trial("a_rank_that_waits_sleeps_in_processes", idle::in_processes),
    ])
}

#[cfg(not(unix))]
fn main() -> ExitCode {
    ExitCode::SUCCESS
}

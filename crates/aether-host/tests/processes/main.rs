//! Groups whose ranks are processes.
#![allow(clippy::unwrap_used, clippy::panic, clippy::expect_used)]
#![cfg(not(miri))]

#[path = "../properties/case.rs"]
#[allow(dead_code)]
mod case;
#[path = "../common/mod.rs"]
mod common;
mod failures;
#[path = "../properties/reference.rs"]
mod reference;
mod results;
mod world;

use world::World;

/// What the processes of the tests do, and its name.
type Case = (&'static str, fn(&World));

const CASES: &[Case] = &[
    ("disagreement", failures::disagreement),
    ("messages that disagree", failures::messages_that_disagree),
    ("a circle", failures::a_circle),
    ("one leaves", failures::one_leaves),
    ("one dies", failures::one_dies),
    ("one stops", failures::one_stops),
    ("none comes", failures::none_comes),
    ("groups come and go", failures::groups_come_and_go),
    ("a rank twice", failures::a_rank_twice),
    ("collectives", results::collectives),
    ("on the heap", results::on_the_heap),
    ("large", results::large),
    ("small after small", results::small_after_small),
];

/// Not a test: what a process does that a test has started. In the test's own process it does nothing.
#[test]
fn this_is_a_rank() {
    let Some((case, world)) = World::of_this_process() else { return };
    let (_, run) = CASES.iter().find(|it| it.0 == case).expect("a case of this name");
    common::within(common::PATIENCE, move || run(&world));
}

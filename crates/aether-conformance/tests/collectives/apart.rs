//! The host's driver with a worker for each rank: in processes, on plain memory and on that of the shared
//! heap; and, a part of the suite, in threads, which shows what the way to the workers itself does.

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use aether_collective::GroupConfig;
use aether_conformance::checked::Checked;
use aether_conformance::collectives::subject::Fixed;
use aether_conformance::collectives::{self, Case, CollectiveFixture};
use aether_conformance::processes::{self, Processes, Remote};
use aether_core::{Device, Result};
use aether_host::Host;
use libtest_mimic::Trial;

use crate::broken::Broken;
use crate::defect::Defect::{self, *};
use crate::host::OnTheHost;
use crate::mutants::caught;

/// Defects of a driver in workers, none of which sees what the others bring.
const MUTANTS: &[(Defect, &str)] = &[
    (LastElementUnwritten, "shapes::large_messages"),
    (WritesBehindTheEnd, "shapes::odd_counts"),
    (WritesTheSource, "shapes::odd_counts"),
    (MisalignedShifts, "shapes::any_address_that_is_a_multiple_of_the_element"),
    (InPlaceBroadcastClearsTheRoot, "in_place::broadcast"),
    (InPlaceGatherShifts, "in_place::all_gather"),
    (InPlaceScatterSpills, "in_place::reduce_scatter_leaves_the_other_chunks"),
    (FlushesSubnormals, "floats::subnormals_are_kept"),
    (EighthsSaturate, "floats::what_overflows_is_nan_in_e4m3_and_infinity_elsewhere"),
    (BoolInverted, "moves::bool_is_moved"),
    (BarrierSkipped, "moves::a_barrier_waits_for_every_rank"),
    (ZeroElementsSkipped, "shapes::zero_elements_wait_for_every_rank"),
    (MessageTakesTheOneBefore, "messages::match_in_order_per_pair"),
    (BatchReceivesReversed, "messages::match_in_order_within_a_batch"),
    (SendsEndAtOnce, "messages::end_for_the_sender_when_the_receiver_took_the_data"),
    (ReceivesEndAtOnce, "messages::end_for_the_receiver_with_the_data"),
    (BatchOneAfterTheOther, "messages::go_both_ways_in_one_batch"),
    (CountIgnored, "disagreement::about_the_count"),
    (OperationIgnored, "disagreement::about_the_operation"),
    (ReductionIgnored, "disagreement::about_the_reduction"),
    (RootIgnored, "disagreement::about_the_root"),
    (CountsSorted, "disagreement::about_the_lists_of_counts"),
    (WordsMissing, "disagreement::about_the_operation"),
    (RanksNotNamed, "absence::an_absent_peer_is_named"),
    (DeadlineMuchLater, "absence::every_operation_has_the_deadline"),
    (DeadlineSooner, "absence::the_error_comes_at_the_deadline_and_not_before"),
    (CircleNotSeen, "cycles::receives_around_a_ring"),
    (CircleNotSeen, "cycles::two_groups_in_opposite_order"),
    (DepartureUnseen, "departure::a_rank_that_leaves_is_missed_at_once"),
    (DepartureUnseen, "departure::a_rank_that_panics_is_missed_at_once"),
    (DepartureBreaks, "departure::leaving_after_the_last_call_is_no_failure"),
    (FailureNotNamed, "after_failure::the_group_refuses_and_names_the_first_failure"),
    (FailureReportedAsSuccess, "after_failure::every_pending_call_fails"),
    (CollectivesEndAtOnce, "ordering::the_host_waits_for_a_collective"),
];

/// The host's driver in threads that are asked as if they were processes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Threads;

impl Remote for Threads {
    type Driver = Host;
    const NAME: &'static str = "host in threads";
    const IN_THREADS: bool = true;
}

/// The host's driver in processes.
#[derive(Clone, Copy, Debug)]
struct Plain;

impl Remote for Plain {
    type Driver = Host;
    const NAME: &'static str = "host";
}

/// The same, on memory of the shared heap.
#[derive(Clone, Copy, Debug)]
struct Heap;

impl Remote for Heap {
    type Driver = Host;
    const NAME: &'static str = "host on the shared heap";

    fn memory(device: &Device) -> Result<Device> {
        aether_host::shared_device(device.id().index)
    }
}

/// Serves as a worker, if this process is one.
pub(crate) fn worker() -> Option<ExitCode> {
    let plain = processes::worker::<Plain>();
    plain.or_else(processes::worker::<Heap>).or_else(processes::worker::<Flawed>)
}

/// The themes that depend on where memory is.
const ON_HEAP: &[&str] = &[
    "absence::",
    "after_failure::",
    "departure::",
    "in_place::",
    "messages::",
    "moves::",
    "order::",
    "ordering::",
    "results::",
    "shapes::",
];

/// The suite by workers.
pub(crate) fn trials() -> Vec<Trial> {
    let mut trials = suite("processes", || Apart(Plain), &[""]);
    trials.extend(suite("shared heap", || Apart(Heap), ON_HEAP));
    trials.extend(suite(
        "threads",
        || Apart(Threads),
        &["in_place::", "messages::", "departure::"],
    ));
    trials
}

/// The cases of these themes.
fn suite<R: Remote>(name: &str, fixture: fn() -> Apart<R>, themes: &[&str]) -> Vec<Trial> {
    let trial = |case: Case| {
        let name = format!("{name}::{}", case.name);
        Trial::ignorable_test(name, move || case.run(&Fixed(fixture()))).with_kind("host")
    };
    let chosen = |it: &Case| themes.iter().any(|theme| it.name.starts_with(theme));
    collectives::cases().into_iter().filter(chosen).map(trial).collect()
}

/// The host's driver with a defect, by workers.
#[derive(Clone, Copy, Debug)]
struct Flawed;

impl Remote for Flawed {
    type Driver = Broken<false>;
    const NAME: &'static str = "host with a defect";
}

/// A fixture for it, with one defect.
struct Mutant(Defect);

impl CollectiveFixture for Mutant {
    type Driver = Processes<Flawed>;

    fn devices(&self, count: usize) -> Option<Vec<Device>> {
        OnTheHost.devices(count)
    }

    fn config(&self) -> GroupConfig {
        let config = GroupConfig::default().with_deadline(Duration::from_secs(2));
        config.named(format!("{:?}", self.0))
    }

    fn deadline(&self) -> Duration {
        Duration::from_millis(250)
    }

    fn patience(&self) -> Duration {
        Duration::from_secs(3)
    }
}

/// A trial for each defect, which passes if the case fails.
pub(crate) fn mutants() -> Vec<Trial> {
    let trial = |&(defect, name): &(Defect, &'static str)| {
        Trial::test(format!("mutant by workers::{defect:?}::{name}"), move || {
            caught(name, Fixed(Mutant(defect)))
        })
    };
    MUTANTS.iter().map(trial).collect()
}

/// A fixture for the workers of `R`.
pub(crate) struct Apart<R>(pub(crate) R);

impl<R: Remote> CollectiveFixture for Apart<R> {
    type Driver = Processes<R>;

    fn devices(&self, count: usize) -> Option<Vec<Device>> {
        OnTheHost.devices(count)
    }

    fn watched(&self, count: usize) -> Option<(Arc<Checked>, Vec<Device>)> {
        OnTheHost.watched(count)
    }

    fn deadline(&self) -> Duration {
        Duration::from_millis(400)
    }
}

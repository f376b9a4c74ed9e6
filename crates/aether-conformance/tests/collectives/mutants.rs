//! Each thing that can be wrong, and the case that has to catch it.

use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

use aether_collective::{Difference, GroupConfig};
use aether_conformance::checked::Checked;
use aether_conformance::collectives::subject::{Fixed, Subject};
use aether_conformance::collectives::{self, Case, CollectiveFixture, ROWS};
use aether_conformance::suite::{Completion, Failed};
use aether_core::{Device, ErrorKind};
use libtest_mimic::Trial;

use crate::broken::Broken;
use crate::defect::Defect::{self, *};
use crate::host::{OnTheHost, Plain};
use crate::layer::{Fault, Layer};

/// Defects of a driver.
const DRIVERS: &[(Defect, &str)] = &[
    (LastRankReverses, "results::every_rank_has_the_same_bits"),
    (StartsAtItself, "results::every_rank_has_the_same_bits"),
    (StartsAtItself, "results::every_type_and_reduction_agrees_with_the_reference"),
    (SecondRunReversed, "results::runs_and_forms_give_the_same_bits"),
    (LargeReversed, "results::the_size_of_a_message_changes_no_bits"),
    (MisalignedReversed, "results::the_address_changes_no_bits"),
    (CheckedModeReverses, "results::checked_mode_changes_no_bits"),
    (Reversed, "order::sums_go_in_rank_order"),
    (StartsAtItself, "order::sums_go_in_rank_order"),
    (Reversed, "order::products_and_means_go_in_rank_order"),
    (LargeReversed, "order::large_sums_go_in_rank_order"),
    (Reversed, "order::every_reducing_operation_goes_in_rank_order"),
    (EveryHopRounded, "floats::narrow_floats_are_accumulated_in_f32_and_rounded_once"),
    (Truncates, "floats::rounding_is_to_nearest_even"),
    (FlushesSubnormals, "floats::subnormals_are_kept"),
    (EighthsSaturate, "floats::what_overflows_is_nan_in_e4m3_and_infinity_elsewhere"),
    (SinglesSummedInDouble, "floats::f32_and_f64_accumulate_in_their_own_type"),
    (DoublesSummedInSingle, "floats::f32_and_f64_accumulate_in_their_own_type"),
    (MeanByElementCount, "floats::means_are_one_division_by_the_number_of_ranks"),
    (MeanByReciprocal, "floats::means_are_one_division_by_the_number_of_ranks"),
    (DropsNan, "floats::nan_wins_in_min_and_max_at_every_position"),
    (DropsNanInTheTail, "floats::nan_wins_in_min_and_max_at_every_position"),
    (KeepsNanPayload, "floats::nan_results_are_canonical"),
    (EqualZeros, "floats::the_negative_zero_is_the_smaller"),
    (IntegersSaturate, "integers::sums_and_products_wrap"),
    (MeanOfWrappedSum, "integers::means_are_exact_and_truncated_toward_zero"),
    (MeanFloors, "integers::means_are_exact_and_truncated_toward_zero"),
    (SignIgnored, "integers::minima_and_maxima_know_the_sign"),
    (ZeroElementsWriteOne, "shapes::zero_elements_take_part_and_touch_nothing"),
    (ZeroElementsSkipped, "shapes::zero_elements_are_matched"),
    (ZeroElementsSkipped, "shapes::zero_elements_wait_for_every_rank"),
    (ZeroElementsSkipped, "messages::of_zero_elements_are_matched_too"),
    (CopyThroughOneRankMadeCanonical, "shapes::one_rank_is_the_copy"),
    (LastElementUnwritten, "shapes::odd_counts"),
    (TailUnwritten, "shapes::odd_counts"),
    (WritesBehindTheEnd, "shapes::odd_counts"),
    (WritesTheSource, "shapes::odd_counts"),
    (MisalignedShifts, "shapes::any_address_that_is_a_multiple_of_the_element"),
    (RemainderUnwritten, "shapes::all_reduce_and_broadcast_take_counts_that_ranks_do_not_divide"),
    (AllGatherVTakesEvenCounts, "shapes::vector_variants_take_any_counts"),
    (LastElementUnwritten, "shapes::large_messages"),
    (GatherReversed, "shapes::many_ranks"),
    (InPlaceAllReduceCountsItselfTwice, "in_place::all_reduce"),
    (InPlaceBroadcastClearsTheRoot, "in_place::broadcast"),
    (InPlaceGatherShifts, "in_place::all_gather"),
    (InPlaceGatherShifts, "in_place::all_gather_v"),
    (InPlaceScatterSpills, "in_place::reduce_scatter_leaves_the_other_chunks"),
    (WritesBehindTheEnd, "in_place::buffers_of_all_members_may_share_an_allocation"),
    (AllGatherStartsAtItself, "moves::all_gather"),
    (AllGatherVTakesEvenCounts, "moves::all_gather_v"),
    (AllToAllTakesOwnChunks, "moves::all_to_all"),
    (AllToAllVReversesSenders, "moves::all_to_all_v"),
    (BroadcastIgnoresRoot, "moves::broadcast_from_every_root"),
    (GatherReversed, "moves::gather_to_every_root"),
    (ScatterTakesTheNextChunk, "moves::scatter_from_every_root"),
    (ReduceLeavesOutTheRoot, "moves::reduce_to_every_root"),
    (ReduceScatterTakesTheNextChunk, "moves::reduce_scatter"),
    (ReduceScatterVMultiplies, "moves::reduce_scatter_v"),
    (MovedNanMadeCanonical, "moves::every_type_keeps_its_bits"),
    (BoolInverted, "moves::bool_is_moved"),
    (BarrierSkipped, "moves::a_barrier_waits_for_every_rank"),
    (MessageTakesTheOneBefore, "messages::match_in_order_per_pair"),
    (BatchReceivesReversed, "messages::match_in_order_within_a_batch"),
    (SendsEndAtOnce, "messages::end_for_the_sender_when_the_receiver_took_the_data"),
    (ReceivesEndAtOnce, "messages::end_for_the_receiver_with_the_data"),
    (BatchOneAfterTheOther, "messages::go_both_ways_in_one_batch"),
    (RankAsPeer, "messages::go_around_a_ring"),
    (BatchOneAfterTheOther, "messages::go_from_everybody_to_everybody"),
    (MessagesToItselfSkipped, "messages::to_itself_are_copies"),
    (CountIgnored, "messages::of_sizes_that_differ_are_told_to_both"),
    (RanksNotNamed, "messages::of_sizes_that_differ_are_told_to_both"),
    (MessagesOfBytes, "messages::of_types_that_differ_are_told_to_both"),
    (OperationIgnored, "disagreement::about_the_operation"),
    (CountIgnored, "disagreement::about_the_count"),
    (ZeroElementsSkipped, "disagreement::about_the_count"),
    (TypeIgnored, "disagreement::about_the_type"),
    (ReductionIgnored, "disagreement::about_the_reduction"),
    (RootIgnored, "disagreement::about_the_root"),
    (OperationIgnored, "disagreement::about_the_sequence"),
    (CountsSorted, "disagreement::about_the_lists_of_counts"),
    (RanksNotNamed, "disagreement::about_the_operation"),
    (WordsMissing, "disagreement::about_the_operation"),
    (FailureReportedAsSuccess, "disagreement::about_the_operation"),
    (CollectivesEndAtOnce, "disagreement::in_checked_mode_no_call_completes"),
    (RanksNotNamed, "absence::every_waiting_rank_is_told_who_is_absent"),
    (DeadlineMuchLater, "absence::every_waiting_rank_is_told_who_is_absent"),
    (DeadlineMuchLater, "absence::every_operation_has_the_deadline"),
    (DeadlineSooner, "absence::the_error_comes_at_the_deadline_and_not_before"),
    (DeadlineMuchLater, "absence::the_error_comes_at_the_deadline_and_not_before"),
    (RanksNotNamed, "absence::an_absent_peer_is_named"),
    (CircleNotSeen, "cycles::crossed_sends_outside_of_a_batch"),
    (CircleNotSeen, "cycles::receives_around_a_ring"),
    (CircleNotSeen, "cycles::two_groups_in_opposite_order"),
    (RanksNotNamed, "cycles::receives_around_a_ring"),
    (DepartureUnseen, "departure::a_rank_that_leaves_is_missed_at_once"),
    (DepartureUnseen, "departure::a_rank_that_left_before_the_call_is_missed_at_once"),
    (DepartureUnseen, "departure::a_rank_that_panics_is_missed_at_once"),
    (DepartureUnseen, "departure::a_peer_that_left_is_missed_at_once"),
    (DepartureBreaks, "departure::leaving_after_the_last_call_is_no_failure"),
    (FailureForgotten, "after_failure::the_group_refuses_and_names_the_first_failure"),
    (FailureNotNamed, "after_failure::the_group_refuses_and_names_the_first_failure"),
    (FailureReportedAsSuccess, "after_failure::every_pending_call_fails"),
    (FailureReportedAsSuccess, "after_failure::unwritten_ranges_give_the_error_until_overwritten"),
    (LateRankWrites, "after_failure::nobody_writes_any_more"),
    (FinishSaysNothing, "after_failure::who_was_not_told_is_told_at_the_end"),
    (NoNewGroup, "after_failure::a_new_group_forms_from_the_survivors"),
    (NoNewGroup, "after_failure::a_new_group_forms_from_all_devices"),
    (CollectivesEndAtOnce, "ordering::the_host_waits_for_a_collective"),
];

/// A row that there is, and one that there isn't.
const ROW: &[Difference] =
    &[Difference { row: "order of a reduction", instead: "a tree of ranks" }];
const NO_ROW: &[Difference] = &[Difference { row: "the order of sums", instead: "a tree" }];

/// Faults between the caller and the driver.
const LAYERS: &[(Fault, &str)] = &[
    (Fault::Accepts(ErrorKind::Overlap), "in_place::other_overlaps_are_refused"),
    (Fault::Accepts(ErrorKind::Overlap), "in_place::ranges_that_ranks_share_are_refused"),
    (Fault::NamesNoRanks, "in_place::ranges_that_ranks_share_are_refused"),
    (Fault::Accepts(ErrorKind::Unsupported), "moves::bool_is_never_reduced"),
    (
        Fault::Accepts(ErrorKind::SizeMismatch),
        "shapes::chunks_that_ranks_do_not_divide_are_refused",
    ),
    (Fault::Accepts(ErrorKind::RankOutOfRange), "refusals::a_root_out_of_range"),
    (Fault::Vague, "refusals::a_root_out_of_range"),
    (Fault::Accepts(ErrorKind::RankOutOfRange), "refusals::a_peer_out_of_range"),
    (
        Fault::Accepts(ErrorKind::NotContiguous),
        "refusals::a_strided_view_with_the_call_that_packs_it",
    ),
    (Fault::Vague, "refusals::a_strided_view_with_the_call_that_packs_it"),
    (Fault::Accepts(ErrorKind::Overflow), "refusals::counts_that_overflow"),
    (Fault::Accepts(ErrorKind::InvalidArgument), "refusals::counts_that_are_too_few_or_do_not_fit"),
    (Fault::Accepts(ErrorKind::SizeMismatch), "refusals::counts_that_are_too_few_or_do_not_fit"),
    (Fault::Accepts(ErrorKind::SizeMismatch), "refusals::sizes_that_differ"),
    (Fault::Accepts(ErrorKind::DTypeMismatch), "refusals::types_that_differ"),
    (Fault::Accepts(ErrorKind::WrongDevice), "refusals::memory_of_another_device"),
    (
        Fault::Accepts(ErrorKind::BorrowedMemory),
        "refusals::borrowed_memory_in_calls_that_return_at_once",
    ),
    (Fault::Accepts(ErrorKind::SizeMismatch), "refusals::a_part_too_few"),
    (Fault::RefusalBreaks, "refusals::a_refused_call_queues_nothing"),
    (Fault::RefusalQueues, "refusals::a_refused_call_queues_nothing"),
    (Fault::Differs(NO_ROW), "rows::documented_differences_are_of_rows"),
    (Fault::NamesNoRanks, "absence::an_absent_rank_is_named_to_who_joins"),
    (Fault::Unordered, "ordering::copies_on_other_streams_are_ordered"),
    (Fault::Unordered, "ordering::two_groups_on_the_same_memory_are_ordered"),
    (Fault::UnorderedByDefault, "ordering::copies_on_other_streams_are_ordered"),
    (Fault::UnorderedByDefault, "ordering::two_groups_on_the_same_memory_are_ordered"),
    (Fault::Unordered, "after_failure::a_later_call_that_reads_them_is_refused"),
];

/// The host's driver with a defect.
#[derive(Clone, Copy, Debug)]
struct Mutant(Defect);

impl CollectiveFixture for Mutant {
    type Driver = Broken<false>;

    fn devices(&self, count: usize) -> Option<Vec<Device>> {
        OnTheHost.devices(count)
    }

    fn watched(&self, count: usize) -> Option<(std::sync::Arc<Checked>, Vec<Device>)> {
        OnTheHost.watched(count)
    }

    fn config(&self) -> GroupConfig {
        let config = GroupConfig::default().with_deadline(Duration::from_secs(2));
        config.named(format!("{:?}", self.0))
    }

    fn deadline(&self) -> Duration {
        Duration::from_millis(150)
    }

    fn patience(&self) -> Duration {
        Duration::from_secs(3)
    }
}

/// The host's driver that says of itself that it has the required operations alone, so that aether
/// composes `barrier`, `gather`, `scatter`, `reduce` and the variants with counts. What isn't an
/// operation stays the host's: batches, ends, failures, abort, leaving and finish.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bare;

impl CollectiveFixture for Bare {
    type Driver = Broken<true>;

    fn devices(&self, count: usize) -> Option<Vec<Device>> {
        OnTheHost.devices(count)
    }

    fn watched(&self, count: usize) -> Option<(std::sync::Arc<Checked>, Vec<Device>)> {
        OnTheHost.watched(count)
    }
}

/// A trial for each mutant, which passes if the case fails, and trials of the tables themselves.
pub(crate) fn trials() -> Vec<Trial> {
    let driver = |&(defect, name): &(Defect, &'static str)| {
        Trial::test(format!("mutant::{defect:?}::{name}"), move || {
            caught(name, Fixed(Mutant(defect)))
        })
    };
    let layer = |&(fault, name): &(Fault, &'static str)| {
        Trial::test(format!("mutant::{fault:?}::{name}"), move || caught(name, Layer(fault)))
    };
    let mut trials: Vec<Trial> = DRIVERS.iter().map(driver).collect();
    trials.extend(LAYERS.iter().map(layer));
    let name = "fixtures::devices_are_watched_where_the_fixture_says_nothing";
    trials.push(Trial::test(name, devices_are_watched_where_the_fixture_says_nothing));
    trials.push(Trial::test("mutants::every_row_has_one", every_row_has_one));
    trials.push(Trial::test("mutants::every_defect_is_used", every_defect_is_used));
    let name = "mutants::a_documented_difference_is_ignored_with_its_reason";
    trials.push(Trial::test(name, a_documented_difference_is_ignored_with_its_reason));
    trials
}

/// The wrapper without a defect, which must not fail a case: those whose calls [`Bare`] doesn't have.
pub(crate) fn without_defect() -> Vec<Trial> {
    let trial = |case: Case| {
        Trial::ignorable_test(format!("collectives::{}", case.name), move || {
            case.run(&Fixed(Mutant(Nothing)))
        })
    };
    let beyond = |case: &Case| case.name.starts_with("moves") || case.name.starts_with("shapes");
    collectives::cases().into_iter().filter(beyond).map(trial).collect()
}

/// How long a case may take on a mutant.
const WATCHDOG: Duration = Duration::from_secs(30);

/// Expects that the case fails.
pub(crate) fn caught(name: &str, subject: impl Subject + 'static) -> Result<(), Failed> {
    let cases = collectives::cases();
    let case = *cases.iter().find(|it| it.name == name).ok_or("there is no such case")?;
    let (end, ended) = channel();
    std::thread::spawn(move || {
        // Nobody listens any more if it took too long.
        drop(end.send(case.run(&subject)));
    });
    match ended.recv_timeout(WATCHDOG) {
        Ok(Err(why)) => {
            if std::env::var_os("SHOW_MUTANTS").is_some() {
                println!("{name}: {}", why.message().unwrap_or_default());
            }
            expect_plain(name, why.message().unwrap_or_default())
        }
        Ok(Ok(Completion::Completed)) => Err("the case passed".into()),
        Ok(Ok(Completion::Ignored { reason })) => {
            Err(format!("the case was skipped: {}", reason.unwrap_or_default()).into())
        }
        Err(RecvTimeoutError::Disconnected) => Err("the case panicked".into()),
        Err(RecvTimeoutError::Timeout) => Err("the case hangs".into()),
    }
}

/// Expects a message that speaks of what is wrong, and not of Rust; of what hangs, it names the call.
fn expect_plain(name: &str, why: &str) -> Result<(), Failed> {
    if why.is_empty() || why.contains("Some(") {
        return Err(format!("the case says {why:?}").into());
    }
    let names = |it: &str| why.contains(it);
    // The cases in which nobody tells a rank that another has left.
    let hangs = name.starts_with("departure::a_");
    let told = ["rank ", " of 3: ", "has not ended", "after it was made", "the group's deadline"];
    if hangs && !told.into_iter().all(names) {
        return Err(format!("of what hangs the case says {why:?}").into());
    }
    Ok(())
}

fn devices_are_watched_where_the_fixture_says_nothing() -> Result<(), Failed> {
    let (checked, devices) = Fixed(Plain).watched(2).ok_or("they are not watched")?;
    let bare = devices.iter().any(|it| it.backend().name() != "checked host");
    if bare || checked.inner().name() != "host" || devices.len() != 2 {
        return Err(format!("{devices:?} are not the fixture's, watched").into());
    }
    let cases = collectives::cases();
    for case in cases.iter().filter(|it| it.name.starts_with("ordering::")) {
        if let Completion::Ignored { reason } = case.run(&Fixed(Plain))? {
            return Err(format!("{case:?} was ignored because of {reason:?}").into());
        }
    }
    Ok(())
}

fn every_row_has_one() -> Result<(), Failed> {
    let used = |case: &&str| {
        DRIVERS.iter().any(|it| it.1 == *case) || LAYERS.iter().any(|it| it.1 == *case)
    };
    for (row, cases) in ROWS {
        if !cases.iter().any(&used) {
            return Err(format!("no mutant breaks `{row}`").into());
        }
    }
    Ok(())
}

fn every_defect_is_used() -> Result<(), Failed> {
    for defect in Defect::ALL.iter().filter(|it| **it != Nothing) {
        if !DRIVERS.iter().any(|it| it.0 == *defect) {
            return Err(format!("no case is named for {defect:?}").into());
        }
    }
    Ok(())
}

fn a_documented_difference_is_ignored_with_its_reason() -> Result<(), Failed> {
    let cases = collectives::cases();
    for case in cases.iter().filter(|it| it.name.starts_with("order::")) {
        let Ok(Completion::Ignored { reason }) = case.run(&Layer(Fault::Differs(ROW))) else {
            return Err(format!("{case:?} was run").into());
        };
        let wanted = "documented difference: order of a reduction: a tree of ranks";
        if reason.as_deref() != Some(wanted) {
            return Err(format!("{case:?} was ignored because of {reason:?}").into());
        }
    }
    Ok(())
}

//! Which cases state which row of the semantics of the collectives.

use super::bench::{Bench, Step, expect};

super::theme! {
    "rows":
    documented_differences_are_of_rows,
}

/// Every row of the table of semantics, by its first cell, with the cases that state it. A driver that
/// differs in a row names it in [`Difference::row`](aether_collective::Difference::row), and these cases
/// are then not run.
pub const ROWS: &[(&str, &[&str])] = &[
    ("result on different ranks", &["results::every_rank_has_the_same_bits"]),
    (
        "result in different runs",
        &[
            "results::runs_and_forms_give_the_same_bits",
            "results::the_size_of_a_message_changes_no_bits",
            "results::the_address_changes_no_bits",
            "results::checked_mode_changes_no_bits",
        ],
    ),
    (
        "order of a reduction",
        &[
            "order::sums_go_in_rank_order",
            "order::products_and_means_go_in_rank_order",
            "order::large_sums_go_in_rank_order",
            "order::every_reducing_operation_goes_in_rank_order",
        ],
    ),
    (
        "f16, bf16, f8",
        &[
            "floats::narrow_floats_are_accumulated_in_f32_and_rounded_once",
            "floats::rounding_is_to_nearest_even",
            "floats::subnormals_are_kept",
            "floats::what_overflows_is_nan_in_e4m3_and_infinity_elsewhere",
        ],
    ),
    ("f32, f64", &["floats::f32_and_f64_accumulate_in_their_own_type"]),
    (
        "Sum, Prod of integers",
        &["integers::sums_and_products_wrap", "integers::minima_and_maxima_know_the_sign"],
    ),
    ("Mean of floats", &["floats::means_are_one_division_by_the_number_of_ranks"]),
    ("Mean of integers", &["integers::means_are_exact_and_truncated_toward_zero"]),
    ("Min, Max with NaN", &["floats::nan_wins_in_min_and_max_at_every_position"]),
    ("NaN results", &["floats::nan_results_are_canonical"]),
    ("bool", &["moves::bool_is_moved", "moves::bool_is_never_reduced"]),
    ("Min, Max of -0 and +0", &["floats::the_negative_zero_is_the_smaller"]),
    (
        "zero elements",
        &[
            "shapes::zero_elements_take_part_and_touch_nothing",
            "shapes::zero_elements_are_matched",
            "shapes::zero_elements_wait_for_every_rank",
            "messages::of_zero_elements_are_matched_too",
        ],
    ),
    ("one rank", &["shapes::one_rank_is_the_copy"]),
    (
        "in place",
        &[
            "in_place::all_reduce",
            "in_place::broadcast",
            "in_place::all_gather",
            "in_place::all_gather_v",
            "in_place::reduce_scatter_leaves_the_other_chunks",
            "in_place::other_overlaps_are_refused",
        ],
    ),
    (
        "members' buffers in one allocation",
        &[
            "in_place::buffers_of_all_members_may_share_an_allocation",
            "in_place::ranges_that_ranks_share_are_refused",
        ],
    ),
    (
        "alignment",
        &[
            "shapes::any_address_that_is_a_multiple_of_the_element",
            "refusals::memory_off_its_alignment",
        ],
    ),
    ("counts", &["refusals::counts_that_overflow"]),
    (
        "counts that ranks don't divide",
        &[
            "shapes::all_reduce_and_broadcast_take_counts_that_ranks_do_not_divide",
            "shapes::chunks_that_ranks_do_not_divide_are_refused",
            "shapes::vector_variants_take_any_counts",
            "refusals::counts_that_are_too_few_or_do_not_fit",
            "moves::all_gather_v",
            "moves::all_to_all_v",
            "moves::reduce_scatter_v",
        ],
    ),
    (
        "ranks that disagree (operation, count, type, reduction, root, sequence)",
        &[
            "disagreement::about_the_operation",
            "disagreement::about_the_count",
            "disagreement::about_the_type",
            "disagreement::about_the_reduction",
            "disagreement::about_the_root",
            "disagreement::about_the_sequence",
            "disagreement::about_the_lists_of_counts",
            "disagreement::in_checked_mode_no_call_completes",
        ],
    ),
    (
        "a rank that never arrives",
        &[
            "absence::every_waiting_rank_is_told_who_is_absent",
            "absence::every_operation_has_the_deadline",
            "absence::the_error_comes_at_the_deadline_and_not_before",
            "absence::an_absent_peer_is_named",
            "absence::an_absent_rank_is_named_to_who_joins",
        ],
    ),
    (
        "two ranks whose calls wait for each other (crossed sends outside a batch; two groups in \
         opposite order with waits between)",
        &[
            "cycles::crossed_sends_outside_of_a_batch",
            "cycles::receives_around_a_ring",
            "cycles::two_groups_in_opposite_order",
        ],
    ),
    (
        "a rank that dies",
        &[
            "departure::a_rank_that_leaves_is_missed_at_once",
            "departure::a_rank_that_left_before_the_call_is_missed_at_once",
            "departure::a_rank_that_panics_is_missed_at_once",
            "departure::a_peer_that_left_is_missed_at_once",
            "departure::leaving_after_the_last_call_is_no_failure",
        ],
    ),
    (
        "after a failure",
        &[
            "after_failure::the_group_refuses_and_names_the_first_failure",
            "after_failure::every_pending_call_fails",
            "after_failure::unwritten_ranges_give_the_error_until_overwritten",
            "after_failure::a_later_call_that_reads_them_is_refused",
            "after_failure::nobody_writes_any_more",
            "after_failure::who_was_not_told_is_told_at_the_end",
            "after_failure::a_new_group_forms_from_the_survivors",
            "after_failure::a_new_group_forms_from_all_devices",
        ],
    ),
    (
        "send and recv",
        &[
            "messages::match_in_order_per_pair",
            "messages::match_in_order_within_a_batch",
            "messages::go_both_ways_in_one_batch",
            "messages::go_around_a_ring",
            "messages::go_from_everybody_to_everybody",
            "messages::to_itself_are_copies",
            "messages::of_zero_elements_are_matched_too",
            "messages::end_for_the_sender_when_the_receiver_took_the_data",
            "messages::end_for_the_receiver_with_the_data",
            "messages::of_sizes_that_differ_are_told_to_both",
            "messages::of_types_that_differ_are_told_to_both",
        ],
    ),
    (
        "root or peer out of range",
        &["refusals::a_root_out_of_range", "refusals::a_peer_out_of_range"],
    ),
    ("a strided (non-contiguous) view", &["refusals::a_strided_view_with_the_call_that_packs_it"]),
];

/// A difference whose row nobody knows would leave out nothing.
fn documented_differences_are_of_rows(bench: &Bench<'_>) -> Step {
    for difference in bench.subject.capabilities().differences {
        let known = ROWS.iter().any(|(row, _)| *row == difference.row);
        expect(known, || format!("`{}` is no row of the semantics", difference.row))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::ROWS;
    use crate::collectives::cases;

    #[test]
    fn every_row_has_cases_and_every_case_that_is_named_exists() {
        let known: BTreeSet<&str> = cases().iter().map(|it| it.name).collect();
        assert_eq!(known.len(), cases().len(), "two cases have one name");
        for (row, named) in ROWS {
            assert!(!named.is_empty(), "no case states `{row}`");
            for case in *named {
                assert!(known.contains(case), "`{row}` names {case}, which is no case");
            }
        }
    }

    #[test]
    fn the_rows_are_those_of_the_documentation() {
        let text = include_str!("../../../../docs/semantics.md");
        let table = text.lines().filter_map(|line| line.strip_prefix("| "));
        let rows = table.filter_map(|line| line.split(" | ").next()).skip(2);
        let documented: Vec<&str> = rows.collect();
        let stated: Vec<&str> = ROWS.iter().map(|(row, _)| *row).collect();
        assert_eq!(stated, documented);
    }
}

//! One list of tests for all stores: what each must answer and keep, seen through the port alone.
//!
//! A store's own tests say `roundel_store::conformance!(make)`, where `make` gives a fresh store
//! and the clock that it runs on. Each line becomes a test of its own, so that what fails has a
//! name. A test is a function here and a line in the list below.

// A test panics when it fails: that need not be said of each.
#![allow(clippy::missing_panics_doc, missing_docs)]

pub mod audits;
pub mod batches;
pub mod claims;
pub mod conditions;
pub mod deletes;
mod desk;
pub mod facts;
pub mod hints;
pub mod incoming;
pub mod leftovers;
pub mod lists;
pub mod looks;
pub mod management;
pub mod projections;
pub mod queues;
pub mod records;
pub mod rounds;
pub mod scopes;
pub mod sealed;
pub mod signals;
pub mod threads;
mod together;
pub mod trees;
pub mod undos;
mod words;
pub mod works;

use std::sync::Arc;

use crate::{ManualClock, Store};

/// Gives a fresh, empty store and its clock.
pub type Make = dyn Fn() -> (Arc<dyn Store>, Arc<ManualClock>);

/// Makes a test of each line of the list, for the store that the function at this path makes.
#[macro_export]
macro_rules! conformance {
    ($make:path) => {
        $crate::conformance! { @operations $make }
        $crate::conformance! { @of $make;
            works {
                g1_a_step_commits_with_its_sql
                g1_a_step_that_failed_is_recorded_without_its_sql
                b1_a_fenced_step_does_not_run
                b5_a_step_of_a_run_that_was_deleted_and_started_again_does_not_run
                inv21_a_step_of_a_cancelled_run_does_not_run
                g1_a_step_whose_round_is_refused_leaves_nothing
                e15_a_step_may_not_end_its_transaction_or_leave_the_database
                e15_a_step_that_ends_its_transaction_by_a_statement_is_refused
                e16_a_step_may_not_write_the_engines_tables
                e13_a_handle_that_escapes_its_step_is_refused
                g1_a_step_that_breaks_a_deferred_key_is_refused_alone
                e1_a_step_that_panics_is_refused_alone
            }
        }
    };
    (@operations $make:path) => {
        $crate::conformance! { @of $make;
            claims {
                ro_10_one_owner_at_a_time
                ro_10_claimers_get_distinct_runs_and_none_gets_nothing
                ro_11_b1_after_a_takeover_the_first_owner_changes_nothing
                ro_11_a_lease_ends_by_commit_and_by_release
                ro_11_b3_expired_but_not_taken_over_commits_and_does_not_renew
                ro_12_renewal_keeps_a_run_and_never_shortens
                ro_12_a_worker_frozen_for_three_leases_is_harmless
                b2_an_epoch_is_valid_for_one_round
                b5_a_foreign_worker_with_the_right_epoch_is_fenced
                ro_13_a_run_that_keeps_killing_its_worker_is_parked
                ro_13_release_and_progress_do_not_count
                ro_13_the_slot_is_free_again_when_its_run_is_gone
                ro_14_messages_during_a_lease_are_kept_for_the_next_round
                ro_16_claims_take_by_priority_then_oldest_due_first
                ro_16_a_claim_says_when_to_come_back
                ro_16_claims_of_one_batch_follow_each_other
                b15_a_busy_lane_does_not_starve_a_quiet_one
                e8_a_run_of_an_unknown_version_waits_for_a_worker_that_knows_it
                the_holder_of_a_woken_run_has_a_head_start_and_hides_nobody
                b17_a_worker_claims_only_while_it_is_registered
                inv25_lanes_of_namespaces_are_apart
                inv23_workers_that_left_without_a_word_are_forgotten
                ro_13_a_worker_lost_with_a_suspect_is_kept_until_that_counts
            }
            queues {
                co_30_no_more_are_leased_than_the_limit_whoever_claims
                co_30_claims_of_one_batch_share_what_is_free
                co_30_starts_and_claims_of_one_batch_share_what_is_free
                co_30_k7_a_lost_lease_keeps_its_permit_and_takes_no_second
                co_30_what_a_queue_holds_back_hides_no_other
                co_30_what_is_held_back_does_not_stand_for_what_is_left
                co_30_paused_and_resumed_in_somebodys_name
                co_30_who_is_asked_to_end_waits_for_no_permit
                co_30_a_rate_says_when_the_next_may_begin
                co_30_limits_are_taken_away_again
                co_30_a_run_that_goes_with_its_permit_leaves_room
                co_30_one_key_does_not_keep_the_others_waiting
                co_30_no_more_of_a_key_are_leased_than_may_be
                co_30_of_starts_that_are_alike_one_is_started
                co_30_priority_and_delay_hold_within_a_key
                co_30_who_is_lost_or_asked_to_end_is_found_by_its_key_too
            }
            projections {
                fa_13_a_projection_follows_without_gap_or_repetition_whoever_brings_it_further
                fa_12_a_rebuild_takes_over_in_one_commit_while_facts_arrive
                fa_12_an_inline_projection_over_facts_is_built_before_it_is_read
                a_process_that_lacks_an_inline_projection_records_nothing_it_folds
            }
            facts {
                fa_05_a_fact_comes_back_with_its_envelope
                fa_08_the_same_fact_twice_is_one
                fa_01_fa_03_what_cannot_be_folded_leaves_nothing
                fa_02_of_a_batch_the_one_that_fails_fails_alone
                a_stream_refuses_what_expects_another_number
                fa_18_what_was_decided_on_old_documents_is_refused
                fa_14_a_round_and_its_facts_lead_to_each_other
                facts_and_documents_are_read_in_pages
                inv25_facts_of_one_namespace_are_not_seen_in_another
                fa_18_decisions_of_many_are_as_if_one_after_the_other
            }
            incoming {
                fa_06_the_queue_is_taken_in_order_each_with_its_removal
                fa_08_what_is_queued_twice_is_one_and_another_under_its_id_is_refused
                fa_02_the_one_that_fails_is_parked_with_its_error_and_the_others_are_not
                fa_10_what_waits_is_let_go_in_the_commit_that_records_what_it_needs
                fa_10_what_waits_too_long_is_parked
                fa_10_who_waits_and_what_comes_at_the_same_time_miss_each_other_never
                fa_03_what_a_decider_queues_and_sends_comes_with_its_facts_or_not_at_all
            }
            rounds {
                ro_01_a_round_that_is_sent_again_leaves_one_set_of_everything
                ro_02_a_message_taken_and_not_committed_is_taken_again
                ro_04_a_message_is_consumed_once
                ro_05_a_run_ends_once
                ro_05_inv6_nothing_comes_after_the_end
                ro_15_a_round_of_a_deleted_run_recreates_nothing
                ro_20_entries_are_gap_free_from_one
                ro_20_a_start_and_its_first_round_are_one_row
                ro_20_entries_come_back_to_the_byte
                ro_20_a_journal_is_read_in_pages
                inv21_after_a_cancel_no_forward_round_commits
                a_parked_run_keeps_its_reason_and_its_messages
                a_run_keeps_its_own_state
                ro_41_limits_hold_at_the_boundary
                si_14_a_refused_operation_in_a_batch_refuses_alone
            }
            leftovers {
                si_10_what_a_run_ends_without_is_parked_offered_or_goes
                si_10_a_run_that_nobody_has_begun_leaves_its_signals_too
                si_10_a_parked_signal_is_passed_on_once
                si_10_parked_signals_are_read_in_pages
            }
            conditions {
                co_22_a_patch_tells_a_run_that_waits_for_it_once
                co_22_a_wait_that_has_seen_an_older_state_is_told_at_once
                co_22_a_run_tells_itself_what_it_changes
                co_22_what_a_wait_was_told_goes_with_it
                co_22_nobody_else_says_that_a_state_has_changed
            }
            signals {
                si_01_a_run_wakes_on_whichever_comes_first
                si_01_a_timer_fires_to_the_microsecond
                si_01_c4_losers_keep_their_place
                si_02_a_signal_before_the_wait_completes_it_at_once
                si_02_targeted_before_offered
                si_03_a_signal_answers_what_became_of_it
                si_03_an_offer_goes_to_the_one_who_waits_longest
                si_03_an_offer_that_is_let_go_goes_to_the_next_in_line
                si_03_offers_given_back_together_reach_as_many
                si_03_several_offers_of_one_batch_reach_several_waiters
                si_04_send_and_suspend_never_pass_each_other
                si_04_offer_and_wait_never_pass_each_other
                si_06_the_winner_stays_the_winner_for_another_worker
                si_07_a_timer_for_a_run_that_moved_on_does_nothing
                si_12_a_senders_key_gives_the_first_answer
                si_13_signals_of_one_batch_are_delivered_and_queued_in_order
                si_17_signal_with_start_starts_and_delivers_in_one_commit
                si_17_a_first_round_finds_what_was_sent_and_offered_before
                si_18_continue_as_new_keeps_unread_signals_in_order
                si_23_cancel_answers_what_it_found
                si_24_a_dropped_signal_is_gone_and_the_next_arrives_once
                a_sender_takes_the_run_that_it_holds
                a_patch_merges_and_can_demand_a_version
            }
            trees {
                an_offer_that_a_deleted_tree_had_goes_to_who_waits_outside
                ro_30_a_childs_output_reaches_its_parent
                ro_30_a_childs_failure_reaches_its_parent
                ro_30_an_id_or_key_in_use_fails_the_call_at_once
                ro_30_a_child_that_ends_in_its_first_round_answers_at_once
                ro_15_an_end_for_an_ended_or_deleted_parent_is_dropped
                what_a_round_sent_is_answered_to_its_call
                si_16_the_end_of_a_watched_run_is_delivered
                si_16_a_run_that_has_ended_answers_at_once_and_an_unknown_one_fails
                si_16_a_watch_and_a_signal_in_one_wait
                the_worker_that_ends_a_run_takes_those_it_holds
                ro_31_f1_a_run_begins_anew_in_one_commit
                ro_31_a12_what_was_meant_for_the_old_execution_is_ignored
                ro_31_f3_parent_and_watchers_hear_of_the_last_execution
                ro_31_a_wait_of_the_old_execution_takes_nothing_any_more
                ro_27_continue_as_new_may_go_to_another_version
            }
            batches {
                co_11_a_batch_ends_with_its_last_command_and_what_follows_begins_then
                co_11_one_id_that_is_in_use_refuses_the_whole_batch
                co_11_a_parked_command_keeps_its_batch_open
                co_11_commands_that_end_without_a_worker_count
                co_11_what_follows_can_be_cancelled_before_it_begins
                co_11_the_counters_of_a_large_batch_are_right_however_its_commands_end
            }
            scopes {
                sc_01_a_publication_starts_one_run_for_each_that_subscribes
                sc_15_sc_16_who_hears_is_pinned_at_emission
                sc_16_subscriptions_and_publications_of_one_batch_keep_their_order
                sc_12_what_nobody_hears_is_answered_in_the_same_commit
                d6_a_scope_of_any_size_is_told_once_when_the_last_has_ended
                d6_those_that_end_in_one_batch_tell_once
                d6_d7_those_that_end_at_the_same_time_tell_once
                inv5_a_child_that_ends_twice_is_counted_once
                sc_22_how_many_failed_is_told_with_the_end_of_the_last
                sc_62_the_runs_of_a_scope_are_read_in_order_in_pages
                m1_more_than_the_limit_is_told_to_the_call_and_sets_nothing_off
                sc_14_a_window_is_waited_for_as_one_that_has_not_ended
                sc_14_nobody_joins_what_is_unknown_elsewhere_or_given_up
                sc_13_what_nobody_begins_is_completed_from_outside
                inv25_a_topic_of_one_namespace_is_not_heard_in_another
            }
            undos {
                sc_29_only_what_is_at_rest_is_undone_and_once
                sc_24_a_rollback_that_failed_is_retried_skipped_or_accepted
                sc_21_d25_what_completed_is_rolled_back_and_waited_for_once
                sc_24_d26_a_child_that_could_not_be_undone_is_told_as_failed
                sc_43_deadlines_flow_down_and_the_earliest_wins
                sc_60_context_flows_down_with_a_publication_to_the_byte
                ro_51_a_deleted_tree_takes_its_publications_and_latches_along
                co_24_who_was_parked_for_being_late_goes_on_without_that_deadline
                co_25_what_is_cancelled_without_undo_is_kept_with_all_below_it
                co_25_a_parked_run_and_one_that_was_asked_before_are_kept
            }
            deletes {
                ro_51_a_live_run_is_deleted_only_by_force
                b5_what_is_started_again_under_the_id_of_a_deleted_run_is_another
                ro_51_a_delete_takes_the_tree_and_what_hangs_under_it
                ro_51_a_tree_goes_only_when_all_of_it_is_at_rest
                ro_51_parent_and_watchers_of_a_deleted_run_are_told
                ro_51_a_key_is_free_again_in_the_same_batch
                ro_51_inv10_a_large_tree_goes_from_its_leaves_in_parts
            }
            looks {
                ro_50_whoever_follows_looks_of_any_size_finds_each_run_that_fits_once
                ro_50_a_look_passes_no_more_rows_than_it_may_and_says_how_far_it_came
                ro_50_a_look_for_what_was_never_started_is_over_at_once
                ro_50_a_page_of_a_long_list_is_found_in_a_second_step
                ro_50_whoever_follows_looks_at_facts_finds_each_that_fits_once
                ro_50_whoever_follows_looks_at_the_audit_finds_each_row_that_fits_once
                ro_50_publications_are_counted_up_to_a_number_and_what_is_left_out_is_told
            }
            management {
                ro_04_starting_twice_with_a_key_gives_the_first
                e20_an_id_used_for_something_else_is_a_conflict
                ro_50_runs_are_listed_newest_first_in_exact_pages
                ro_50_runs_are_filtered
                ro_50_a_run_is_found_by_id_and_by_key_in_its_namespace
                ro_50_unknown_ids_give_errors_not_empty_answers
                ro_50_children_are_listed_oldest_first_in_pages
                ro_50_mail_is_listed_in_order_of_arrival_in_pages
                ro_50_counts_are_right
                ro_50_topics_are_listed_with_who_subscribes_and_what_was_unheard
                ro_50_workers_are_listed
                e12_a_text_that_one_store_cannot_keep_none_takes
                a_dump_has_every_row_in_order
                a_closed_store_says_so_and_closing_twice_is_fine
            }
            audits {
                co_12_what_is_done_in_somebodys_name_is_written_down_in_order
                co_12_the_audit_is_filtered_and_paged
                co_12_the_audit_names_what_is_no_run
                co_12_what_is_refused_is_not_written_down
                o5_what_rests_on_an_earlier_look_is_refused
                e5_a_run_that_nobody_has_is_parked_by_request_as_it_was_seen
                co_23_a_patch_that_comes_too_late_is_kept_in_the_audit
                co_12_the_audit_of_a_run_that_is_gone_stays
                inv26_many_who_act_at_once_make_one_chain
                co_01_what_a_round_sends_is_there_with_it_or_refuses_it
            }
            sealed {
                p6_what_is_sent_again_sealed_differently_is_the_first
            }
            records {
                records_hold_all_rows_of_each_run_in_pages_of_any_size
                offers_are_read_with_their_gates_and_who_has_them_in_pages
            }
            hints {
                c1_a_start_a_timer_and_a_release_say_when_a_run_is_ready
                c1_co_30_whose_end_makes_room_in_a_full_queue_says_so
                co_30_where_there_is_room_nobody_is_told_of_more
                c1_a_message_is_told_to_the_owner_or_wakes_the_run
                c10_a_cancel_is_told_to_the_owner
                a_run_at_rest_is_told_with_what_came_of_it
                a_refused_operation_gives_no_hint
            }
            threads {
                b8_as_many_claimers_as_runs_each_get_one
                ro_04_one_key_started_by_many_is_one_run
                c5_signals_of_many_are_all_kept_and_one_is_delivered
                inv16_offers_of_many_reach_each_waiter_once
                b4_a_takeover_and_a_commit_have_one_winner
                si_04_many_rounds_and_signals_lose_nothing
                a_claimant_that_takes_what_it_wakes_is_the_only_one
            }
            lists {
                si_22_a_recorded_list_replayed_on_an_empty_store_gives_the_same_dump
            }
        }
    };
    (@of $make:path; $($module:ident { $($test:ident)* })*) => {
        $(mod $module {
            $(#[test]
            fn $test() {
                $crate::conformance::$module::$test(&$make);
            })*
        })*
    };
}

#[cfg(test)]
mod tests {
    /// A function that is not in the list would never run.
    #[test]
    fn every_test_is_in_the_list() {
        let list = include_str!("mod.rs");
        for source in [
            include_str!("claims.rs"),
            include_str!("deletes.rs"),
            include_str!("facts.rs"),
            include_str!("projections.rs"),
            include_str!("hints.rs"),
            include_str!("audits.rs"),
            include_str!("lists.rs"),
            include_str!("looks.rs"),
            include_str!("management.rs"),
            include_str!("records.rs"),
            include_str!("rounds.rs"),
            include_str!("scopes.rs"),
            include_str!("sealed.rs"),
            include_str!("signals.rs"),
            include_str!("threads.rs"),
            include_str!("trees.rs"),
            include_str!("undos.rs"),
            include_str!("works.rs"),
        ] {
            let tests = source.split("pub fn ").skip(1);
            let tests = tests.filter_map(|text| text.split_once("(make: &Make) {"));
            let names: Vec<&str> = tests.map(|(name, _)| name).collect();
            assert!(!names.is_empty());
            for name in names {
                let listed = list.lines().any(|line| line.trim() == name);
                assert!(listed, "`{name}` is not in the list of conformance tests");
            }
        }
    }
}

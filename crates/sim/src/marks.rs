//! What schedules ran into, counted: a situation that no seed reaches is not tested.

macro_rules! marks {
    ($($mark:ident $word:literal),* $(,)?) => {
        /// A situation that schedules must run into.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Mark {
            $(#[allow(missing_docs)] $mark,)*
        }

        impl Mark {
            /// All of them.
            pub const ALL: &'static [Mark] = &[$(Mark::$mark,)*];

            /// The word that is shown.
            #[must_use]
            pub fn as_str(self) -> &'static str {
                match self {
                    $(Mark::$mark => $word,)*
                }
            }
        }
    };
}

marks! {
    Crashed "crashed",
    CrashedInCommit "crashed_in_commit",
    CrashedInRecovery "crashed_in_recovery",
    Paused "paused",
    Stopped "stopped",
    ClockJumped "clock_jumped",
    ClockSetBack "clock_set_back",
    ClockSkewed "clock_skewed",
    StoreSlow "store_slow",
    Diverged "diverged",
    Mended "diverged_and_completed",
    VersionWaited "version_waited",
    HintLost "hint_lost",
    HintLate "hint_late",
    HintTwice "hint_twice",
    LateNews "news_of_an_epoch_that_has_passed",
    Unavailable "unavailable",
    UnknownAborted "unknown_resolved_aborted",
    UnknownCommitted "unknown_resolved_committed",
    UnknownLate "unknown_applied_late",
    LateApplied "late_commit_accepted",
    ZombieFenced "zombie_fenced",
    CancelRefused "refused_after_cancel",
    EffectRefused "effect_refused_after_cancel",
    LeaseLost "lease_lost",
    Replayed "replayed",
    FoundInMemory "found_in_memory",
    BornHere "born_here",
    FirstRound "first_round_with_start",
    ClaimedElsewhere "claimed_while_driven",
    ContinuedAsNew "continued_as_new",
    Parked "parked",
    OldLookRefused "old_look_refused",
    Resumed "resumed",
    Cancelled "cancelled",
    Deleted "deleted",
    StartedAgain "deleted_and_started_again",
    ParkedAsSuspect "parked_as_suspect",
    SignalDelivered "signal_delivered",
    SignalQueued "signal_queued",
    OfferDelivered "offer_delivered",
    Repeated "repeated_with_the_same_key",
    ScopeSettled "scope_settled",
    StepPublished "step_published",
    FailureHandled "child_failure_handled",
    CrowdSettled "scope_of_several_parts_settled",
    PublishedAgain "published_again_with_the_same_id",
    Unsubscribed "unsubscribed",
    JoinedInTime "joined_in_time",
    LateChildRefused "late_child_refused",
    RolledBack "rolled_back",
    RolledBackWithOthers "rolled_back_with_its_parent",
    RollbackFailed "rollback_failed",
    RollbackRetried "rollback_retried",
    RollbackSkipped "rollback_skipped",
    RollbackAccepted "rollback_accepted",
    UndoneOnRequest "undone_on_request",
    SubtreeUndone "subtree_undone",
    UndoRefused "undo_refused_while_running",
    CancelledAndUndone "cancelled_and_undone",
    DoneFinally "done_in_any_case",
    UndoneByName "undone_by_name",
    SettledAndUndone "undone_but_for_what_was_settled",
    DeadlineMissed "deadline_missed",
    DeadlineLifted "deadline_lifted",
    DeadlineFromAbove "deadline_from_above_missed",
    RollbackTooLate "rollback_deadline_missed",
    QueueFull "queue_full",
    QueuePaused "queue_paused",
    RateUsedUp "rate_used_up",
    KeyFull "flow_key_full",
    KeysInTurn "flow_keys_in_hand",
    SentInStep "sent_in_step",
    Audited "audited",
    FactRecorded "fact_recorded",
    FactWaited "fact_waits_for_another",
    FactLetGo "facts_let_go_by_the_one_they_need",
    FactTaken "fact_taken_from_its_queue",
    FactFollowed "fact_taken_up_afterwards",
    ProjectionRebuilt "projection_rebuilt",
    DecidedOnOldDocuments "decided_on_documents_that_have_changed",
    CompletedByHand "asked_to_complete_by_hand",
    BatchFinished "batch_finished",
    BatchFollowed "batch_finished_and_followed",
    BatchAwaitsOperator "batch_awaits_operator",
    BatchCancelled "batch_cancelled",
    PatchTold "patch_told_to_a_run_that_waits_for_it",
    PatchedMeanwhile "patched_between_the_look_and_the_wait",
    TimeStarted "started_by_a_schedule",
    TimeSkipped "time_of_a_schedule_skipped",
    TimeMissed "time_of_a_schedule_missed",
    TimeWaits "time_of_a_schedule_waits_for_its_last_run",
    SchedulePaused "schedule_paused",
    LookedWhilePaused "schedule_looked_while_paused",
    AskedOfSchedule "start_asked_of_a_schedule",
}

/// How often each was hit.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Marks(Vec<u64>);

impl Marks {
    pub(crate) fn hit(&mut self, mark: Mark) {
        if self.0.is_empty() {
            self.0.resize(Mark::ALL.len(), 0);
        }
        self.0[mark as usize] += 1;
    }

    /// How often this one was hit.
    #[must_use]
    pub fn of(&self, mark: Mark) -> u64 {
        self.0.get(mark as usize).copied().unwrap_or(0)
    }

    pub(crate) fn add(&mut self, other: &Marks) {
        if self.0.is_empty() {
            self.0.resize(Mark::ALL.len(), 0);
        }
        for (sum, one) in self.0.iter_mut().zip(&other.0) {
            *sum += one;
        }
    }
}

//! Bugs that can be switched on, one at a time, to see that the simulator's checks find them. In a
//! build without the feature `mutants` the question is a constant `false`, and costs nothing.

/// One bug.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(missing_docs)]
pub enum Mutant {
    /// Every line of a step's ledger is written twice: no check that sees anything misses this.
    Canary,
    /// A round is committed whoever has the run, under whatever epoch.
    NoFence,
    /// A worker's fence is its name alone.
    EpochIgnored,
    EpochKeptAtCommit,
    EpochKeptAtClaim,
    /// What was started again under the id of a run that was deleted is taken for that.
    EpochsBeginAnew,
    HeadKept,
    /// A run suspends without looking for what came meanwhile.
    SuspendsBlindly,
    StateLost,
    AnewDropsSignals,
    WakeLost,
    InboxLost,
    MatchedUncounted,
    ParentUntold,
    ToldToOldExecution,
    SenderKeyIgnored,
    /// A signal looks for a wait first and is put into the mailbox later.
    SignalUnmatched,
    OfferNotGivenBack,
    ConsumedKept,
    OwnMailKept,
    OfferGivenTwice,
    StartKeyIgnored,
    LostWorkersRunsLost,
    ReleasedRunsLost,
    ResumedRunsLost,
    CancelAckedOnly,
    CancelNotWoken,
    StepsAfterCancel,
    /// Effects begin in rounds after the request to end.
    BegunAfterCancel,
    EndOverwritten,
    EndKeepsWaits,
    /// Nobody looks after the signals that a run ended without.
    LeftoversForgotten,
    /// What is in memory is taken for current.
    StaleMemory,
    DoubledDeliveryTaken,
    /// What was told under an epoch that has passed is taken for new.
    LateMailTaken,
    /// A worker claims what it cannot run.
    AnyVersionClaimed,
    /// Code that asks for something else than the journal has goes on all the same.
    DivergenceRecorded,
    SleepLostInReplay,
    EffectLostInReplay,
    /// A step's writes stay although its round was refused or lost.
    StepOutsideRound,
    /// Whoever waits for a scope goes on when the first of its runs has ended.
    ScopeSettlesEarly,
    RolledBackTwice,
    /// What a call set off is undone after the call itself.
    UndoneInForwardOrder,
    /// A workflow joins a publication whose time has passed.
    LateSubscriberJoins,
    /// A failure that was handled is part of the next.
    FailurePresentedAgain,
    /// A run whose worker is gone undoes what it did, as if it had failed.
    LostWorkerFails,
    LatchPartLost,
    FailedStepUndone,
    RollbackEntryLost,
    /// What is to be done in any case is not done when all goes well.
    FinallySkipped,
    /// Nor when the function returned before it read how what it let go has ended: seldom met by
    /// chance, and so found by a script.
    FinallyUnread,
    /// What was done in any case is done again in a rollback.
    FinallyTwice,
    /// What has a name undoes without what was recorded for it.
    UndoArgumentsLost,
    /// What was declared settled is undone.
    SettledUndone,
    /// A run has its own deadlines only.
    DeadlineNotInherited,
    /// A run goes on after its deadline.
    DeadlineIgnored,
    /// What a failed rollback left is taken for accepted.
    AcceptedUnasked,
    /// What a step sends is lost, and the step stands.
    SentLost,
    /// What a decision was based on may have changed.
    StaleReads,
    FactTwice,
    FoldLost,
    /// How far a projection is, is not put down together with its documents.
    PositionApart,
    /// What a step recorded is not there.
    FactLost,
    /// An item is out of its queue before it is clear what becomes of its fact.
    InboxClearedFirst,
    /// Who needs a fact looks for it first, and waits for it later without looking again.
    NeedSeenTooEarly,
    /// Who waits for a fact is not told that it is there.
    NeedUntold,
    /// What is done in somebody's name is not written down.
    AuditLost,
    /// A run that was asked to end is completed by hand.
    CompletedAfterCancel,
    /// A run that has ended is completed by hand: a second reply.
    RepliedTwice,
    /// One that is parked keeps all others of its queue waiting.
    ParkedBlocksOthers,
    /// A lease that has ended still counts.
    PermitLeaked,
    /// What is leased does not count.
    PermitDoubled,
    /// A command that is parked counts as one that has ended.
    BatchEndsWithParked,
    /// What comes after a batch comes twice.
    CallbackTwice,
    /// What is leased for a key does not count for it.
    KeyOverdrawn,
    /// Who waits for the state of a run to change is not told.
    PatchWakesNobody,
    /// What changed between the look at the state and the wait for the next change is overlooked.
    ChangeOverlooked,
    /// What was decided on an earlier look at a parked run is done.
    OldLookTaken,
    /// What is cancelled without undo is undone.
    KeptUndone,
    /// A run that was parked for being late is still late when it is let go on.
    LateForEver,
    /// A run that is late is rolled back, whatever was declared.
    LateUndone,
    /// What is like another that was sent shortly before is sent again.
    DedupeIgnored,
    /// A schedule does not settle the times for which it starts something, nor give it a key.
    TickFiredTwice,
    /// A schedule forgets the times that came while nobody was there.
    LateTickLost,
    /// A schedule starts what is due whatever it started before.
    OverlapIgnored,
    /// A schedule that is paused starts what is due.
    PauseIgnored,
    /// A schedule that was resumed starts what came while it was paused.
    OwedAfterPause,
    /// What somebody asks of a schedule while something of it runs is answered, and not done.
    AskedLost,
    /// Of the times that wait, a schedule starts the first and forgets the others.
    WaitingForgotten,
}

impl Mutant {
    /// All but the canary and what only a script finds.
    pub const ALL: [Mutant; 87] = [
        Mutant::NoFence,
        Mutant::EpochIgnored,
        Mutant::EpochKeptAtCommit,
        Mutant::EpochKeptAtClaim,
        Mutant::EpochsBeginAnew,
        Mutant::HeadKept,
        Mutant::SuspendsBlindly,
        Mutant::StateLost,
        Mutant::AnewDropsSignals,
        Mutant::WakeLost,
        Mutant::InboxLost,
        Mutant::MatchedUncounted,
        Mutant::ParentUntold,
        Mutant::ToldToOldExecution,
        Mutant::SenderKeyIgnored,
        Mutant::SignalUnmatched,
        Mutant::OfferNotGivenBack,
        Mutant::ConsumedKept,
        Mutant::OwnMailKept,
        Mutant::OfferGivenTwice,
        Mutant::StartKeyIgnored,
        Mutant::LostWorkersRunsLost,
        Mutant::ReleasedRunsLost,
        Mutant::ResumedRunsLost,
        Mutant::CancelAckedOnly,
        Mutant::CancelNotWoken,
        Mutant::StepsAfterCancel,
        Mutant::BegunAfterCancel,
        Mutant::EndOverwritten,
        Mutant::EndKeepsWaits,
        Mutant::LeftoversForgotten,
        Mutant::StaleMemory,
        Mutant::DoubledDeliveryTaken,
        Mutant::LateMailTaken,
        Mutant::AnyVersionClaimed,
        Mutant::DivergenceRecorded,
        Mutant::SleepLostInReplay,
        Mutant::EffectLostInReplay,
        Mutant::StepOutsideRound,
        Mutant::ScopeSettlesEarly,
        Mutant::RolledBackTwice,
        Mutant::UndoneInForwardOrder,
        Mutant::LateSubscriberJoins,
        Mutant::FailurePresentedAgain,
        Mutant::LostWorkerFails,
        Mutant::LatchPartLost,
        Mutant::FailedStepUndone,
        Mutant::RollbackEntryLost,
        Mutant::FinallySkipped,
        Mutant::FinallyTwice,
        Mutant::UndoArgumentsLost,
        Mutant::SettledUndone,
        Mutant::DeadlineNotInherited,
        Mutant::DeadlineIgnored,
        Mutant::AcceptedUnasked,
        Mutant::SentLost,
        Mutant::StaleReads,
        Mutant::FactTwice,
        Mutant::FoldLost,
        Mutant::PositionApart,
        Mutant::FactLost,
        Mutant::InboxClearedFirst,
        Mutant::NeedSeenTooEarly,
        Mutant::NeedUntold,
        Mutant::AuditLost,
        Mutant::CompletedAfterCancel,
        Mutant::RepliedTwice,
        Mutant::ParkedBlocksOthers,
        Mutant::PermitLeaked,
        Mutant::PermitDoubled,
        Mutant::BatchEndsWithParked,
        Mutant::CallbackTwice,
        Mutant::KeyOverdrawn,
        Mutant::PatchWakesNobody,
        Mutant::ChangeOverlooked,
        Mutant::OldLookTaken,
        Mutant::KeptUndone,
        Mutant::LateForEver,
        Mutant::LateUndone,
        Mutant::DedupeIgnored,
        Mutant::TickFiredTwice,
        Mutant::LateTickLost,
        Mutant::OverlapIgnored,
        Mutant::PauseIgnored,
        Mutant::OwedAfterPause,
        Mutant::AskedLost,
        Mutant::WaitingForgotten,
    ];
}

#[cfg(feature = "mutants")]
std::thread_local! {
    static ON: std::cell::Cell<Option<Mutant>> = const { std::cell::Cell::new(None) };
}

/// Switches a bug on for this thread, or the one that is on off.
#[cfg(feature = "mutants")]
pub fn switch(mutant: Option<Mutant>) {
    ON.set(mutant);
}

/// The bug that is on in this thread.
#[cfg(feature = "mutants")]
#[must_use]
pub fn switched() -> Option<Mutant> {
    ON.get()
}

/// Is this bug on?
#[cfg(feature = "mutants")]
#[must_use]
pub fn on(mutant: Mutant) -> bool {
    ON.get() == Some(mutant)
}

/// Never.
#[cfg(not(feature = "mutants"))]
#[must_use]
pub const fn on(_: Mutant) -> bool {
    false
}

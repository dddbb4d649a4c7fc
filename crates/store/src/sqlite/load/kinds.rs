//! What sorts of needs there are.

use roundel_core::Need;

/// Must what was decided be written before this is asked for?
pub(in crate::sqlite) fn is_search(need: &Need) -> bool {
    match need {
        Need::Key(_)
        | Need::Gate(_)
        | Need::Run(_)
        | Need::Worker(_)
        | Need::State(_)
        | Need::Publication(_)
        | Need::Queue(_)
        | Need::Lock(_)
        | Need::Fact(_)
        | Need::Stream(_)
        | Need::Document(_)
        | Need::Projections(_)
        | Need::Latch(_) => false,
        Need::Due(..)
        | Need::Unseen(_)
        | Need::Subtree(..)
        | Need::Waits(..)
        | Need::AllWaits(..)
        | Need::Mail(..)
        | Need::Letter(_)
        | Need::Unread(_)
        | Need::Inbox(_)
        | Need::Offers(..)
        | Need::Waiters(..)
        | Need::Watchers(_)
        | Need::Subscribers(..)
        | Need::OpenPublications(..)
        | Need::Heard(_)
        | Need::Audit(_)
        | Need::Tail(..)
        | Need::Sweep(..)
        | Need::Permits(_)
        | Need::Scope(..) => true,
    }
}

/// Is it a list that is loaded whole?
pub(super) fn is_list(need: &Need) -> bool {
    matches!(
        need,
        Need::Waits(..)
            | Need::Unread(_)
            | Need::Inbox(_)
            | Need::Watchers(_)
            | Need::Subscribers(..)
            | Need::Audit(_)
            | Need::Permits(_)
            | Need::Projections(_)
    )
}

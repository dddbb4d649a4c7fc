//! Workflows whose runs cannot begin with their start for now, since the limits of their queues are
//! in the way: claims begin them, and every so many another start is tried.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{PoisonError, RwLock};

use roundel_core::Name;
use rustc_hash::FxHashMap;

/// So many runs are left to claims before another is tried to begin with its start.
const LEFT_TO_CLAIMS: usize = 64;

/// By workflow, how many are left to claims yet.
#[derive(Default)]
pub(super) struct Limited(RwLock<FxHashMap<Name, AtomicUsize>>);

impl Limited {
    /// Is the next run of this workflow left to claims?
    pub(super) fn is_left_to_claims(&self, workflow: &Name) -> bool {
        let limited = self.0.read().unwrap_or_else(PoisonError::into_inner);
        let Some(left) = limited.get(workflow) else {
            return false;
        };
        let one_less = |left: usize| left.checked_sub(1);
        let tried = left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_less);
        tried.is_ok()
    }

    /// A run that could have begun with its start was not leased.
    pub(super) fn leave_to_claims(&self, workflow: Name) {
        let mut limited = self.0.write().unwrap_or_else(PoisonError::into_inner);
        limited.insert(workflow, AtomicUsize::new(LEFT_TO_CLAIMS));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn co_30_after_so_many_another_start_is_tried() {
        let (limited, full) = (Limited::default(), Name::constant("full"));
        assert!(!limited.is_left_to_claims(&full));
        limited.leave_to_claims(full.clone());
        let left = (0..1000).filter(|_| limited.is_left_to_claims(&full));
        assert_eq!(left.count(), LEFT_TO_CLAIMS);
        assert!(!limited.is_left_to_claims(&Name::constant("free")));
    }
}

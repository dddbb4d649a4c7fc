//! Whoever is answered alone often asks again at once: the next round of the same run. Waking a
//! thread that sleeps costs both of them a good part of a round, so the committer stays awake for a
//! moment; not if that was in vain lately, and never longer than a few rounds are worth.

use std::time::Duration;

/// Where more were answered together, the next batch is gathered instead.
const FEW: usize = 4;
/// Longer than a run takes to its next call, shorter than a round.
pub(super) const MOMENT: Duration = Duration::from_micros(60);
/// After so many times in vain, it is tried one time in so many.
const IN_VAIN: u32 = 4;
const SELDOM: u32 = 64;

/// How often in a row it was in vain, or was not tried.
#[derive(Debug, Default)]
pub(super) struct Linger(u32);

impl Linger {
    /// Is it worth staying awake, when so many were just answered?
    pub(super) fn is_worth(&mut self, answered: usize) -> bool {
        if answered == 0 || answered > FEW {
            return false;
        }
        let tries = self.0 < IN_VAIN || self.0.is_multiple_of(SELDOM);
        self.0 = self.0.saturating_add(1);
        tries
    }

    /// Somebody came.
    pub(super) fn paid(&mut self) {
        self.0 = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn h12_whoever_comes_seldom_is_not_waited_for_awake() {
        let mut linger = Linger::default();
        let tries = (0..6_400).filter(|_| linger.is_worth(1)).count();
        assert_eq!(tries, 3 + 100);
        linger.paid();
        assert!(linger.is_worth(1) && !linger.is_worth(FEW + 1) && !linger.is_worth(0));
    }
}

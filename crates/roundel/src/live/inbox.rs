//! Messages that were matched to calls, as they reach the function.

use roundel_core::mutant::{self, Mutant};
use roundel_core::{Consumed, Delivery, Entry, Fence, STATE_CHANGED, Source};

use super::LiveRun;
use crate::cx::shared::Phase;
use crate::seal::sealed_outcome;

impl LiveRun {
    /// Is what was said under this fence news? If its epoch has passed, the commit or claim that
    /// raised it has said the same.
    pub(super) fn is_news(&self, fence: Fence) -> bool {
        self.fence.is_same_run(fence) && fence.epoch >= self.fence.epoch
    }

    /// A message came under this fence. If it is no news, it may have been consumed since, even
    /// before a replay.
    pub(crate) fn deliver(&mut self, fence: Fence, delivery: Delivery) {
        if self.is_news(fence) || mutant::on(Mutant::LateMailTaken) {
            self.inbox.push_back(delivery);
        }
    }

    /// What of the messages that came is sealed, because it does not open here.
    pub(crate) fn sealed(&self) -> Option<String> {
        let bodies = self.inbox.iter().map(|delivery| &delivery.body);
        bodies
            .into_iter()
            .find_map(sealed_outcome)
            .map(str::to_owned)
    }

    pub(super) fn take_delivery(&mut self, delivery: Delivery) {
        let call = delivery.call;
        if delivery.execution != self.shared.info.execution {
            return;
        }
        if let Source::Mail(number) = delivery.source
            && !self.seen_mail.insert(number)
            && !mutant::on(Mutant::DoubledDeliveryTaken)
        {
            return;
        }
        if self.is_of_scope(&delivery) {
            return self.take_settled(delivery);
        }
        if delivery.source == Source::Wait(STATE_CHANGED) {
            return self.look_again(call);
        }
        let child = self.children.remove(&call);
        self.draft.ended.extend(child.map(|child| (call, child)));
        let mut inner = self.shared.lock();
        let waits = inner
            .calls
            .get(&call)
            .is_some_and(|slot| slot.phase == Phase::Open);
        let waits = waits && !inner.closed && !inner.dropped.contains(&call);
        if waits {
            inner.complete(call, delivery.body.clone());
        }
        drop(inner);
        // A child that nobody waits for is over too, or replay would wait for it for ever.
        if waits || child.is_some() {
            self.draft.push(Entry::Done {
                call,
                outcome: delivery.body,
            });
        }
        if waits {
            self.timers.retain(|(_, of, _)| *of != call);
            let wait = self.waits.remove(&call);
            self.draft.lifted.extend(wait.map(|wait| (call, wait)));
        }
        match delivery.source {
            Source::Mail(number) => self.draft.consumed.push(Consumed::Mail(number)),
            Source::Wait(name) if waits => {
                self.draft.consumed.push(Consumed::Wait(name, call));
            }
            Source::Wait(_) => {}
        }
    }
}

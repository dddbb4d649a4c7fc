//! What the store answers and tells, opened. As with what is asked, every answer is named.
//!
//! What is read to be copied, counted or checked as it is stored stays sealed: records, offers,
//! dumps, tables of operators' own statements, and the audit, whose seals are over what is stored.

use roundel_core::{
    Claimed, Committed, Delivery, Hint, JournalRow, Lease, Name, Outcome, Patched, Payload, Reply,
    Source, Started,
};
use roundel_store::{Answer, RunView};

use super::envelope::open;
use super::keys::Keys;
use super::place::Place;
use super::walk::{self, Hand, holds_sealed};

/// Opens what it can, and leaves the rest as it is.
pub(super) struct Opener<'k> {
    pub(super) keys: &'k Keys,
    pub(super) namespace: &'k Name,
}

impl Hand for Opener<'_> {
    fn value(&mut self, place: &Place<'_>, _: Option<&str>, value: &mut Payload) {
        let opened = value
            .sealed()
            .and_then(|sealed| open((self.keys, self.namespace), place, sealed).ok());
        if let Some(opened) = opened.and_then(|text| Payload::parse(&text).ok()) {
            *value = opened;
        }
    }

    fn text(&mut self, place: &Place<'_>, text: &mut String) {
        if text.starts_with(roundel_core::SEALED)
            && let Ok(opened) = open((self.keys, self.namespace), place, text)
        {
            *text = opened;
        }
    }

    fn is_for(&self, text: &[u8]) -> bool {
        holds_sealed(text)
    }
}

/// A value from the audit, where it is kept as it was stored: it says itself where it belongs.
pub(crate) fn opened(keys: &Keys, namespace: &Name, value: &Payload) -> Payload {
    let (mut opener, mut value) = (Opener { keys, namespace }, value.clone());
    opener.value(&Place::Anywhere, None, &mut value);
    // A patch, by its members.
    walk::state(&mut opener, &mut value);
    value
}

impl Opener<'_> {
    pub(super) fn answer(&mut self, answer: &mut Answer) {
        match answer {
            Answer::Run(Some(run)) => self.run(run),
            Answer::Runs(page) => page.items.iter_mut().for_each(|run| self.run(run)),
            Answer::Looked(found) => found.items.iter_mut().for_each(|run| self.run(run)),
            Answer::Journal(page) => {
                for JournalRow { run, entries, .. } in &mut page.items {
                    walk::encoded(self, *run, entries);
                }
            }
            Answer::Mail(messages) => {
                for (id, row) in messages {
                    self.mail(id.name.as_ref(), &mut row.body);
                }
            }
            Answer::Parked(page) => {
                for signal in &mut page.items {
                    self.mail(signal.id.name.as_ref(), &mut signal.row.body);
                }
            }
            Answer::State(Some(state)) => walk::state(self, &mut state.value),
            Answer::Publications(page) => {
                for (_, row) in &mut page.items {
                    self.value(&Place::Topic(&row.topic), None, &mut row.payload);
                    walk::context(self, &mut row.context);
                }
            }
            Answer::Run(None)
            | Answer::State(None)
            | Answer::Below(_)
            | Answer::Topics(_)
            | Answer::Stats(_)
            | Answer::Workers(_)
            | Answer::Lanes(_)
            | Answer::Queues(_)
            | Answer::Facts(_)
            | Answer::Documents(_)
            | Answer::Projections(_) => {}
            Answer::Records(_)
            | Answer::Offers(_)
            | Answer::Audit(_)
            | Answer::Table(_)
            | Answer::Dump(_) => {}
        }
    }

    fn run(&mut self, run: &mut RunView) {
        let place = Place::Output(Some(run.row.id));
        let outcome = &mut run.row.outcome;
        outcome
            .iter_mut()
            .for_each(|outcome| walk::outcome(self, &place, outcome));
    }

    fn mail(&mut self, name: Option<&Name>, body: &mut Outcome) {
        let place = name.map_or(Place::SomeOutput, Place::Signal);
        walk::outcome(self, &place, body);
    }

    pub(super) fn reply(&mut self, reply: &mut Reply) {
        match reply {
            Reply::Started(started) => self.started(started),
            Reply::Committed(committed) => self.committed(committed),
            Reply::Sent(_, claimed) | Reply::Cancelled(_, claimed) => self.claimed(claimed),
            Reply::Claimed { runs, next: _ } => self.claimed(runs),
            Reply::Renewed(renewed) => {
                for renewed in renewed {
                    match &mut renewed.lease {
                        Lease::Kept { inbox, .. } => self.inbox(inbox),
                        Lease::Lost => {}
                    }
                }
            }
            Reply::Patched(Patched::Changed(state)) => walk::state(self, &mut state.value),
            Reply::Patched(
                Patched::VersionIs(_) | Patched::TargetEnded(_) | Patched::TargetUnknown,
            )
            | Reply::Released(_)
            | Reply::Registered(_)
            | Reply::Published(_)
            | Reply::Subscribed(_)
            | Reply::Joined(_)
            | Reply::Completed
            | Reply::Undone(_)
            | Reply::Accepted
            | Reply::Parked
            | Reply::Resumed
            | Reply::Deleted { .. }
            | Reply::Forgotten(_)
            | Reply::Recorded(_)
            | Reply::Received(_)
            | Reply::Projected(_)
            | Reply::Followed(_)
            | Reply::Limited(_) => {}
        }
    }

    fn started(&mut self, started: &mut Started) {
        let Started {
            first,
            claimed,
            run: _,
            new: _,
            sent: _,
        } = started;
        if let Some(Ok(committed)) = first.as_deref_mut() {
            self.committed(committed);
        }
        self.claimed(claimed);
    }

    fn committed(&mut self, committed: &mut Committed) {
        let Committed { inbox, claimed, .. } = committed;
        self.inbox(inbox);
        self.claimed(claimed);
    }

    fn claimed(&mut self, claimed: &mut [Claimed]) {
        let inboxes = claimed.iter_mut().map(|claimed| &mut claimed.inbox);
        inboxes.for_each(|inbox| self.inbox(inbox));
    }

    fn inbox(&mut self, inbox: &mut [Delivery]) {
        inbox.iter_mut().for_each(|of| self.delivery(of));
    }

    fn delivery(&mut self, delivery: &mut Delivery) {
        let name = match &delivery.source {
            Source::Wait(name) => Some(name),
            Source::Mail(_) => None,
        };
        self.mail(name, &mut delivery.body);
    }

    pub(super) fn hint(&mut self, hint: &mut Hint) {
        match hint {
            Hint::Mail(_, _, delivery) => self.delivery(delivery),
            Hint::AtRest(run, _, Some(outcome)) => {
                walk::outcome(self, &Place::Output(Some(*run)), outcome);
            }
            Hint::AtRest(_, _, None) | Hint::Ready(..) | Hint::Cancel(..) | Hint::Facts(_) => {}
        }
    }
}

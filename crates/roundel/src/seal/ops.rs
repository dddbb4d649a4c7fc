//! What is asked of the store, sealed. Every operation is named here, with all that it holds: one
//! that is new, or holds something new, does not compile until it is said what becomes of it.

use roundel_core::{
    Anew, Audited, Batch, Caused, Complete, IfParked, Name, Offer, Op, Park, Patch, Payload,
    Publish, RETENTION, Record, Resume, Round, RunId, Signal, Start, StateChange, Target, Then,
};

use super::envelope::seal;
use super::keys::Keys;
use super::place::Place;
use super::walk::{self, Hand};

/// Seals.
pub(super) struct Sealer<'k> {
    pub(super) keys: &'k Keys,
    pub(super) namespace: &'k Name,
}

impl Hand for Sealer<'_> {
    fn value(&mut self, place: &Place<'_>, once: Option<&str>, value: &mut Payload) {
        // What is sealed already comes back from a try before, or was never opened.
        if value.sealed().is_none() {
            let sealed = seal((self.keys, self.namespace), place, value.as_str(), once);
            *value = Payload::encode(&sealed).expect("a text is JSON");
        }
    }

    fn text(&mut self, place: &Place<'_>, text: &mut String) {
        if !text.starts_with(roundel_core::SEALED) {
            *text = seal((self.keys, self.namespace), place, text, None);
        }
    }

    fn is_for(&self, _: &[u8]) -> bool {
        true
    }
}

impl Sealer<'_> {
    pub(super) fn op(&mut self, op: &mut Op) {
        match op {
            Op::Start(start) => self.start(start),
            Op::Commit(round) => self.round(round),
            Op::Signal(signal) => self.signal(signal),
            Op::Offer(offer) => self.offer(offer),
            Op::Patch(patch) => self.patch(patch),
            Op::Publish(publish) => self.publish(publish),
            Op::Complete(complete) => self.complete(complete),
            Op::Park(park) => {
                let Park {
                    failure,
                    namespace: _,
                    target: _,
                    seen: _,
                } = &mut **park;
                walk::failure(self, failure);
            }
            Op::Resume(resume) => self.resume(resume),
            Op::IfParked(parked) => {
                let IfParked { op, seen: _ } = &mut **parked;
                self.op(op);
            }
            Op::Audited(audited) => {
                let Audited {
                    op,
                    operator: _,
                    reason: _,
                } = &mut **audited;
                self.op(op);
            }
            Op::Record(record) => self.record(record),
            // Facts that come in stay as they are: commits fold them into documents.
            Op::Receive(_) => {}
            Op::Redirect(_)
            | Op::Cancel(_)
            | Op::Claim(_)
            | Op::Renew(_)
            | Op::Release(_)
            | Op::Register(_)
            | Op::Subscribe(_)
            | Op::Join(_)
            | Op::Undo(_)
            | Op::Accept(_)
            | Op::Delete(_)
            | Op::Forget(_)
            | Op::Declare(_)
            | Op::Rebuild(_)
            | Op::SkipFact(_)
            | Op::Follow(_)
            | Op::Limit(_) => {}
        }
    }

    fn start(&mut self, start: &mut Start) {
        let Start {
            workflow,
            key,
            input,
            context,
            first,
            signal,
            batch,
            namespace: _,
            run: _,
            version: _,
            labels: _,
            priority: _,
            flow_key: _,
            dedupe: _,
            at: _,
            parent: _,
            deadlines: _,
            claimant: _,
        } = start;
        if !walk::is_plain(workflow) {
            let once = key.as_ref().map(Name::as_str);
            self.value(&Place::Input(workflow), once, input);
        }
        walk::context(self, context);
        first.iter_mut().for_each(|round| self.round(round));
        signal.iter_mut().for_each(|signal| self.signal(signal));
        if let Some(batch) = batch {
            let Batch { members, then } = &mut **batch;
            members.iter_mut().for_each(|start| self.start(start));
            then.iter_mut().for_each(|start| self.start(start));
        }
    }

    pub(super) fn round(&mut self, round: &mut Round) {
        let Round {
            run,
            entries,
            caused,
            state,
            then,
            worker: _,
            epoch: _,
            created_at: _,
            parent: _,
            gates: _,
            count: _,
            consumed: _,
            closed: _,
            opened: _,
            cancel_seen: _,
            undo: _,
            state_seen: _,
            timer_at: _,
            lease: _,
        } = round;
        walk::encoded(self, *run, entries);
        caused.iter_mut().for_each(|caused| self.caused(caused));
        for change in state {
            match change {
                StateChange::Set(value) | StateChange::Merge(value) => walk::state(self, value),
            }
        }
        self.then(*run, then);
    }

    fn then(&mut self, run: RunId, then: &mut Then) {
        match then {
            Then::Continue | Then::Suspend => {}
            Then::End(_, outcome) => walk::outcome(self, &Place::Output(Some(run)), outcome),
            Then::ContinueAsNew(started, _) => walk::encoded(self, run, started),
            Then::Park(failure) => walk::failure(self, failure),
        }
    }

    fn caused(&mut self, caused: &mut Caused) {
        match caused {
            Caused::Child(_, start) | Caused::Spawn(_, start) | Caused::Send(start) => {
                self.start(start);
            }
            Caused::Children(_, starts) => starts.iter_mut().for_each(|start| self.start(start)),
            Caused::Record(record) => self.record(record),
            Caused::Signal(_, signal) => self.signal(signal),
            Caused::Offer(_, offer) => self.offer(offer),
            Caused::Publish(_, publish) => self.publish(publish),
            Caused::RollBack(_, _, context) => walk::context(self, context),
            Caused::Watch(..) | Caused::Close(_) | Caused::Cancel(_) => {}
        }
    }

    fn signal(&mut self, signal: &mut Signal) {
        let Signal {
            name,
            payload,
            key,
            namespace: _,
            target: _,
            policy: _,
            expires: _,
            claimant: _,
        } = signal;
        let once = key.as_ref().map(Name::as_str);
        self.value(&Place::Signal(name), once, payload);
    }

    fn offer(&mut self, offer: &mut Offer) {
        let Offer {
            name,
            payload,
            key,
            namespace: _,
            claimant: _,
        } = offer;
        let once = key.as_ref().map(Name::as_str);
        self.value(&Place::Signal(name), once, payload);
    }

    fn publish(&mut self, publish: &mut Publish) {
        let Publish {
            id,
            topic,
            payload,
            context,
            namespace: _,
            window: _,
            deadlines: _,
        } = publish;
        let once = id.to_string();
        self.value(&Place::Topic(topic), Some(&once), payload);
        walk::context(self, context);
    }

    fn patch(&mut self, patch: &mut Patch) {
        let Patch {
            target,
            patch,
            namespace: _,
            expected: _,
        } = patch;
        // How long things are kept is the engine's own business, and read by all.
        if *target != Target::Key(RETENTION) {
            walk::state(self, patch);
        }
    }

    fn complete(&mut self, complete: &mut Complete) {
        let Complete {
            target,
            value,
            namespace: _,
        } = complete;
        let run = match target {
            Target::Run(run) => Some(*run),
            Target::Key(_) => None,
        };
        self.value(&Place::Output(run), None, value);
    }

    fn resume(&mut self, resume: &mut Resume) {
        let Resume {
            anew,
            namespace: _,
            target: _,
            skip: _,
        } = resume;
        if let Some(Anew {
            started,
            execution: _,
        }) = anew
        {
            // It begins with what it is started with, which names no run.
            walk::encoded(self, RunId::from_bytes([0; 16]), started);
        }
    }

    /// Commands that are sent with facts; the facts stay as they are.
    fn record(&mut self, record: &mut Record) {
        let Record {
            sent,
            facts: _,
            queued: _,
            namespace: _,
            seen: _,
            own: _,
            by: _,
            knows: _,
        } = record;
        sent.iter_mut().for_each(|start| self.start(start));
    }
}

//! Runs that belong together: who published what to whom, who undoes, and in which order. What is
//! asked of them, and what is promised: a parent after its children (INV7), undone in reverse
//! (INV8), undone completely and once (INV9), one run for each subscriber (D1).

use std::collections::{BTreeMap, BTreeSet};

use crate::incoming::is_item;
use crate::marks::Mark;
use crate::site::{Line, Site, Way};
use crate::trees::{self, Plot};
use crate::world::{NAMESPACE, World};
use roundel_core::{
    Accept, CancelMark, Caused, Deadline, Failure, Join, Joined, Name, Op, Outcome, Payload,
    PublicationId, Publish, Reply, Resume, Round, Rows, RunId, RunRow, RunState, Started,
    Subscribe, Target, Then, Told, Undo, UndoMark, Undone,
};

pub(crate) const TOPIC: Name = Name::constant("news");

/// What is known of runs that belong together.
#[derive(Debug, Default)]
pub(crate) struct Kin {
    /// Who subscribed when it was published.
    pub(crate) pinned: BTreeMap<PublicationId, BTreeSet<Name>>,
    /// Runs of which an undo was left out, or what remains accepted.
    pub(crate) left_out: BTreeSet<RunId>,
    /// Runs whose rollback an operator lets go on, whatever those above them do.
    pub(crate) alone: BTreeSet<RunId>,
    /// Runs whose remainder an operator has accepted.
    pub(crate) accepted: BTreeSet<RunId>,
    /// Runs that were parked, and that an operator had undone: whatever the reason was.
    pub(crate) given_up: BTreeSet<RunId>,
    /// Runs that were parked for being late, and let go on.
    pub(crate) lifted: BTreeSet<RunId>,
}

/// What an operation is about to do.
#[derive(Default)]
pub(crate) struct News {
    /// What it publishes, and who subscribes.
    published: Vec<(PublicationId, BTreeSet<Name>)>,
    /// The run undoes what it did.
    undoes: bool,
    /// It goes forward, and this is its deadline.
    due: Option<Deadline>,
    /// A run below it that has not ended, if it takes its next step or ends.
    open: Option<(RunId, RunState)>,
    target: Option<(RunId, RunState)>,
    /// That is parked for being late.
    late: Option<RunId>,
}

impl News {
    pub(crate) fn of(op: &Op, written: &[Line], rows: &Rows) -> News {
        let mut news = News::default();
        let target = |target: &Target| match target {
            Target::Run(run) => rows.run(*run).map(|row| (*run, row.state)),
            Target::Key(_) => None,
        };
        match op {
            Op::Publish(publish) => news.note(publish, rows),
            Op::Commit(round) => {
                let row = rows.run(round.run);
                news.undoes = row.is_some_and(|row| row.undo == UndoMark::Underway);
                let forward = row.filter(|row| !news.undoes && row.cancel == CancelMark::None);
                news.due = forward.and_then(|row| row.deadlines.forward);
                let in_sequence =
                    |(_, _, name, way): &Line| *way == Way::Done && trees::is_in_sequence(name);
                let ends = matches!(round.then, Then::End(..) | Then::ContinueAsNew(..));
                if ends || written.iter().any(in_sequence) {
                    news.open = open_below(round.run, rows);
                }
                news.note_all(round, rows);
            }
            Op::Start(start) => {
                if let Some(first) = &start.first {
                    news.note_all(first, rows);
                }
            }
            Op::Resume(resume) => {
                news.target = target(&resume.target);
                let parked = news.target.filter(|(_, state)| *state == RunState::Parked);
                let row = parked.and_then(|(run, _)| rows.run(run));
                // An operator's request to end matters more than a deadline.
                let is_late = |row: &&RunRow| {
                    let why = row.outcome.as_ref().filter(|_| !asked_to_end(row));
                    matches!(why, Some(Outcome::Failure(why)) if why.code == Deadline::CODE)
                };
                news.late = row.filter(is_late).map(|row| row.id);
            }
            Op::Accept(accept) => news.target = target(&accept.target),
            Op::Undo(undo) => news.target = target(&undo.target),
            _ => {}
        }
        news
    }

    fn note_all(&mut self, round: &Round, rows: &Rows) {
        for caused in &round.caused {
            if let Caused::Publish(_, publish) = caused {
                self.note(publish, rows);
            }
        }
    }

    fn note(&mut self, publish: &Publish, rows: &Rows) {
        let workflows = rows.subscribers_of(&publish.namespace, &publish.topic);
        self.published
            .push((publish.id, workflows.cloned().collect()));
    }
}

impl World<'_> {
    /// Everybody subscribes.
    pub(crate) fn subscribe_all(&mut self) {
        for workflow in ["tree", "twig"] {
            let op = World::subscription(Name::constant(workflow), true);
            let _ = self.model.decide(&op, self.now);
        }
        self.model.take_hints();
    }

    pub(crate) fn subscription(workflow: Name, on: bool) -> Op {
        Op::Subscribe(Subscribe {
            namespace: NAMESPACE,
            topic: TOPIC,
            workflow,
            on,
        })
    }

    pub(crate) fn plot(&mut self) -> Payload {
        World::payload(&Plot {
            seed: self.random.next(),
            depth: u8::try_from(self.random.below(5)).expect("small"),
            ..Plot::default()
        })
    }

    /// A workflow that cooperates, now and then.
    pub(crate) fn pick_tree(&mut self) -> Option<usize> {
        if !self.cooperates || !self.random.once_in(2) {
            return None;
        }
        let name = match self.random.below(32) {
            0 => "crowd",
            _ => "tree",
        };
        self.flows
            .iter()
            .position(|flow| flow.name.as_str() == name)
    }

    /// Some run, in whichever state if none is given.
    pub(crate) fn any_run(&mut self, state: Option<RunState>) -> Target {
        let rows = self.model.rows();
        let fits = |row: &&RunRow| state.is_none_or(|state| row.state == state);
        let started = rows.runs().filter(|row| !is_item(rows, row));
        let mut runs: Vec<RunId> = started.filter(fits).map(|row| row.id).collect();
        runs.sort_unstable();
        let at = self.random.below(runs.len().max(1));
        Target::Run(runs.get(at).copied().unwrap_or(RunId::from_bytes([1; 16])))
    }

    /// What lets a run go on that is parked, or whose rollback failed.
    pub(crate) fn let_go_on(&mut self, run: RunId) -> Op {
        let (namespace, target) = (NAMESPACE, Target::Run(run));
        let row = self.model.rows().run(run);
        let failed = row.is_some_and(|row| row.state == RunState::RollbackFailed);
        if failed && self.random.once_in(4) {
            return Op::Accept(Accept { namespace, target });
        }
        // What fails for good is undone.
        if !failed && self.cooperates && self.book.resumed(run) > 3 {
            return Op::Undo(Undo { namespace, target });
        }
        let skip = failed && self.random.once_in(3);
        Op::Resume(Resume {
            namespace,
            target,
            skip,
            anew: None,
        })
    }

    /// An operation is done, and what its step wrote is about to be in the ledger.
    pub(crate) fn kin_after(&mut self, news: News, op: &Op, reply: &Reply, written: &[Line]) {
        // A first round may be refused where its start is not.
        let done = |started: &Started| matches!(started.first.as_deref(), Some(Ok(_)));
        let refused = matches!(reply, Reply::Started(started) if !done(started));
        for (id, workflows) in news.published.into_iter().filter(|_| !refused) {
            self.book.kin.pinned.entry(id).or_insert(workflows);
        }
        match (op, reply) {
            (Op::Commit(round), _) => {
                if let Some((child, state)) = news.open {
                    let (run, state) = (round.run, state.as_str());
                    let found = format!("{run} went on, {child} is {state}");
                    self.book
                        .complain(&format!("inv7_parent_after_children: {found}"));
                }
                self.written(written);
                let late = news.due.is_some_and(|due| due.has_passed(self.now));
                if late && written.iter().any(|(.., way)| *way == Way::Done) {
                    let found = format!("sc_43: {} took a step after its deadline", round.run);
                    self.book.complain(&found);
                }
                let publishes = |caused: &Caused| matches!(caused, Caused::Publish(..));
                if !written.is_empty() && round.caused.iter().any(publishes) {
                    self.marks.hit(Mark::StepPublished);
                }
                if let Then::End(state, _) = round.then {
                    self.ended(round.run, state, news.undoes);
                }
            }
            (Op::Undo(_), Reply::Undone(Undone::Begun { partial })) => {
                if let Some((run, RunState::Parked)) = news.target {
                    self.book.kin.given_up.insert(run);
                }
                self.marks.hit(match partial {
                    true => Mark::SubtreeUndone,
                    false => Mark::UndoneOnRequest,
                });
            }
            (Op::Subscribe(subscribe), Reply::Subscribed(changed)) => match subscribe.on {
                true => self.subscribed(subscribe),
                false if *changed => self.marks.hit(Mark::Unsubscribed),
                false => {}
            },
            (Op::Join(join), Reply::Joined(joined)) => self.joined(join, *joined),
            (Op::Resume(resume), _) => {
                if let Some(run) = news.late {
                    self.marks.hit(Mark::DeadlineLifted);
                    self.book.kin.lifted.insert(run);
                }
                if let Some((run, RunState::RollbackFailed)) = news.target {
                    self.book.kin.alone.insert(run);
                    self.book.kin.accepted.remove(&run);
                    if resume.skip {
                        self.book.kin.left_out.insert(run);
                    }
                    self.marks.hit(match resume.skip {
                        true => Mark::RollbackSkipped,
                        false => Mark::RollbackRetried,
                    });
                }
            }
            (Op::Accept(_), _) => {
                self.marks.hit(Mark::RollbackAccepted);
                let target = news.target.map(|(run, _)| run);
                self.book.kin.alone.extend(target);
                self.book.kin.accepted.extend(target);
            }
            _ => {}
        }
    }

    /// Whoever subscribes hears what can still be joined.
    fn subscribed(&mut self, subscribe: &Subscribe) {
        let rows = self.model.rows().publications.iter();
        let open = rows.filter(|(_, row)| row.closes_at.is_some_and(|at| at > self.now));
        for (id, _) in open {
            let pinned = self.book.kin.pinned.entry(*id).or_default();
            if pinned.insert(subscribe.workflow.clone()) {
                self.marks.hit(Mark::JoinedInTime);
            }
        }
    }

    /// Whoever joins in time is one of those who heard it; nobody else is let in.
    fn joined(&mut self, join: &Join, joined: Joined) {
        let row = self.model.rows().publications.get(&join.publication);
        let closes_at = row.and_then(|row| row.closes_at);
        let in_time = closes_at.is_some_and(|at| self.now < at);
        match joined {
            Joined::New(_) if in_time => {
                self.marks.hit(Mark::JoinedInTime);
                let pinned = self.book.kin.pinned.get_mut(&join.publication);
                pinned.map(|pinned| pinned.insert(join.workflow.clone()));
            }
            Joined::New(run) => {
                let found = format!("sc_14: {run} joined when the window was closed");
                self.book.complain(&found);
            }
            Joined::Late => self.marks.hit(Mark::LateChildRefused),
            _ => {}
        }
    }

    /// What steps of their own wrote: by name, or in any case.
    fn written(&mut self, written: &[Line]) {
        for (_, _, name, way) in written {
            match way {
                Way::Undone if name.starts_with('n') => self.marks.hit(Mark::UndoneByName),
                Way::Finally => self.marks.hit(Mark::DoneFinally),
                _ => {}
            }
        }
    }

    /// Which deadlines were missed.
    fn missed(&mut self, run: RunId, state: RunState) {
        let row = self.model.rows().run(run).expect("it has ended");
        let Some(Outcome::Failure(failure)) = &row.outcome else {
            return;
        };
        let late = |failure: &Failure| failure.code == Deadline::CODE;
        let set_by = row.deadlines.forward.map(|due| due.set_by);
        if late(failure) {
            self.marks.hit(Mark::DeadlineMissed);
            if Some(run) != set_by && row.parent.map(|parent| parent.run) != set_by {
                self.marks.hit(Mark::DeadlineFromAbove);
            }
        }
        let cause = failure.cause.as_deref();
        if state == RunState::RollbackFailed && cause.is_some_and(late) {
            self.marks.hit(Mark::RollbackTooLate);
        }
    }

    fn ended(&mut self, run: RunId, state: RunState, undoes: bool) {
        self.missed(run, state);
        let rows = self.model.rows();
        let settled = crate::site::with(|site| is_settled(run, 1, rows, site));
        if settled && undoes {
            self.marks.hit(Mark::SettledAndUndone);
        }
        match state {
            RunState::RolledBack => {
                self.marks.hit(Mark::RolledBack);
                let row = self.model.rows().run(run);
                let told = row.map(|row| row.told);
                if matches!(told, Some(Told::Latch { .. })) {
                    self.marks.hit(Mark::RolledBackWithOthers);
                }
            }
            RunState::RollbackFailed => self.marks.hit(Mark::RollbackFailed),
            RunState::Cancelled if undoes => self.marks.hit(Mark::CancelledAndUndone),
            _ => {}
        }
    }
}

fn asked_to_end(row: &RunRow) -> bool {
    row.cancel != CancelMark::None || row.undo == UndoMark::Underway
}

/// A run takes its next step, or ends: has something that it set off not ended?
fn open_below(run: RunId, rows: &Rows) -> Option<(RunId, RunState)> {
    let below = |row: &&RunRow| row.parent.is_some_and(|parent| parent.run == run);
    // An operator undoes it on its own: nobody waits for that.
    let alone = |row: &RunRow| row.undo == UndoMark::Underway && row.told == Told::Nobody;
    let mut below = rows.runs().filter(below);
    let open = below.find(|row| !row.state.has_ended() && !alone(row));
    open.map(|row| (row.id, row.state))
}

/// Was an execution declared settled, and has the next begun? Then those before it are, too.
pub(crate) fn is_settled(run: RunId, execution: u32, rows: &Rows, site: &Site) -> bool {
    let current = rows.run(run).map_or(0, |row| row.execution);
    let mut settled = site.settled.range((run, execution)..(run, current));
    settled.next().is_some()
}

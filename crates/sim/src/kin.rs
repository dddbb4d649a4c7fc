//! Runs that belong together: who published what to whom, who undoes, and in which order. What is
//! asked of them, and what is promised: a parent after its children (INV7), undone in reverse
//! (INV8), undone completely and once (INV9), one run for each subscriber (D1).

use std::collections::{BTreeMap, BTreeSet};

use roundel_core::{
    Accept, Caused, Join, Joined, Name, Op, Outcome, Payload, PublicationId, Publish, Reply,
    Resume, Round, Rows, RunId, RunRow, RunState, Subscribe, Target, Then, Told, Undo, UndoMark,
    Undone,
};
use roundel_store::Model;

use crate::book::Book;
use crate::marks::Mark;
use crate::site::{Line, Site, Way};
use crate::trees::{self, Plot};
use crate::world::{NAMESPACE, World};

pub(crate) const TOPIC: Name = Name::constant("news");

/// What is known of runs that belong together.
#[derive(Debug, Default)]
pub(crate) struct Kin {
    /// Who subscribed when it was published.
    pub(crate) pinned: BTreeMap<PublicationId, BTreeSet<Name>>,
    /// Runs of which an undo was left out, or what remains accepted.
    left_out: BTreeSet<RunId>,
    /// Runs whose rollback an operator lets go on, whatever those above them do.
    alone: BTreeSet<RunId>,
    /// Runs that were parked, and that an operator had undone: whatever the reason was.
    given_up: BTreeSet<RunId>,
}

/// What an operation is about to do.
#[derive(Default)]
pub(crate) struct News {
    /// What it publishes, and who subscribes.
    published: Vec<(PublicationId, BTreeSet<Name>)>,
    /// The run undoes what it did.
    undoes: bool,
    /// A run below it that has not ended, if it takes its next step or ends.
    open: Option<(RunId, RunState)>,
    target: Option<(RunId, RunState)>,
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
            Op::Resume(resume) => news.target = target(&resume.target),
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
            depth: u8::try_from(self.random.below(7)).expect("small"),
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
        let rows = self.model.rows().runs();
        let fits = |row: &&RunRow| state.is_none_or(|state| row.state == state);
        let mut runs: Vec<RunId> = rows.filter(fits).map(|row| row.id).collect();
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
        })
    }

    /// An operation is done, and what its step wrote is about to be in the ledger.
    pub(crate) fn kin_after(&mut self, news: News, op: &Op, reply: &Reply, written: &[Line]) {
        // A first round may be refused where its start is not.
        let refused =
            matches!(reply, Reply::Started(started) if !matches!(started.first, Some(Ok(_))));
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
            (Op::Subscribe(subscribe), Reply::Subscribed(true)) if !subscribe.on => {
                self.marks.hit(Mark::Unsubscribed);
            }
            (Op::Join(join), Reply::Joined(joined)) => self.joined(join, *joined),
            (Op::Resume(resume), _) => {
                if let Some((run, RunState::RollbackFailed)) = news.target {
                    self.book.kin.alone.insert(run);
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
            }
            _ => {}
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

    fn ended(&mut self, run: RunId, state: RunState, undoes: bool) {
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

/// A run takes its next step, or ends: has something that it set off not ended?
fn open_below(run: RunId, rows: &Rows) -> Option<(RunId, RunState)> {
    let below = |row: &&RunRow| row.parent.is_some_and(|parent| parent.run == run);
    // An operator undoes it on its own: nobody waits for that.
    let alone = |row: &RunRow| row.undo == UndoMark::Underway && row.told == Told::Nobody;
    let mut below = rows.runs().filter(below);
    let open = below.find(|row| !row.state.has_ended() && !alone(row));
    open.map(|row| (row.id, row.state))
}

impl Book {
    /// Runs that belong together, when all is at rest.
    pub(crate) fn judge_kin(&mut self, model: &Model, site: &Site) {
        if site.ledger.is_empty() && self.kin.pinned.is_empty() {
            return;
        }
        let rows = model.rows();
        self.judge_publications(rows);
        let mut lines: BTreeMap<RunId, Lines> = BTreeMap::new();
        for ((run, _, name, way), wrote) in &site.ledger {
            let lines = lines.entry(*run).or_default();
            match way {
                Way::Done => lines.done.push((wrote.at, name)),
                Way::Undone => lines.undone.push((wrote.at, name)),
            }
        }
        for lines in lines.values_mut() {
            lines.done.sort_unstable();
            lines.undone.sort_unstable();
        }
        for row in rows.runs() {
            let name = rows.lane(row.lane).workflow.as_str();
            if ["tree", "twig", "late"].contains(&name) {
                self.judge_tree(row, rows, &lines);
            }
        }
    }

    /// One run for each workflow that subscribed when it was published.
    fn judge_publications(&mut self, rows: &Rows) {
        let mut heard: BTreeMap<PublicationId, Vec<Name>> = BTreeMap::new();
        for row in rows.runs() {
            if let Some(id) = row.publication {
                let workflow = rows.lane(row.lane).workflow.clone();
                heard.entry(id).or_default().push(workflow);
            }
        }
        for (id, pinned) in std::mem::take(&mut self.kin.pinned) {
            let mut heard = heard.remove(&id).unwrap_or_default();
            heard.sort();
            let missing = pinned.iter().filter(|name| {
                let run = roundel_core::subscriber_run(id, name);
                !heard.contains(name) && !self.deleted.contains(&run)
            });
            let missing: Vec<&Name> = missing.collect();
            let others = heard.iter().any(|name| !pinned.contains(name));
            let twice = heard.windows(2).any(|pair| pair[0] == pair[1]);
            if !missing.is_empty() || others || twice {
                let found = format!("d1_one_run: {id} is heard by {heard:?}, not {pinned:?}");
                self.complain(&found);
            }
        }
        if let Some((id, _)) = heard.first_key_value() {
            self.complain(&format!("d1_one_run: nobody published {id}"));
        }
    }

    fn judge_tree(&mut self, row: &RunRow, rows: &Rows, lines: &BTreeMap<RunId, Lines>) {
        let (run, state, none) = (row.id, row.state, Lines::default());
        let its = lines.get(&run).unwrap_or(&none);
        let done = its.done.iter().rev().map(|(_, name)| *name);
        let done: Vec<&str> = done.filter(|name| trees::is_undoable(name)).collect();
        let undone: Vec<&str> = its.undone.iter().map(|(_, name)| *name).collect();
        let left_out = self.kin.left_out.contains(&run);
        let mut rest = done.iter();
        let in_order = undone.iter().all(|name| rest.any(|done| done == name));
        if !in_order {
            let found = format!("inv8_rollback_order: {run} did {done:?}, undid {undone:?}");
            self.complain(&found);
        }
        let all = undone.len() == done.len() || left_out;
        let sound = match state {
            RunState::Completed => undone.is_empty(),
            RunState::Failed => done.is_empty(),
            RunState::RolledBack | RunState::Cancelled => all,
            RunState::RollbackFailed => left_out || done.starts_with(&undone),
            _ => true,
        };
        if !sound {
            let state = state.as_str();
            let found =
                format!("inv9_rollback_complete: {run} is {state}, did {done:?}, undid {undone:?}");
            self.complain(&found);
        }
        let below = rows.runs();
        let below = below.filter(|child| child.parent.is_some_and(|parent| parent.run == run));
        for child in below {
            let rolled_back = [RunState::RolledBack, RunState::Cancelled].contains(&state);
            let open = child.state == RunState::Completed
                || (child.state == RunState::RollbackFailed && child.undo == UndoMark::Possible);
            if rolled_back && open && !left_out {
                let found = format!(
                    "inv9_rollback_complete: {run} is {}, {} below it is {}",
                    state.as_str(),
                    child.id,
                    child.state.as_str()
                );
                self.complain(&found);
            }
            let theirs = lines.get(&child.id).unwrap_or(&none);
            if !left_out && !self.kin.alone.contains(&child.id) {
                self.judge_order(run, its, theirs);
            }
        }
        self.judge_reason(row);
    }

    /// What a child did is undone before what its parent had done before it.
    fn judge_order(&mut self, run: RunId, its: &Lines, theirs: &Lines) {
        let Some((first, _)) = theirs.done.first() else {
            return;
        };
        let Some((last, _)) = theirs.undone.last() else {
            return;
        };
        for (at, name) in &its.undone {
            let mut done = its.done.iter();
            let before = done.any(|(done, of)| of == name && done < first);
            if before && at < last {
                let found = format!(
                    "inv8_rollback_order: {run} undid {name} before what it had set off after it"
                );
                self.complain(&found);
            }
        }
    }

    /// What a run failed with is what somebody said, never the machine's trouble.
    fn judge_reason(&mut self, row: &RunRow) {
        let Some(Outcome::Failure(failure)) = &row.outcome else {
            return;
        };
        let reasons = [
            "cancelled",
            "undone",
            "child_failed",
            "rollback_failed",
            "panic",
        ];
        let said = reasons.contains(&failure.code.as_str())
            || failure.message == crate::site::NO
            || failure.code == "deleted";
        let given_up = self.kin.given_up.contains(&row.id);
        if !said && row.state.has_ended() && !given_up {
            let (run, why) = (row.id, format!("{} {}", failure.code, failure.message));
            self.complain(&format!("sc_30: {run} failed, and nobody said {why}"));
        }
    }
}

/// What a run wrote, in order.
#[derive(Debug, Default)]
struct Lines {
    done: Vec<(u64, &'static str)>,
    undone: Vec<(u64, &'static str)>,
}

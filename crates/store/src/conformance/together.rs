//! Short ways to say what is set off together.

use std::time::Duration;

use roundel_core::{
    Caused, Complete, Context, Deadlines, Delivery, Failure, Join, Joined, Name, Op, Outcome,
    PublicationId, Publish, Published, Reply, Round, RunId, RunState, Source, Start, Subscribe,
    Target, Then, Undo, UndoMark,
};

use super::desk::Desk;
use super::words::{A, NS, child_of, ending, suspending, value, value_of, working};
use crate::{Answer, Page, Query, RunView};

/// The call that sets off, in all of these.
pub(super) const CALL: u32 = 4;
/// The call that rolls that back.
pub(super) const BACK: u32 = 5;
pub(super) const PLACED: Name = Name::constant("placed");

pub(super) fn subscribing(workflow: &'static str, on: bool) -> Op {
    Op::Subscribe(Subscribe {
        namespace: NS,
        topic: PLACED,
        workflow: Name::constant(workflow),
        on,
    })
}

pub(super) fn publishing(desk: &mut Desk) -> Publish {
    Publish {
        namespace: NS,
        id: PublicationId(desk.new_id().0),
        topic: PLACED,
        payload: value(3),
        window: None,
        deadlines: Deadlines::default(),
        context: Context::default(),
    }
}

pub(super) fn published(desk: &Desk, publish: Publish) -> Published {
    match desk.must(Op::Publish(publish)) {
        Reply::Published(published) => published,
        other => panic!("{other:?}"),
    }
}

/// What the run sets off in this call; it waits for that.
pub(super) fn setting_off(desk: &Desk, parent: RunId, caused: Caused) -> Round {
    let mut round = suspending(working(desk.round(parent)));
    round.caused.push(caused);
    round
}

/// So many children of a run that waits for all of them.
pub(super) fn children(desk: &mut Desk, parent: RunId, count: u32) -> Vec<RunId> {
    let row = desk.run(parent);
    let starts: Vec<Start> = (0..count)
        .map(|_| child_of(&row, CALL, desk.starting()))
        .collect();
    let ids = starts.iter().map(|start| start.run).collect();
    let committed = desk.commit(setting_off(desk, parent, Caused::Children(CALL, starts)));
    assert_eq!(committed.kept, count == 0);
    ids
}

/// The runs of a call, in order, read in pages.
pub(super) fn scope(desk: &Desk, run: RunId, from: u32) -> Page<RunView> {
    let query = Query::Scope {
        run,
        execution: 1,
        call: CALL,
        from,
    };
    match desk.read(query) {
        Ok(Answer::Runs(page)) => page,
        other => panic!("{other:?}"),
    }
}

/// Those that a run heard of, with their workflows.
pub(super) fn heard(desk: &Desk, run: RunId) -> Vec<(String, RunId)> {
    let runs = scope(desk, run, 0).items.into_iter();
    runs.map(|view| (view.lane.workflow.as_str().to_owned(), view.row.id))
        .collect()
}

/// A publication of a run that waits for whoever hears it.
pub(super) fn publish_and_wait(
    desk: &mut Desk,
    parent: RunId,
    window: Option<Duration>,
) -> PublicationId {
    let publish = Publish {
        window,
        ..publishing(desk)
    };
    let id = publish.id;
    let mut round = setting_off(desk, parent, Caused::Publish(CALL, Box::new(publish)));
    round.timer_at = window.map(|window| desk.now().after(window));
    desk.commit(round);
    id
}

pub(super) fn failing(desk: &Desk, run: RunId) {
    let mut round = ending(desk.round(run), RunState::Failed);
    let failure = Failure::business("no");
    round.then = Then::End(RunState::Failed, Outcome::Failure(Box::new(failure)));
    desk.commit(round);
}

/// The one message that tells the run that all it set off has ended, and how many failed.
pub(super) fn told(desk: &Desk, parent: RunId) -> u32 {
    taken(desk, parent).0
}

/// The same, with the number under which it is consumed.
pub(super) fn taken(desk: &Desk, parent: RunId) -> (u32, u64) {
    let claimed = desk.claim(A, 9);
    let inbox: Vec<&Delivery> = claimed.iter().flat_map(|run| &run.inbox).collect();
    assert_eq!((claimed.len(), inbox.len()), (1, 1), "{claimed:?}");
    assert_eq!((claimed[0].run, inbox[0].call), (parent, CALL));
    match inbox[0].source {
        Source::Mail(number) => (value_of(&inbox[0].body), number),
        ref other => panic!("{other:?}"),
    }
}

pub(super) fn nothing_told(desk: &Desk, parent: RunId) {
    let row = desk.run(parent);
    assert_eq!(
        (row.state, row.mail, row.matched),
        (RunState::Waiting, 0, 0)
    );
}

pub(super) fn joining(desk: &Desk, publication: PublicationId, workflow: &'static str) -> Joined {
    let workflow = Name::constant(workflow);
    let namespace = NS;
    match desk.must(Op::Join(Join {
        namespace,
        publication,
        workflow,
    })) {
        Reply::Joined(joined) => joined,
        other => panic!("{other:?}"),
    }
}

pub(super) fn completing(run: RunId) -> Op {
    Op::Complete(Complete {
        namespace: NS,
        target: Target::Run(run),
        value: value(9),
    })
}

pub(super) fn undoing(run: RunId) -> Op {
    let (namespace, target) = (NS, Target::Run(run));
    Op::Undo(Undo { namespace, target })
}

/// A run of which something can be undone.
pub(super) fn undoable(desk: &Desk, run: RunId) {
    let mut round = ending(working(desk.round(run)), RunState::Completed);
    round.undo = Some(UndoMark::Possible);
    desk.commit(round);
}

/// The run's rollback comes to its end.
pub(super) fn undone(desk: &Desk, run: RunId, state: RunState) {
    let mut round = ending(desk.round(run), state);
    let failure = Failure::business("undone");
    round.then = Then::End(state, Outcome::Failure(Box::new(failure)));
    desk.commit(round);
}

/// A round of a run that waited until its time came.
pub(super) fn due(desk: &Desk, run: RunId) -> Round {
    assert_eq!(desk.claimed_ids(A, 9), [run]);
    desk.round(run)
}

//! Scripted trees: what is asked is fixed, and so is how it must end; what breaks is every point at
//! which something can. Their functions follow a list of words.

use std::collections::VecDeque;
use std::pin::pin;
use std::time::Duration;

use roundel::future::select;
use roundel::{Cx, Failure, Workflow};
use roundel_core::{Deadline, Deadlines, Op, RunState, Start, Target, Undo};
use serde::{Deserialize, Serialize};

use crate::flows::Tally;
use crate::site;
use crate::trees::Way;
use crate::world::{NAMESPACE, World};

/// Scripts are scenarios with these numbers.
const FIRST: u64 = 1_000_000;

const SCENE: Workflow<Vec<Word>, Tally> = Workflow::named("scene");

/// One thing that a run does. Each kind of line has four names, so few of each fit into a run.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum Word {
    Line,
    Named,
    Finally,
    Publish,
    Children(Vec<Vec<Word>>),
    /// They are not waited for, unless they are quicker than a call.
    LetGo(Vec<Vec<Word>>),
    /// For longer than any deadline here.
    Sleep,
    Fail,
    /// The rest in another execution; is what was done settled?
    Anew(bool, Vec<Word>),
}

pub(crate) async fn scene(cx: Cx, words: Vec<Word>) -> Result<Tally, Failure> {
    let mut way = Way::along(cx.clone());
    for (at, word) in words.into_iter().enumerate() {
        match word {
            Word::Line => way.line(crate::trees::DONE[at]).await?,
            Word::Named => way.line(crate::trees::NAMED[at]).await?,
            Word::Finally => way.finally(crate::trees::FINALLY[at]).await?,
            Word::Publish => way.publish().await?,
            Word::Children(all) => drop(cx.children(SCENE, &all).await?),
            Word::LetGo(all) => {
                let beside = way.call(crate::trees::CALLS[at]);
                drop(select(cx.children(SCENE, &all), pin!(beside)).await);
            }
            Word::Sleep => cx.sleep(DUE * 4).await,
            Word::Fail => return Err(Failure::business(site::NO)),
            Word::Anew(settled, rest) => return way.anew_with(settled, &rest).await,
        }
    }
    Ok(way.tally())
}

const DUE: Duration = Duration::from_millis(200);

/// What is asked, and how it must end.
pub(crate) struct Script {
    words: Vec<Word>,
    /// With a deadline.
    due: bool,
    /// It is undone once it has completed.
    undo: bool,
    /// So many undos fail.
    pub(crate) undos_fail: u32,
    ends: &'static [RunState],
}

/// All of them.
fn scripts() -> Vec<Script> {
    use Word::{Anew, Children, Fail, Finally, LetGo, Line, Named, Publish, Sleep};
    let script = |words, ends| Script {
        words,
        due: false,
        undo: false,
        undos_fail: 0,
        ends,
    };
    let rolled_back = &[RunState::RolledBack];
    let pair = || Children(vec![vec![Line, Named], vec![Line]]);
    vec![
        // SC-21, SC-23: the second step fails, and what the first set off had completed.
        script(vec![Line, pair(), Fail], rolled_back),
        // SC-22, SC-51: one of several fails; what is done in any case is done in the rollback.
        script(
            vec![Finally, Named, Children(vec![vec![Line], vec![Fail]])],
            rolled_back,
        ),
        // SC-29: a tree that has completed is undone on request.
        Script {
            undo: true,
            ..script(
                vec![Line, pair(), Publish, Finally],
                &[RunState::RolledBack, RunState::Failed],
            )
        },
        // SC-43: a child has the deadline of its parent, and misses it; perhaps before either has
        // done anything.
        Script {
            due: true,
            ..script(
                vec![Line, Children(vec![vec![Named, Sleep]])],
                &[RunState::RolledBack, RunState::Failed],
            )
        },
        // SC-24: an undo fails, and an operator lets it go on, without it or not at all.
        Script {
            undos_fail: 1,
            ..script(
                vec![Line, pair(), Fail],
                &[RunState::RolledBack, RunState::RollbackFailed],
            )
        },
        // SC-51: nobody reads how what was let go has ended.
        script(vec![Finally, LetGo(vec![vec![]])], &[RunState::Completed]),
        // SC-36: what was settled stays, what came after it is undone.
        script(vec![Line, Anew(true, vec![Named, Fail])], rolled_back),
        // SC-36: both executions are undone.
        script(
            vec![Line, Finally, Anew(false, vec![Named, Fail])],
            rolled_back,
        ),
    ]
}

/// The numbers of the scripts.
#[must_use]
pub fn scripted() -> Vec<u64> {
    (FIRST..).take(scripts().len()).collect()
}

/// The script of a scenario, if it is one.
pub(crate) fn script_of(scenario: u64) -> Option<Script> {
    let at = usize::try_from(scenario.checked_sub(FIRST)?).ok()?;
    scripts().into_iter().nth(at)
}

impl World<'_> {
    /// What a script asks for, one after the other.
    pub(crate) fn follow(&mut self, script: &Script) {
        let run = roundel_core::RunId(self.random.id());
        let flow = self.flows.iter().find(|flow| flow.name.as_str() == "scene");
        let flow = flow.expect("it is one of them");
        let at = self.now.after(DUE);
        let due = script.due.then_some(Deadline { at, set_by: run });
        let mut asks = VecDeque::from([Op::Start(Start {
            version: Some(flow.version),
            deadlines: Deadlines {
                forward: due,
                rollback: None,
            },
            ..Start::new(
                NAMESPACE,
                run,
                flow.name.clone(),
                World::payload(&script.words),
            )
        })]);
        if script.undo {
            let (namespace, target) = (NAMESPACE, Target::Run(run));
            asks.push_back(Op::Undo(Undo { namespace, target }));
        }
        self.clients.truncate(1);
        self.clients[0].follow(asks);
        self.ends_as = Some((run, script.ends));
    }

    /// All is at rest: has it ended as it must?
    pub(crate) fn judge_script(&mut self) {
        let Some((run, ends)) = self.ends_as else {
            return;
        };
        let state = self.model.rows().run(run).map(|row| row.state);
        if !state.is_some_and(|state| ends.contains(&state)) {
            let state = state.map_or("gone", RunState::as_str);
            self.book.complain(&format!("a script ended as {state}"));
        }
    }
}

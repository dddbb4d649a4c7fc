//! A run, and all that is known of it.

use std::collections::BTreeMap;

use roundel::{Client, Entry, Error, Name, Payload, RunId, RunState, RunView, Timestamp};
use roundel_core::Outcome;

use super::bar::Timeline;
use super::timeline;
use super::waterfall;
use super::why::Reason;
use crate::shape::output;

output! {
    /// A run.
    pub struct Run {
        /// Its id.
        run: RunId,
        /// What runs.
        workflow: Name,
        /// Which version.
        version: u32,
        /// Where it stands.
        state: RunState,
        /// The user's own id for it.
        key: Option<Name>,
        /// How often it continued as new, and once more.
        execution: u32,
        /// Entries in its journal.
        entries: u64,
        /// For search.
        labels: BTreeMap<String, String>,
        /// The run that set it off.
        parent: Option<RunId>,
        /// When it was started.
        created_at: Timestamp,
        /// When it last changed.
        changed_at: Timestamp,
        /// What it came to, or why it is parked.
        outcome: Option<Outcome>,
    }
}

output! {
    /// An entry of a journal.
    pub struct Moment {
        /// Its number.
        number: u64,
        /// When it was committed.
        at: Timestamp,
        /// For people: what happened.
        text: String,
        /// For people: the value that came with it.
        value: Option<String>,
        /// What that means: plain, dim, good, bad, look, busy.
        style: &'static str,
        /// The entry itself.
        entry: Entry,
    }
}

output! {
    /// A run that another set off.
    pub struct Child {
        /// Its id.
        run: RunId,
        /// What runs.
        workflow: Name,
        /// Where it stands.
        state: RunState,
    }
}

output! {
    /// A message that waits for a run.
    pub struct Mail {
        /// Its number.
        number: u64,
        /// The signal; none if it is the engine's own.
        signal: Option<Name>,
        /// When it came.
        at: Timestamp,
        /// What it says.
        body: Outcome,
    }
}

output! {
    /// All that is known of a run.
    pub struct RunPage {
        /// Its id.
        run: RunId,
        /// What runs.
        workflow: Name,
        /// Which version.
        version: u32,
        /// Where it stands.
        state: RunState,
        /// The user's own id for it.
        key: Option<Name>,
        /// How often it continued as new, and once more.
        execution: u32,
        /// Entries in its journal.
        entries: u64,
        /// For search.
        labels: BTreeMap<String, String>,
        /// The run that set it off.
        parent: Option<RunId>,
        /// When it was started.
        created_at: Timestamp,
        /// When it last changed.
        changed_at: Timestamp,
        /// What it came to, or why it is parked.
        outcome: Option<Outcome>,
        /// What happened, in order.
        journal: Vec<Moment>,
        /// The same as bars over time.
        timeline: Timeline,
        /// The execution that the journal is of.
        journal_of_execution: u32,
        /// What keeps it from going on.
        why: Vec<String>,
        /// When it may be taken up.
        ready_at: Option<Timestamp>,
        /// Until when somebody has it.
        lease_until: Option<Timestamp>,
        /// The version of its own state.
        state_version: Option<u64>,
        /// Its own state.
        state_value: Option<Payload>,
        /// The runs that it set off, the first of them.
        children: Vec<Child>,
        /// Messages that wait for it, the first of them.
        mailbox: Vec<Mail>,
    }
}

/// The labels of a run, by name.
#[must_use]
pub fn labels(run: &RunView) -> BTreeMap<String, String> {
    let labels = run.labels.iter();
    labels
        .map(|(name, value)| (name.to_string(), value.clone()))
        .collect()
}

impl From<&RunView> for Run {
    fn from(run: &RunView) -> Run {
        let row = &run.row;
        Run {
            run: row.id,
            workflow: run.lane.workflow.clone(),
            version: run.lane.version,
            state: row.state,
            key: row.key.clone(),
            execution: row.execution,
            entries: row.head,
            labels: labels(run),
            parent: row.parent.map(|parent| parent.run),
            created_at: row.created_at,
            changed_at: row.changed_at,
            outcome: row.outcome.clone(),
        }
    }
}

impl From<&RunView> for Child {
    fn from(run: &RunView) -> Child {
        Child {
            run: run.row.id,
            workflow: run.lane.workflow.clone(),
            state: run.row.state,
        }
    }
}

impl Moment {
    /// This entry, among what was called.
    #[must_use]
    pub fn of(moment: &timeline::Moment, calls: &timeline::Calls) -> Moment {
        let said = timeline::say(moment, calls);
        Moment {
            number: moment.number,
            at: moment.at,
            text: said.text,
            value: said.value,
            style: said.style.as_str(),
            entry: moment.entry.clone(),
        }
    }
}

/// What is known of a run, as it was read.
#[derive(Debug)]
pub struct Seen {
    /// The run.
    pub run: RunView,
    /// The execution that is looked at.
    pub execution: u32,
    /// Its journal.
    pub moments: Vec<timeline::Moment>,
    /// Those directly below it.
    pub children: roundel::Page<RunView>,
    /// Messages that wait for it.
    pub mail: Vec<(roundel_core::MailId, roundel_core::MailRow)>,
    /// Its own state.
    pub state: Option<roundel_store::StateView>,
    /// What keeps it from going on.
    pub reasons: Vec<Reason>,
    /// The time at which it was looked at.
    pub now: Timestamp,
}

/// Looks at this execution of a run: its last if none is said. So many children and messages.
///
/// # Errors
/// When it had no such execution, or cannot be read.
pub async fn look(
    client: &Client,
    run: RunView,
    execution: Option<u32>,
    most: usize,
) -> Result<Seen, Error> {
    let (id, last) = (run.row.id, run.row.execution);
    let execution = execution.unwrap_or(last);
    if !(1..=last).contains(&execution) {
        return Err(Error::NoSuchRun(format!("{id}, execution {execution},")));
    }
    let moments = timeline::moments(&client.rounds(id, execution).await?)?;
    let (workers, now) = (client.workers().await?, client.now());
    Ok(Seen {
        children: client.children(id, None, most).await?,
        mail: client.mail(id, 0, most).await?,
        state: client.own_state(id).await?,
        reasons: super::reasons(client, &run, &workers, now).await?,
        run,
        execution,
        moments,
        now,
    })
}

impl From<&Seen> for RunPage {
    fn from(seen: &Seen) -> RunPage {
        let (row, run) = (&seen.run.row, Run::from(&seen.run));
        let calls = timeline::calls(&seen.moments);
        let moment = |moment: &timeline::Moment| Moment::of(moment, &calls);
        let mail = |(id, mail): &(roundel_core::MailId, roundel_core::MailRow)| Mail {
            number: id.number,
            signal: id.name.clone(),
            at: mail.at,
            body: mail.body.clone(),
        };
        RunPage {
            run: run.run,
            workflow: run.workflow,
            version: run.version,
            state: run.state,
            key: run.key,
            execution: run.execution,
            entries: run.entries,
            labels: run.labels,
            parent: run.parent,
            created_at: run.created_at,
            changed_at: run.changed_at,
            outcome: run.outcome,
            journal: seen.moments.iter().map(moment).collect(),
            timeline: waterfall::bars(&seen.moments, seen.now),
            journal_of_execution: seen.execution,
            why: seen
                .reasons
                .iter()
                .map(|reason| reason.text.clone())
                .collect(),
            ready_at: row.ready_at,
            lease_until: row.lease_until,
            state_version: seen.state.as_ref().map(|state| state.version),
            state_value: seen.state.as_ref().map(|state| state.value.clone()),
            children: seen.children.items.iter().map(Child::from).collect(),
            mailbox: seen.mail.iter().map(mail).collect(),
        }
    }
}

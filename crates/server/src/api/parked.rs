//! What waits for an operator, and what is done about it: to one, or to all that are alike, after
//! saying how many that are.

use roundel::{
    Client, Entry, Error, Parked as Queue, Payload, Remedied, Remedy, Trouble, TroubleId,
};
use roundel_core::Outcome;

use super::{Operate, See, label, limit, to};
use crate::cursor;
use crate::problem::{Code, Problem};
use crate::route::{Ask, Json};
use crate::shape::{Looked, Nothing, input, output};
use crate::view::{Group, Parked};

/// At most so many are acted upon in one request.
const MANY: usize = 1000;
/// Looks that are taken to find those that are alike: at the newest thousand of each kind.
const GROUPED: usize = 1;
/// Refusals that are told one by one.
const TOLD: usize = 20;

input! {
    /// Which of them.
    pub(crate) struct ParkedAsked {
        /// Only of this workflow, or of this command's queue.
        workflow: Option<String>,
        /// Only with this label, as `name=value`.
        label: Option<String>,
        /// Only those whose failure has this code.
        code: Option<String>,
        /// Only those of this group: its fingerprint.
        group: Option<String>,
        /// So many at most; 50 unless said.
        limit: Option<usize>,
        /// Where the page before ended: its `next`.
        cursor: Option<String>,
    }
}

/// Workflow, label, code and group.
type Narrowed<'a> = [Option<&'a String>; 4];

fn narrowed(mut queue: Queue, [workflow, by, code, group]: Narrowed<'_>) -> Result<Queue, Problem> {
    if let Some(workflow) = workflow {
        queue = queue.of(workflow.clone())?;
    }
    if let Some(text) = by {
        let (name, value) = label(text)?;
        queue = queue.with_label(name, value)?;
    }
    if let Some(code) = code {
        queue = queue.with_code(code.clone());
    }
    if let Some(group) = group {
        queue = queue.in_group(group.clone());
    }
    Ok(queue)
}

impl ParkedAsked {
    fn narrowed(&self) -> Narrowed<'_> {
        let (workflow, label) = (self.workflow.as_ref(), self.label.as_ref());
        [workflow, label, self.code.as_ref(), self.group.as_ref()]
    }
}

pub(crate) async fn list(cap: See, ask: Ask<ParkedAsked>) -> Result<Json<Looked<Parked>>, Problem> {
    let asked = &ask.query;
    let mut queue = narrowed(cap.client().parked(), asked.narrowed())?;
    queue = queue
        .limit(limit(&cap, asked.limit)?)
        .within(cap.server.limits.look);
    if let Some(word) = &asked.cursor {
        queue = queue.after(cursor::read::<TroubleId>("parked", word)?);
    }
    let found = queue.look().await?;
    let next = found.next.map(|at| cursor::write("parked", &at));
    let items = found.items.iter().map(Parked::from).collect();
    Ok(Json(Looked::of(
        items,
        next,
        found.next.map(TroubleId::run),
    )))
}

input! {
    /// Which of them.
    pub(crate) struct GroupsAsked {
        /// Only of this workflow, or of this command's queue.
        workflow: Option<String>,
        /// Only with this label, as `name=value`.
        label: Option<String>,
        /// Only those whose failure has this code.
        code: Option<String>,
    }
}

pub(crate) async fn groups(
    cap: See,
    ask: Ask<GroupsAsked>,
) -> Result<Json<Looked<Group>>, Problem> {
    let asked = &ask.query;
    let by = [
        asked.workflow.as_ref(),
        asked.label.as_ref(),
        asked.code.as_ref(),
        None,
    ];
    let queue = narrowed(cap.client().parked(), by)?.within(cap.server.limits.look);
    let found = queue.groups_within(GROUPED).await?;
    let items = found.items.iter().map(Group::from).collect();
    Ok(Json(Looked::of(
        items,
        None,
        found.next.map(TroubleId::run),
    )))
}

/// What is named: a run, by its id or key, or a signal, as `RUN/NUMBER`.
async fn trouble(client: &Client, text: &str) -> Result<TroubleId, Problem> {
    match text.parse() {
        Ok(id) => Ok(id),
        Err(_) => Ok(TroubleId::Run(client.run(to(text)).await?.row.id)),
    }
}

pub(crate) async fn show(cap: See, ask: Ask) -> Result<Json<Parked>, Problem> {
    let client = cap.client();
    let missing = || Problem::missing("nothing is parked under this id");
    match trouble(client, ask.name()).await? {
        id @ TroubleId::Signal(run, number) => {
            let above = TroubleId::Signal(run, number.saturating_add(1));
            let above = client.parked().only_signals().after(above).limit(1);
            let found = above
                .fetch()
                .await?
                .items
                .pop()
                .filter(|found| found.id() == id);
            let found = found.ok_or_else(missing)?;
            let mut shown = Parked::from(&found);
            if let Trouble::Signal(signal) = &found {
                shown.input = match &signal.row.body {
                    Outcome::Value(value) => Some(value.clone()),
                    Outcome::Failure(_) => None,
                };
            }
            Ok(Json(shown))
        }
        TroubleId::Run(run) => {
            let run = client.run(run).await?;
            if !run.row.awaits_operator() {
                return Err(missing());
            }
            let journal = client.journal(run.row.id).await?;
            let mut shown = Parked::from(&Trouble::Run(Box::new(run)));
            if let Some(Entry::Started { input, .. }) = journal.into_iter().next() {
                shown.input = Some(input);
            }
            Ok(Json(shown))
        }
    }
}

input! {
    /// What to do about one.
    pub(crate) struct RemedyAsked {
        /// Of `retry`: begin anew with this.
        input: Option<Payload>,
        /// Of `complete`: what it comes to.
        value: Option<Payload>,
        /// Of `replay`: the run that gets the signal.
        to: Option<String>,
        /// The `epoch` of what was looked at: if it has gone on since, nothing is done.
        seen: Option<u64>,
        /// Why, for the audit.
        reason: Option<String>,
    }
}

output! {
    /// What came of it.
    pub(crate) struct RemedyAnswer {
        /// On how many it was done.
        done: usize,
        /// How many refused.
        refused: usize,
        /// Why, of the first of them.
        because: Vec<String>,
        /// How many there are, if that is all that was asked.
        found: Option<usize>,
        /// There are more that were not looked at.
        more: bool,
    }
}

fn remedy(
    word: &str,
    input: Option<Payload>,
    value: Option<Payload>,
    to_run: Option<&str>,
) -> Result<Remedy, Problem> {
    let remedy = match (word, input, value, to_run) {
        ("retry", None, None, None) => Remedy::Retry,
        ("retry", Some(input), None, None) => Remedy::RetryWith(input),
        ("cancel", None, None, None) => Remedy::Cancel,
        ("cancel_without_undo", None, None, None) => Remedy::CancelWithoutUndo,
        ("complete", None, value, None) => Remedy::Complete(value.unwrap_or_else(Payload::null)),
        ("undo", None, None, None) => Remedy::Undo,
        ("skip", None, None, None) => Remedy::Skip,
        ("accept", None, None, None) => Remedy::Accept,
        ("replay", None, None, Some(run)) => Remedy::Replay(to(run)),
        ("offer", None, None, None) => Remedy::Offer,
        ("discard", None, None, None) => Remedy::Discard,
        _ => {
            return Err(Problem::bad(
                "the remedies are retry (with an input or without), cancel, cancel_without_undo, \
                 complete (with a value), undo, skip, accept; of signals replay (to a run), offer, \
                 discard",
            ));
        }
    };
    Ok(remedy)
}

pub(crate) async fn act(
    cap: Operate,
    ask: Ask<Nothing, RemedyAsked>,
) -> Result<Json<RemedyAnswer>, Problem> {
    let [id, word] = ask.named.as_slice() else {
        return Err(Problem::missing("say what to do about what"));
    };
    let asked = ask.body;
    let remedy = remedy(word, asked.input, asked.value, asked.to.as_deref())?;
    let client = cap.because(asked.reason.as_deref());
    let id = trouble(&client, id).await?;
    let client = asked
        .seen
        .map_or(client.clone(), |seen| client.as_seen_at(seen));
    client.remedy(id, &remedy).await?;
    Ok(Json(RemedyAnswer {
        done: 1,
        refused: 0,
        because: Vec::new(),
        found: None,
        more: false,
    }))
}

input! {
    /// What to do about many.
    pub(crate) struct ManyAsked {
        /// What.
        remedy: String,
        /// Only of this workflow, or of this command's queue.
        workflow: Option<String>,
        /// Only with this label, as `name=value`.
        label: Option<String>,
        /// Only those whose failure has this code.
        code: Option<String>,
        /// Only those of this group: its fingerprint.
        group: Option<String>,
        /// Only say how many there are.
        dry_run: Option<bool>,
        /// How many there are, as a dry run said: if there are others now, nothing is done.
        expect: Option<usize>,
        /// Of `retry`: begin anew with this.
        input: Option<Payload>,
        /// Of `complete`: what they come to.
        value: Option<Payload>,
        /// Of `replay`: the run that gets the signals.
        to: Option<String>,
        /// Why, for the audit.
        reason: Option<String>,
    }
}

pub(crate) async fn many(
    cap: Operate,
    ask: Ask<Nothing, ManyAsked>,
) -> Result<Json<RemedyAnswer>, Problem> {
    let asked = ask.body;
    let remedy = remedy(&asked.remedy, asked.input, asked.value, asked.to.as_deref())?;
    let client = cap.because(asked.reason.as_deref());
    let by = [
        asked.workflow.as_ref(),
        asked.label.as_ref(),
        asked.code.as_ref(),
        asked.group.as_ref(),
    ];
    let queue = narrowed(client.parked(), by)?.at_most(MANY);
    let queue = match remedy.is_for_signals() {
        true => queue.only_signals(),
        false => queue.only_runs(),
    };
    let found = queue.count().await?;
    if asked.dry_run.unwrap_or(false) {
        return Ok(Json(answer(Remedied::default(), Some(found))));
    }
    match asked.expect {
        Some(expected) if expected == found => {}
        Some(expected) => {
            let text = format!("there are {found} of them now, not {expected}; look again");
            return Err(Problem::new(Code::Conflict, text));
        }
        None => {
            let text = "say how many of them there are (`expect`), as a dry run tells";
            return Err(Problem::bad(text));
        }
    }
    let done = queue.act(&remedy, |_| {}).await?;
    Ok(Json(answer(done, None)))
}

fn answer(done: Remedied, found: Option<usize>) -> RemedyAnswer {
    let refused = done.refused.len();
    let why = |error: Error| Problem::from(error).detail;
    let because = done
        .refused
        .into_iter()
        .take(TOLD)
        .map(|(_, error)| why(error));
    RemedyAnswer {
        done: done.done,
        refused,
        because: because.collect(),
        found,
        more: done.more,
    }
}

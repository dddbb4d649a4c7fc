//! What the rows say: who works, who should, and what waits for somebody.

use std::time::Duration;

use roundel::{Client, Error, RunState, Stats, Timestamp};
use roundel_core::{Lane, WorkerRow};

use super::Findings;
use crate::many::counted;
use crate::show::time;

/// A worker at rest says so every hour.
const HEARD: Duration = Duration::from_secs(65 * 60);
/// A clock that is ahead by more is wrong.
const AHEAD: Duration = Duration::from_secs(2);
/// A queue that was paused for longer may have been forgotten.
const LONG_PAUSE: Duration = Duration::from_secs(3600);
/// A lease that ended longer ago would have been taken over.
const LONG_OVER: Duration = Duration::from_secs(60);
/// Runs that are looked at one by one.
const LOOKS: usize = 1000;

pub(super) async fn look(client: &Client, findings: &mut Findings) -> Result<(), Error> {
    let now = client.now();
    let (workers, lanes) = (client.workers().await?, client.lanes().await?);
    let stats = client.stats().await?;
    registered(&workers, now, findings);
    versions(client, (&workers, &lanes), &stats, findings);
    leases(client, now, findings).await?;
    let parked = client.parked().count().await?;
    match parked {
        0 => findings.fine("parked", "nothing waits for an operator"),
        many => findings.wrong(
            "parked",
            format!("{} wait for an operator", counted(many, "thing")),
            "`roundel parked groups` shows what went wrong, `roundel parked retry` tries again",
        ),
    }
    queues(client, now, findings).await?;
    projections(client, findings).await
}

fn registered(workers: &[WorkerRow], now: Timestamp, findings: &mut Findings) {
    let ahead = workers
        .iter()
        .filter(|worker| worker.seen_at > now.after(AHEAD));
    for worker in ahead {
        findings.unwise(
            "clock",
            format!(
                "worker `{}` was last seen {} from now: a clock is ahead, or was",
                worker.name,
                time::span(worker.seen_at.since(now))
            ),
            "let the clock of the machine follow a time server",
        );
    }
    let silent: Vec<&WorkerRow> = workers
        .iter()
        .filter(|worker| worker.seen_at.after(HEARD) < now)
        .collect();
    if let Some(worker) = silent.first() {
        let more = match silent.len() {
            1 => String::new(),
            many => format!(", and {} more", many - 1),
        };
        findings.unwise(
            "workers",
            format!(
                "`{}` has not been heard of for {}{more}: it crashed, or hangs",
                worker.name,
                time::span(now.since(worker.seen_at))
            ),
            "nothing to be done if it crashed: it is forgotten after a day",
        );
    }
    match workers.len() - silent.len() {
        0 => findings.unwise(
            "workers",
            "nobody works on this database",
            "start a program that has the workflows",
        ),
        many => findings.fine("workers", format!("{} listed", counted(many, "worker"))),
    }
}

/// Runs that would go on, if somebody had their version.
fn versions(
    client: &Client,
    (workers, lanes): (&[WorkerRow], &[Lane]),
    stats: &Stats,
    findings: &mut Findings,
) {
    let mut missing = false;
    for (workflow, version, state, count) in &stats.runs {
        let wants = matches!(state, RunState::Ready | RunState::RollingBack);
        // What the engine itself does is done by every worker.
        if !wants || workflow.as_str().starts_with("roundel.") {
            continue;
        }
        let lane = lanes.iter().position(|lane| {
            let same = lane.workflow == *workflow && lane.version == *version;
            same && lane.namespace == *client.namespace()
        });
        let has = |worker: &WorkerRow| {
            let numbers = worker.lanes.iter().map(|lane| lane.0 as usize);
            // One that was registered before that was kept may have anything.
            worker.lanes.is_empty()
                || numbers
                    .into_iter()
                    .any(|at| Some(at) == lane.map(|at| at + 1))
        };
        if workers.iter().any(has) {
            continue;
        }
        missing = true;
        findings.wrong(
            "versions",
            format!(
                "{} of `{workflow}` version {version} {} {}, and no worker has that version",
                counted(usize::try_from(*count).unwrap_or(usize::MAX), "run"),
                if *count == 1 { "is" } else { "are" },
                state.as_str()
            ),
            "start a program that has it, or cancel them; `roundel runs list --workflow` has them",
        );
    }
    if !missing {
        findings.fine("versions", "all that is ready can be run by somebody");
    }
}

async fn leases(client: &Client, now: Timestamp, findings: &mut Findings) -> Result<(), Error> {
    let mut over = 0;
    for state in [RunState::Running, RunState::RollingBack] {
        let page = client.runs().in_state(state).limit(LOOKS).fetch().await?;
        let rows = page.items.iter().map(|run| &run.row);
        let ended = rows.filter_map(|row| row.lease_until);
        over += ended.filter(|until| until.after(LONG_OVER) < now).count();
    }
    match over {
        0 => findings.fine("leases", "none has run out unnoticed"),
        many => findings.wrong(
            "leases",
            format!(
                "{} ran out over a minute ago, and nobody took over",
                counted(many, "lease")
            ),
            "their worker is gone and no other has their workflow: start one",
        ),
    }
    Ok(())
}

async fn queues(client: &Client, now: Timestamp, findings: &mut Findings) -> Result<(), Error> {
    for queue in client.queues().await? {
        let since = queue.limits.changed_at;
        if queue.limits.paused && since.after(LONG_PAUSE) < now {
            findings.unwise(
                "queues",
                format!(
                    "`{}` has been paused for {}",
                    queue.queue,
                    time::span(now.since(since))
                ),
                "`roundel queues resume` begins what waits there",
            );
        }
    }
    Ok(())
}

async fn projections(client: &Client, findings: &mut Findings) -> Result<(), Error> {
    for status in client.projections().await? {
        let builds = [status.row.live.as_ref(), status.row.next.as_ref()];
        for build in builds.into_iter().flatten() {
            if let Some(stuck) = &build.stuck {
                findings.wrong(
                    "projections",
                    format!(
                        "`{}` cannot fold in the fact {}: {}",
                        status.name, stuck.fact, stuck.failure
                    ),
                    "mend the projection, or pass over the fact with `roundel projections skip`",
                );
            } else if !build.inline && build.facts + 1000 < status.facts {
                findings.unwise(
                    "projections",
                    format!(
                        "`{}` is at {} of {} facts",
                        status.name, build.facts, status.facts
                    ),
                    "is a process running that has it?",
                );
            }
        }
    }
    Ok(())
}

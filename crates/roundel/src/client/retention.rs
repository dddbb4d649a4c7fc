//! How long what has ended is kept: what is set for all processes, and what a program says of its
//! own. What goes by itself goes by both, the former over the latter.

use std::sync::Arc;
use std::time::Duration;

use roundel_core::{Delete, Keep, Name, Op, Patch, Patched, RETENTION, Reply, Retention, Target};
use serde::Serialize;
use serde_json::{Value, json};
use tokio::task::JoinHandle;

use super::prune::Pass;
use super::{Client, Inner};
use crate::cx::{Cx, decode, encode, new_start};
use crate::ids::new_run;
use crate::{Error, Failure, RunView};

/// Of the time, looking at what stays may take one part in so many.
const SHARE: u32 = 50;
/// Passes are at least this far apart, and at most, unless they take long.
const PAUSE: [Duration; 2] = [Duration::from_millis(100), Duration::from_secs(60)];

impl Client {
    /// How long what has ended is kept, as far as that is set in the database, for all processes.
    /// Of what is not said there, each program's own word holds
    /// ([`keep_ended`](crate::EngineBuilder::keep_ended),
    /// [`keep_handled`](crate::EngineBuilder::keep_handled)).
    ///
    /// # Errors
    /// When it cannot be read.
    pub async fn retention(&self) -> Result<Retention, Error> {
        match self.retention_run().await? {
            Some(run) => self.retention_of(&run).await,
            None => Ok(Retention::default()),
        }
    }

    async fn retention_run(&self) -> Result<Option<RunView>, Error> {
        let run = match self.run(RETENTION.as_str().to_owned()).await {
            Ok(run) => run,
            Err(Error::NoSuchRun(_)) => return Ok(None),
            Err(error) => return Err(error),
        };
        // Anybody may have taken the key, and say what they like.
        if run.lane.workflow != RETENTION {
            let (run, workflow) = (run.row.id, run.lane.workflow);
            let text = format!(
                "run {run} of `{workflow}` has the key `{RETENTION}`, which is the engine's own; \
                 remove it"
            );
            return Err(Error::Value(text));
        }
        Ok(Some(run))
    }

    async fn retention_of(&self, run: &RunView) -> Result<Retention, Error> {
        let said = self.own_state(run.row.id).await?;
        let said = said.map(|said| decode(&said.value)).transpose()?;
        Ok(said.unwrap_or_default())
    }

    /// Sets for all processes how long what has ended is kept: trees whose root is of this workflow
    /// or queue, or, if none is named, all that are not named. If nothing is said, programs have
    /// their word again. Workers take it up within a minute. Returns all that is set now.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # async fn keep(client: roundel::Client) -> Result<(), roundel::Error> {
    /// use roundel::{Keep, Name};
    /// let month = Keep::of(Duration::from_secs(30 * 86_400));
    /// client.operator("ada")?.reason("audit").keep(None, Some(month)).await?;
    /// client.keep(Some(Name::constant("payout")), Some(Keep::Ever)).await?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// When the database cannot be read or written.
    pub async fn keep(
        &self,
        workflow: Option<Name>,
        keep: Option<Keep>,
    ) -> Result<Retention, Error> {
        let patch = match &workflow {
            None => json!({ "ended": keep }),
            Some(name) => json!({ "workflows": { name.as_str(): keep } }),
        };
        // Somebody else may set it at the same time.
        loop {
            let run = self.retention_run().await?;
            let said = match &run {
                Some(run) if !run.row.state.has_ended() => {
                    self.act(self.retention_patch(&patch)?).await?
                }
                None if keep.is_none() => return Ok(Retention::default()),
                ended => {
                    let mut said = self.retention().await?;
                    said.say(workflow.clone(), keep);
                    self.say_anew(ended.as_ref(), &said).await?
                }
            };
            if let Reply::Patched(Patched::Changed(state)) = said {
                return Ok(decode(&state.value)?);
            }
        }
    }

    fn retention_patch<T: Serialize>(&self, patch: &T) -> Result<Op, Error> {
        Ok(Op::Patch(Patch {
            namespace: self.inner.namespace.clone(),
            target: Target::Key(RETENTION),
            patch: encode(patch)?,
            expected: None,
        }))
    }

    /// There is no run that says it, or somebody has ended that: another says all of it, from the
    /// same commit on.
    async fn say_anew(&self, ended: Option<&RunView>, said: &Retention) -> Result<Reply, Error> {
        let namespace = self.inner.namespace.clone();
        let delete = ended.map(|run| {
            Op::Delete(Delete {
                namespace: namespace.clone(),
                target: Target::Run(run.row.id),
                force: false,
            })
        });
        let input = encode(&())?;
        let mut start = new_start(namespace.clone(), new_run(), (RETENTION, Some(1)), input);
        start.key = Some(RETENTION);
        let ops = [Op::Start(start), self.retention_patch(said)?];
        let ops = delete.into_iter().chain(ops).map(|op| self.signed(op));
        let mut replies = self.at_once(ops.collect()).await;
        replies.pop().expect("one for each")
    }
}

/// The function of the run whose state it is: it waits, until somebody ends it.
pub(crate) async fn hold(cx: Cx, (): ()) -> Result<(), Failure> {
    cx.wait_until(|_: &Value| false).await.map(drop)
}

/// Removes from time to time what is not kept, until the engine goes.
pub(crate) fn keep_ended(inner: &Arc<Inner>, program: Retention) -> JoinHandle<()> {
    let mut keep = program.shortest();
    let (inner, rest) = (Arc::downgrade(inner), PAUSE[1].max(inner.sweep));
    tokio::spawn(async move {
        let mut pass = Pass::default();
        loop {
            tokio::time::sleep(pause_after(keep, rest, &pass)).await;
            let Some(inner) = inner.upgrade() else {
                return;
            };
            let client = Client::from(inner);
            pass = Pass::default();
            match client.remove_older(&program, &mut pass).await {
                Ok(kept) => keep = kept,
                Err(error) => {
                    tracing::warn!(%error, "what has ended long ago could not be removed now");
                }
            }
            client.inner.counters.runs_pruned.add(pass.removed as u64);
        }
    })
}

impl Client {
    /// One pass. Returns the shortest time for which anything may be kept.
    async fn remove_older(
        &self,
        program: &Retention,
        pass: &mut Pass,
    ) -> Result<Option<Duration>, Error> {
        let kept = self.retention().await?.over(program);
        self.prune_kept(&kept, pass).await?;
        // A program that says something looks as often as its own word asks for.
        Ok(kept.shortest().into_iter().chain(program.shortest()).min())
    }
}

/// Old is what is older than `keep`: a tenth more or less does not matter.
fn pause_after(keep: Option<Duration>, rest: Duration, pass: &Pass) -> Duration {
    let pause = keep.map_or(rest, |keep| (keep / 10).clamp(PAUSE[0], PAUSE[1]));
    pause.max(pass.in_vain * SHARE)
}

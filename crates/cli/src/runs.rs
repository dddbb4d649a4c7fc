//! `roundel runs`: what is there, and what happened in it.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use roundel::{Engine, RunId, RunState, RunView, To};

#[derive(Subcommand)]
pub(crate) enum Command {
    /// Runs, newest first.
    List(List),
    /// One run and its journal.
    Show(Show),
}

#[derive(Args)]
pub(crate) struct List {
    #[command(flatten)]
    database: Database,
    /// Only of this workflow.
    #[arg(long)]
    workflow: Option<String>,
    /// Only in this state, such as `waiting` or `parked`.
    #[arg(long)]
    state: Option<String>,
    /// So many at most, 1 to 1,000.
    #[arg(long, default_value_t = 50)]
    limit: usize,
    /// Those after this run: the last of the page before.
    #[arg(long)]
    after: Option<RunId>,
}

#[derive(Args)]
pub(crate) struct Show {
    #[command(flatten)]
    database: Database,
    /// The run's id, or the key it was started with.
    run: String,
}

#[derive(Args)]
struct Database {
    /// The database file.
    #[arg(long, env = "ROUNDEL_DB", default_value = "roundel.db")]
    db: PathBuf,
    /// The namespace.
    #[arg(long, default_value = "default")]
    namespace: String,
    /// JSON, one object in a line.
    #[arg(long)]
    json: bool,
}

impl Database {
    async fn open(&self) -> Result<Engine, roundel::Error> {
        Engine::open(&self.db)
            .namespace(self.namespace.clone())
            .existing()
            .start()
            .await
    }
}

pub(crate) async fn run(command: Command) -> Result<(), Box<dyn std::error::Error>> {
    match command {
        Command::List(args) => list(args).await,
        Command::Show(args) => show(args).await,
    }
}

async fn list(args: List) -> Result<(), Box<dyn std::error::Error>> {
    let engine = args.database.open().await?;
    let mut runs = engine.runs().limit(args.limit);
    if let Some(workflow) = args.workflow {
        runs = runs.of(workflow)?;
    }
    if let Some(word) = args.state {
        let words: Vec<&str> = RunState::ALL.iter().map(|state| state.as_str()).collect();
        let state = RunState::parse(&word).ok_or_else(|| {
            format!(
                "`{word}` is not a state; the states are {}",
                words.join(", ")
            )
        })?;
        runs = runs.in_state(state);
    }
    if let Some(after) = args.after {
        runs = runs.after(after);
    }
    let page = runs.fetch().await?;
    if !args.database.json {
        println!(
            "{:36}  {:24}  {:>3}  {:15}  key",
            "run", "workflow", "ver", "state"
        );
    }
    for run in &page.items {
        if args.database.json {
            println!("{}", as_json(run));
        } else {
            let (row, lane) = (&run.row, &run.lane);
            let key = row.key.as_ref().map_or("", |key| key.as_str());
            let (workflow, state) = (lane.workflow.as_str(), row.state.as_str());
            println!(
                "{}  {workflow:24}  {:>3}  {state:15}  {key}",
                row.id, lane.version
            );
        }
    }
    if let Some(last) = page
        .items
        .last()
        .filter(|_| page.more && !args.database.json)
    {
        println!("there are more: --after {}", last.row.id);
    }
    engine.shutdown().await;
    Ok(())
}

async fn show(args: Show) -> Result<(), Box<dyn std::error::Error>> {
    let engine = args.database.open().await?;
    let to = args
        .run
        .parse::<RunId>()
        .map_or(To::Key(args.run.clone()), To::Run);
    let run = engine.run(to).await?;
    let journal = engine.journal(run.row.id).await?;
    if args.database.json {
        let mut shown = as_json(&run);
        shown["journal"] = serde_json::to_value(&journal)?;
        println!("{shown}");
    } else {
        println!("run       {}", run.row.id);
        println!(
            "workflow  {} version {}",
            run.lane.workflow, run.lane.version
        );
        println!("state     {}", run.row.state.as_str());
        for (name, value) in &run.labels {
            println!("label     {name} = {value}");
        }
        println!("journal   {} entries", journal.len());
        for (number, entry) in journal.iter().enumerate() {
            println!("{:>9}  {}", number + 1, serde_json::to_string(entry)?);
        }
    }
    engine.shutdown().await;
    Ok(())
}

fn as_json(run: &RunView) -> serde_json::Value {
    let labels: serde_json::Map<String, serde_json::Value> = run
        .labels
        .iter()
        .map(|(name, value)| (name.to_string(), value.clone().into()))
        .collect();
    serde_json::json!({
        "run": run.row.id,
        "workflow": run.lane.workflow,
        "version": run.lane.version,
        "state": run.row.state,
        "key": run.row.key,
        "execution": run.row.execution,
        "entries": run.row.head,
        "labels": labels,
        "created_at": run.row.created_at,
        "changed_at": run.row.changed_at,
        "outcome": run.row.outcome,
    })
}

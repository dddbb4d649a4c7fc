//! `move`: everything to another database, where the runs go on.

use std::path::{Path, PathBuf};

use clap::Args;
use roundel_store::{Moved, Moving, Phase, Place, move_database};
use serde_json::{Value, json};

use crate::database::{Database, is_url};
use crate::exit::{Exit, Failed, Result};
use crate::show::far::Far;
use crate::show::{Output, Screen, Style, clean};

/// Move everything to another database: SQLite or PostgreSQL, both ways. Your own tables stay.
#[derive(Args, Debug)]
pub struct Move {
    /// From this database, unless it is the one of `--db`.
    #[arg(long, value_name = "FILE|URL")]
    from: Option<PathBuf>,
    /// To this one: it is made if it is not there, and must be empty.
    #[arg(long, value_name = "FILE|URL")]
    to: PathBuf,
    /// The schema to move to, in PostgreSQL, unless it is that of `--schema`.
    #[arg(long, value_name = "NAME")]
    to_schema: Option<String>,
    #[command(flatten)]
    pub(crate) output: Output,
}

pub(crate) async fn run(args: &Move, database: &Database) -> Result<Exit> {
    let from = match &args.from {
        Some(from) => Database::file(from.clone()).schema(database.schema_name()),
        None => database.clone(),
    };
    if from.is_folder() || Database::file(args.to.clone()).is_folder() {
        let message = "only SQLite and PostgreSQL can be moved; objects in a folder stay there";
        return Err(Failed::usage(message));
    }
    let Some(source) = from.address() else {
        let message = "the program has the database open; stop it, and name the database with \
                       --from, so that nobody works on it while it is moved";
        return Err(Failed::usage(message));
    };
    let schema = args.to_schema.as_deref();
    let to = place(&args.to, schema.unwrap_or(database.schema_name()));
    let from = place(source, database.schema_name());
    let json = args.output.json;
    let work = tokio::task::spawn_blocking(move || {
        let mut far = Far::new(json);
        move_database(&from, &to, &mut |moving| {
            let Moving { phase, done, of } = *moving;
            far.say((word(phase), "runs"), done, of);
        })
    });
    let moved = work
        .await
        .map_err(|error| Failed::new(Exit::NotNow, error.to_string()))?;
    let moved = moved.map_err(|error| Failed::from(roundel::Error::from(error)))?;
    let mut screen = args.output.screen();
    if json {
        screen.json(&as_json(&moved));
    } else {
        show(&moved, &mut screen);
    }
    screen.flush()?;
    Ok(Exit::Done)
}

pub(crate) fn place(path: &Path, schema: &str) -> Place {
    match path.to_str().filter(|_| is_url(path)) {
        Some(url) => Place::Server {
            url: url.to_owned(),
            schema: schema.to_owned(),
        },
        None => Place::File(path.to_owned()),
    }
}

fn word(phase: Phase) -> &'static str {
    match phase {
        Phase::Copying => "copying",
        Phase::Comparing => "comparing",
        Phase::Checking => "checking",
    }
}

fn as_json(moved: &Moved) -> Value {
    let rows = moved.rows.iter();
    let rows: serde_json::Map<String, Value> = rows
        .map(|(kind, count)| (kind.replace(' ', "_"), json!(count)))
        .collect();
    json!({
        "from": moved.from,
        "to": moved.to,
        "rows": rows,
        "digest": moved.digest,
        "workers": moved.workers,
    })
}

fn show(moved: &Moved, screen: &mut Screen) {
    screen.line(&format!("from  {}", clean(&moved.from)));
    screen.line(&format!("to    {}", clean(&moved.to)));
    for (kind, count) in moved.rows.iter().filter(|(_, count)| *count > 0) {
        screen.line(&format!("{count:>10}  {kind}"));
    }
    screen.line(&format!("digest  {} on both sides", moved.digest));
    for worker in &moved.workers {
        screen.line(&format!(
            "worker `{}` never said goodbye: if it still runs, stop it; it can commit nothing",
            clean(worker)
        ));
    }
    let done = "moved: every row arrived, everything that must hold does, and the source refuses \
                to be opened. Start your workers on the new database; your own tables stay";
    screen.line(&screen.paint(Style::Good, done));
}

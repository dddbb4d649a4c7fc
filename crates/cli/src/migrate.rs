//! `migrate`: the schema that is there, the one that is known, and what lies between.

use clap::Args;
use roundel_store::{Schema, Sqlite};
use serde_json::json;

use crate::database::Database;
use crate::exit::{Exit, Failed, Result};
use crate::show::Output;

/// Bring the database to this program's schema.
#[derive(Args, Debug)]
pub struct Migrate {
    /// Only say what would be done.
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    pub(crate) output: Output,
}

pub(crate) async fn run(args: &Migrate, database: &Database) -> Result<Exit> {
    if database.is_folder() {
        let message = "objects in a folder have no schema to migrate";
        return Err(Failed::usage(message));
    }
    let Some(path) = database.path() else {
        return on_server(args, database).await;
    };
    let (path, dry_run) = (path.to_owned(), args.dry_run);
    let work = tokio::task::spawn_blocking(move || match dry_run {
        true => Sqlite::schema(&path),
        false => Sqlite::migrate(&path),
    });
    let schema = work
        .await
        .map_err(|error| Failed::new(Exit::NotNow, error.to_string()))?;
    let schema = schema.map_err(|error| database.explain(roundel::Error::from(error).into()))?;
    let mut screen = args.output.screen();
    let Schema {
        found,
        known,
        missing,
    } = &schema;
    if args.output.json {
        let done = !dry_run && !missing.is_empty();
        screen.json(&json!({"found": found, "known": known, "missing": missing, "done": done}));
        screen.flush()?;
        return Ok(Exit::Done);
    }
    screen.line(&format!(
        "schema version {found}; this program writes {known}"
    ));
    for name in missing {
        let verb = if dry_run { "to run" } else { "ran" };
        screen.line(&format!("  {verb}  {name}"));
    }
    match (missing.is_empty(), dry_run) {
        (true, _) => screen.line("nothing to do"),
        (false, true) => {
            screen.line("nothing was changed; make a backup, then run it without --dry-run");
        }
        (false, false) => screen.line("done"),
    }
    screen.flush()?;
    Ok(Exit::Done)
}

/// A server's schema is brought up by whoever opens it, alone among all that open it at once.
async fn on_server(args: &Migrate, database: &Database) -> Result<Exit> {
    let Some(engine) = database.engine() else {
        let message = "the program has the database open, at its own schema; \
                       to migrate another, name it";
        return Err(Failed::usage(message));
    };
    let (existing, mut screen) = (engine.start().await, args.output.screen());
    let (done, said) = match existing {
        Ok(engine) => {
            engine.shutdown().await;
            (false, "nothing to do".to_owned())
        }
        Err(roundel::Error::Unusable(lacks)) if args.dry_run => (false, lacks),
        Err(roundel::Error::Unusable(_)) => {
            let made = database.engine().map(roundel::EngineBuilder::create);
            let engine = made.expect("as before").start().await;
            let engine = engine.map_err(|error| database.explain(error.into()))?;
            engine.shutdown().await;
            (true, "done".to_owned())
        }
        Err(error) => return Err(database.explain(error.into())),
    };
    match args.output.json {
        true => screen.json(&json!({"done": done, "said": said})),
        false => screen.line(&said),
    }
    screen.flush()?;
    Ok(Exit::Done)
}

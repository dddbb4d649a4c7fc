//! `backup` and `restore`: a copy of the file, made while others work on it, and put back.

use std::path::{Path, PathBuf};

use clap::Args;
use roundel_store::{Copied, Stage, back_up, fence, restore};
use serde_json::json;

use crate::database::Database;
use crate::exit::{Exit, Failed, Result};
use crate::many::agreed;
use crate::relocate::place;
use crate::show::far::Far;
use crate::show::{Output, Style, clean};

/// Copy the database into a file, while others work on it.
#[derive(Args, Debug)]
pub struct Backup {
    /// The copy: a name that is free.
    file: PathBuf,
    #[command(flatten)]
    pub(crate) output: Output,
}

/// Make a database of a backup, or fence those who worked on one that was put back otherwise.
#[derive(Args, Debug)]
pub struct Restore {
    /// The backup. The database is that of `--db`, which must not be there.
    #[arg(required_unless_present = "in_place", conflicts_with = "in_place")]
    file: Option<PathBuf>,
    /// The database of `--db` was put back by other means: only fence those who worked on it.
    #[arg(long)]
    in_place: bool,
    /// Fence without asking.
    #[arg(long, short, requires = "in_place")]
    yes: bool,
    #[command(flatten)]
    pub(crate) output: Output,
}

const ON_A_SERVER: &str = "a server is backed up by its own tools, which take your tables too: \
     what a step wrote there and that it ran are one commit, and belong together. Use pg_dump of \
     the whole database, or continuous archiving; after putting it back, `roundel restore \
     --in-place` fences the workers of before. `roundel move` makes a file of a database that \
     nobody works on";

/// The file; why there is none, otherwise.
fn file(database: &Database) -> Result<&Path> {
    if database.is_folder() {
        let message = "objects in a folder are copied as files are, once nobody works on them";
        return Err(Failed::usage(message));
    }
    let here = "the program has the database open; name its file with --db";
    let why = if database.address().is_some() {
        ON_A_SERVER
    } else {
        here
    };
    database.path().ok_or_else(|| Failed::usage(why))
}

fn tell(far: &mut Far, stage: Stage) {
    match stage {
        Stage::Copying(done, of) => far.say(("copying", "pages"), done, of),
        Stage::Reading => far.work(("reading", "pages"), 0),
        Stage::Checking(runs) => far.work(("checking", "runs"), runs),
    }
}

/// Does the work where it may take its time.
async fn away<T: Send + 'static>(
    database: &Database,
    work: impl FnOnce() -> std::result::Result<T, roundel_store::Error> + Send + 'static,
) -> Result<T> {
    let done = tokio::task::spawn_blocking(work).await;
    let done = done.map_err(|error| Failed::new(Exit::NotNow, error.to_string()))?;
    done.map_err(|error| database.explain(roundel::Error::from(error).into()))
}

pub(crate) async fn make(args: &Backup, database: &Database) -> Result<Exit> {
    let (from, to, json) = (
        file(database)?.to_owned(),
        args.file.clone(),
        args.output.json,
    );
    let copied = away(database, move || {
        let mut far = Far::new(json);
        back_up(&from, &to, &mut |stage| tell(&mut far, stage))
    });
    let copied = copied.await?;
    say(
        &args.output,
        &args.file,
        &copied,
        "a copy of the database as it was when this began",
    )
}

pub(crate) async fn put_back(args: &Restore, database: &Database) -> Result<Exit> {
    let Some(from) = args.file.clone() else {
        return fence_here(args, database).await;
    };
    let (to, json) = (file(database)?.to_owned(), args.output.json);
    let target = to.clone();
    let copied = away(database, move || {
        let mut far = Far::new(json);
        restore(&from, &to, &mut |stage| tell(&mut far, stage))
    });
    let done = "restored: start your workers on it. Those of the database before can commit \
                nothing to it, but what they did outside since the backup has happened: effects \
                are made again";
    say(&args.output, &target, &copied.await?, done)
}

async fn fence_here(args: &Restore, database: &Database) -> Result<Exit> {
    let address = database.address().filter(|_| !database.is_folder());
    let Some(address) = address else {
        let message = "only a file or a server that is named with --db can be fenced";
        return Err(Failed::usage(message));
    };
    let question = "Fence all that have this database open? They must be restarted.";
    if !args.yes && !agreed(question)? {
        return Err(Failed::new(Exit::No, "nothing was done"));
    }
    let place = place(address, database.schema_name());
    let freed = away(database, move || fence(&place)).await?;
    let mut screen = args.output.screen();
    match args.output.json {
        true => screen.json(&json!({"fenced": true, "freed": freed})),
        false => screen.line(&format!(
            "fenced: whoever had it open before can commit nothing; {freed} runs that they had are \
             free. Start your workers again"
        )),
    }
    screen.flush()?;
    Ok(Exit::Done)
}

fn say(output: &Output, to: &Path, copied: &Copied, done: &str) -> Result<Exit> {
    let mut screen = output.screen();
    let sound = copied.wrong.is_empty();
    if output.json {
        screen.json(&json!({
            "file": to,
            "bytes": copied.bytes,
            "runs": copied.checked.map(|checked| checked.runs),
            "sound": sound,
            "wrong": copied.wrong,
            "freed": copied.freed,
        }));
    } else {
        screen.line(&format!(
            "{}  {} bytes",
            clean(&to.display().to_string()),
            copied.bytes
        ));
        match copied.checked {
            Some(checked) => {
                let (runs, rounds) = (checked.runs, checked.rounds);
                screen.line(&format!("checked the file, {runs} runs, {rounds} rounds"));
            }
            None if sound => screen.line(
                "checked the file; its schema is older than this program's, so runs can be checked \
                 once it is migrated",
            ),
            None => {}
        }
        if copied.freed > 0 {
            screen.line(&format!("{} runs that workers had are free", copied.freed));
        }
        for wrong in &copied.wrong {
            let line = screen.paint(Style::Bad, &format!("wrong: {}", clean(wrong)));
            screen.line(&line);
        }
        let verdict = match sound {
            true => screen.paint(Style::Good, done),
            false => screen.paint(
                Style::Bad,
                "the copy is whole, and not sound, as what it is a copy of; `roundel verify` says \
                 more",
            ),
        };
        screen.line(&verdict);
    }
    screen.flush()?;
    Ok(if sound { Exit::Done } else { Exit::No })
}

//! What is done about all that is parked and fits a filter: first how many they are, then, if
//! whoever is there agrees, on exactly as many.

use clap::ArgMatches;
use serde_json::Value;

use super::http::{Request, Server};
use super::table::{Row, Sent};
use super::{Remote, encoded, object, texts};
use crate::exit::{Exit, Failed, Result};
use crate::many::{agreed, counted};
use crate::show::{Output, clean};

/// Which of them: these are named in the API as they are here.
const FILTER: [&str; 4] = ["workflow", "label", "code", "group"];
/// What may be said about many, and not about one.
pub(super) const ARGS: &[&str] = &[
    "workflow", "label", "code", "group", "all", "yes", "dry_run",
];
/// The server acts on so many in one request.
const AT_ONCE: u64 = 1000;

/// Is it about what is parked, and was nothing of it named?
pub(super) fn is_meant(row: &Row, leaf: &ArgMatches) -> bool {
    let acts = row.command.starts_with("parked ") && row.method == "POST";
    acts && texts(leaf, "runs").is_empty()
}

impl Remote {
    pub(super) async fn many(
        &self,
        server: &Server,
        row: &Row,
        leaf: &ArgMatches,
        output: &Output,
    ) -> Result<Exit> {
        let (verb, fields) = self.deed(row, leaf)?;
        let ask = |more: (&'static str, String)| {
            let fields = [&fields[..], &[more]].concat();
            server.ask(Request {
                method: "POST",
                path: format!("/api/v1/{}/parked", encoded(&self.namespace)),
                body: Some(object(&fields)),
            })
        };
        let found = ask(("dry_run", "true".into())).await?["found"].as_u64();
        let found = found.unwrap_or_default();
        let what = |count: u64| counted(usize::try_from(count).unwrap_or(usize::MAX), "item");
        let mut screen = output.screen();
        if leaf.get_flag("dry_run") {
            match output.json {
                true => screen.json(&serde_json::json!({ "found": found })),
                false => screen.line(&format!("{} to {verb}", what(found))),
            }
            screen.flush()?;
            return Ok(Exit::Done);
        }
        let asked = format!("{verb} {}?", what(found.min(AT_ONCE)));
        if found > 0 && !leaf.get_flag("yes") && !agreed(&asked)? {
            return Err(Failed::usage("nothing was done"));
        }
        let answer = ask(("expect", found.to_string())).await?;
        let done = answer["done"].as_u64().unwrap_or_default();
        match output.json {
            true => screen.json(&answer),
            false => screen.line(&format!("{verb}: {} done", what(done))),
        }
        screen.flush()?;
        for why in answer["because"].as_array().into_iter().flatten() {
            let why = clean(why.as_str().unwrap_or_default());
            output.complain(&Failed::new(Exit::No, why));
        }
        if answer["more"] == true {
            output.note("there are more: say it again");
        }
        Ok(match answer["refused"].as_u64() {
            Some(0) => Exit::Done,
            _ => Exit::No,
        })
    }

    /// The remedy, in words, and what is sent of what was written.
    fn deed(&self, row: &Row, leaf: &ArgMatches) -> Result<(String, Vec<(&'static str, String)>)> {
        let verb = row.command.trim_start_matches("parked ").to_owned();
        let text = |text: &str| Value::from(text).to_string();
        let (mut remedy, mut fields) = (verb.clone(), Vec::new());
        for (arg, sent) in row.args {
            let said = texts(leaf, arg);
            let Some(first) = said.first() else { continue };
            match sent {
                Sent::Instead(word) if leaf.get_flag(arg) => remedy = (*word).to_owned(),
                Sent::Text(name) => fields.push((*name, text(first))),
                Sent::Json(name) => {
                    fields.push((*name, crate::payload::read(first)?.as_str().to_owned()));
                }
                _ => {}
            }
        }
        fields.push(("remedy", text(&remedy)));
        for arg in FILTER {
            let said = texts(leaf, arg);
            fields.extend(said.first().map(|said| (arg, text(said))));
        }
        Ok((verb, fields))
    }
}

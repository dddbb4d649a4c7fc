//! Commands on a server, by its URL: what the HTTP API has, asked as the command line says it.
//!
//! A command is turned into a request by one row of a table, from what was written on the command
//! line; so there is no second definition of commands. What the API lacks is refused by name:
//! nothing is left out silently.

mod follow;
mod http;
mod many;
mod show;
mod table;
mod undo;

use std::path::PathBuf;
use std::time::{Duration, Instant};

use clap::parser::ValueSource;
use clap::{ArgMatches, FromArgMatches};
use serde_json::Value;

use crate::exit::{Exit, Failed, Result};
use crate::payload;
use crate::show::{Output, Progress};
use crate::sql::{Found, Sql};
use crate::start::{label, span};
use http::{Request, Server, encoded};
use table::{ROWS, Row, Sent, Shown};

/// Arguments of every command: where, and how it is shown.
const EVERYWHERE: [&str; 9] = [
    "ca",
    "reader",
    "db",
    "namespace",
    "schema",
    "token_file",
    "json",
    "color",
    "by_key",
];
/// Items of a page, at most.
const PAGE: usize = 500;
/// Between two pages, at least.
const PAUSE: Duration = Duration::from_millis(20);

/// A server that commands are asked of.
#[derive(Debug)]
pub struct Remote {
    pub(crate) url: String,
    pub(crate) namespace: String,
    pub(crate) token_file: Option<PathBuf>,
    /// Who signed its certificate.
    pub(crate) ca: Option<PathBuf>,
}

impl Remote {
    /// Asks for what was written on the command line, and shows the answer.
    pub async fn run(&self, matches: &ArgMatches) -> Exit {
        let (command, leaf) = leaf(matches);
        let output = Output::from_arg_matches(leaf).unwrap_or_default();
        match self.act(&command, leaf, &output).await {
            Ok(exit) => exit,
            Err(failed) => {
                output.complain(&failed);
                failed.exit
            }
        }
    }

    async fn act(&self, command: &str, leaf: &ArgMatches, output: &Output) -> Result<Exit> {
        let row = ROWS.iter().find(|row| row.command == command);
        let row = row.ok_or_else(|| lacks(command))?;
        let many = many::is_meant(row, leaf);
        refuse_others(row, leaf, if many { many::ARGS } else { &[] })?;
        let server = Server::new(&self.url, self.ca.as_ref(), self.token_file.as_ref())?;
        if row.command == "sql" {
            return sql(&server, leaf).await;
        }
        if row.command == "runs undo" && !undo::is_meant(&server, self, row, leaf, output).await? {
            return Ok(Exit::Done);
        }
        if many {
            return self.many(&server, row, leaf, output).await;
        }
        if row.command == "runs show" && leaf.get_flag("follow") {
            let request = self.request(row, leaf, &names(row, leaf).concat())?;
            return follow::run(&server, request.path, output).await;
        }
        let mut screen = output.screen();
        for names in names(row, leaf) {
            let mut asked = self.request(row, leaf, &names)?;
            if let Shown::List(_) = row.shown {
                let wanted = limit(leaf);
                let items = self.pages(&server, &mut asked, wanted).await?;
                show::list(output, &mut screen, row.shown, &items);
                continue;
            }
            let answer = server.ask(asked).await?;
            show::one(output, &mut screen, row.shown, &answer);
        }
        screen.flush()?;
        Ok(Exit::Done)
    }

    /// All that is wanted of a list, page by page.
    async fn pages(&self, server: &Server, asked: &mut Request, most: usize) -> Result<Vec<Value>> {
        let (first, mut items, mut cursor) = (asked.path.clone(), Vec::new(), None::<String>);
        let mut progress = Progress::new();
        loop {
            let mut path = first.clone();
            for (name, value) in [
                ("limit", Some((most - items.len()).min(PAGE).to_string())),
                ("cursor", cursor.clone()),
            ] {
                let Some(value) = value.filter(|_| most < usize::MAX) else {
                    continue;
                };
                path.push(if path.contains('?') { '&' } else { '?' });
                path.push_str(&format!("{name}={}", encoded(&value)));
            }
            let request = Request {
                method: asked.method,
                path,
                body: None,
            };
            let begin = Instant::now();
            let answer = server.ask(request).await?;
            items.extend(answer["items"].as_array().cloned().unwrap_or_default());
            cursor = answer["next"].as_str().map(str::to_owned);
            if cursor.is_none() || items.len() >= most {
                return Ok(items);
            }
            // Where few fit among many, one request looks at a part: others shall be served too.
            progress.say(&format!(
                "{} found so far, looking further ...",
                items.len()
            ));
            tokio::time::sleep(begin.elapsed().max(PAUSE)).await;
        }
    }

    fn request(&self, row: &Row, leaf: &ArgMatches, names: &[String]) -> Result<Request> {
        let mut path = format!("/api/v1/{}/{}", encoded(&self.namespace), row.path);
        for name in names {
            path = path.replacen("{}", &encoded(name), 1);
        }
        let (mut query, mut body) = (Vec::new(), Vec::new());
        for (arg, sent) in row.args {
            if let Sent::Instead(word) = sent {
                if leaf.get_flag(arg) {
                    let before = path.rfind('/').map_or(0, |at| at + 1);
                    path.replace_range(before.., word);
                }
                continue;
            }
            let said = texts(leaf, arg);
            let Some(first) = said.first() else { continue };
            let text = |text: &str| Value::from(text).to_string();
            match sent {
                Sent::Query("limit") | Sent::Path | Sent::Here | Sent::Instead(_) => {}
                Sent::Query(name) => query.push(format!("{name}={}", encoded(first))),
                Sent::Text(name) => body.push((*name, text(first))),
                Sent::Number(name) => body.push((*name, first.clone())),
                Sent::Limit(name) if first == "none" => body.push((*name, text(first))),
                Sent::Limit(name) => {
                    let (count, per) = first.split_once('/').unwrap_or((first, ""));
                    body.push((*name, count.to_owned()));
                    if !per.is_empty() {
                        let millis = span(per).map_err(Failed::usage)?.as_millis();
                        body.push(("rate_ms", millis.to_string()));
                    }
                }
                Sent::Json(name) => body.push((*name, payload::read(first)?.as_str().to_owned())),
                Sent::Millis(name) => {
                    let millis = span(first).map_err(Failed::usage)?.as_millis();
                    body.push((*name, millis.to_string()));
                }
                Sent::Keep(name) => {
                    let millis = span(first).map(|span| span.as_millis().to_string());
                    body.push((*name, millis.unwrap_or_else(|_| text(first))));
                }
                Sent::Labels(name) => {
                    let mut labels = serde_json::Map::new();
                    for said in &said {
                        let (key, value) = label(said).map_err(Failed::usage)?;
                        labels.insert(key, value.into());
                    }
                    body.push((*name, Value::Object(labels).to_string()));
                }
                Sent::Flag(_) if first != "true" => {}
                Sent::Flag(name) if row.method == "POST" => body.push((*name, "true".into())),
                Sent::Flag(name) => query.push(format!("{name}=true")),
            }
        }
        if !query.is_empty() {
            path.push('?');
            path.push_str(&query.join("&"));
        }
        Ok(Request {
            method: row.method,
            path,
            body: matches!(row.method, "POST" | "PUT").then(|| object(&body)),
        })
    }
}

/// A statement, which sees all namespaces; or what there is to ask.
async fn sql(server: &Server, leaf: &ArgMatches) -> Result<Exit> {
    let args = Sql::from_arg_matches(leaf).map_err(|error| Failed::usage(error.to_string()))?;
    let ask = |method, path: &str, body| Request {
        method,
        path: path.to_owned(),
        body,
    };
    if args.views {
        let found = server.ask(ask("GET", "/api/v1/sql/views", None)).await?;
        return args.show_views(found["items"].as_array().map_or(&[], Vec::as_slice));
    }
    let statement = Value::from(args.statement()?).to_string();
    let body = object(&[("statement", statement), ("limit", args.limit.to_string())]);
    let found = server.ask(ask("POST", "/api/v1/sql", Some(body))).await?;
    args.show(&Found::of(&found))
}

/// A JSON object of values that are JSON.
fn object(fields: &[(&str, String)]) -> String {
    let fields = fields.iter();
    let fields = fields.map(|(name, value)| format!("\"{name}\":{value}"));
    format!("{{{}}}", fields.collect::<Vec<_>>().join(","))
}

/// The words of the command that was written, and its own arguments.
fn leaf(matches: &ArgMatches) -> (String, &ArgMatches) {
    let (mut words, mut leaf) = (Vec::new(), matches);
    while let Some((word, below)) = leaf.subcommand() {
        words.push(word);
        leaf = below;
    }
    (words.join(" "), leaf)
}

/// What was said for an argument, as it was written; also what it is unless said.
fn texts(leaf: &ArgMatches, arg: &str) -> Vec<String> {
    let raw = leaf.try_get_raw(arg).ok().flatten();
    let raw = raw.into_iter().flatten();
    raw.map(|text| text.to_string_lossy().into_owned())
        .collect()
}

/// The names in the path: once for each thing that was named, if it may be several.
fn names(row: &Row, leaf: &ArgMatches) -> Vec<Vec<String>> {
    let paths = row.args.iter().filter(|(_, sent)| *sent == Sent::Path);
    let said: Vec<Vec<String>> = paths.map(|(arg, _)| texts(leaf, arg)).collect();
    match said.as_slice() {
        [] => vec![Vec::new()],
        [one] => one.iter().map(|name| vec![name.clone()]).collect(),
        several => vec![several.concat()],
    }
}

fn limit(leaf: &ArgMatches) -> usize {
    let said = texts(leaf, "limit");
    let said = said.first().and_then(|text| text.parse().ok());
    said.unwrap_or(usize::MAX)
}

/// Whatever else was written is not left out silently.
fn refuse_others(row: &Row, leaf: &ArgMatches, also: &[&str]) -> Result<()> {
    let known = |id: &str| {
        let in_row = row.args.iter().any(|(arg, _)| *arg == id);
        in_row || EVERYWHERE.contains(&id) || also.contains(&id)
    };
    for id in leaf.ids().map(clap::Id::as_str) {
        let written = leaf.value_source(id) == Some(ValueSource::CommandLine);
        // Groups of arguments are named as types are, and arguments as fields.
        let is_group = id.starts_with(char::is_uppercase);
        if written && !is_group && !known(id) {
            let flag = id.replace('_', "-");
            let more = match id {
                "operator" => "; the token says who asks",
                _ => "; name the database itself with --db",
            };
            let command = row.command;
            let message = format!("`{command}` on a server does not know `{flag}`{more}");
            return Err(Failed::usage(message));
        }
    }
    if names(row, leaf)
        .iter()
        .any(|names| names.len() < row.path.matches("{}").count())
    {
        let command = row.command;
        let message = format!("`{command}` on a server needs all names; name them one by one");
        return Err(Failed::usage(message));
    }
    match names(row, leaf).is_empty() && also.is_empty() {
        false => Ok(()),
        true => Err(Failed::usage(format!(
            "`{}` on a server is about what is named, and nothing was",
            row.command
        ))),
    }
}

fn lacks(command: &str) -> Failed {
    let known: Vec<&str> = ROWS.iter().map(|row| row.command).collect();
    Failed::usage(format!(
        "`{command}` needs the database itself, which --db names; on a server there are: {}",
        known.join(", ")
    ))
}

/// The commands that a server answers: for a test of the reference.
#[doc(hidden)]
pub fn on_servers() -> Vec<&'static str> {
    ROWS.iter().map(|row| row.command).collect()
}

/// The rows against the commands: for a test of the whole command.
#[doc(hidden)]
pub fn unknown_arguments(command: &clap::Command) -> Vec<String> {
    let mut unknown = Vec::new();
    for row in ROWS {
        let mut at = Some(command);
        for word in row.command.split(' ') {
            at = at.and_then(|at| at.find_subcommand(word));
        }
        let Some(at) = at else {
            unknown.push(row.command.to_owned());
            continue;
        };
        for (arg, _) in row.args {
            if !at.get_arguments().any(|known| known.get_id() == arg) {
                unknown.push(format!("{} {arg}", row.command));
            }
        }
    }
    unknown
}

//! `tokens`: who may ask the server for what. They are kept as hashes, in a file of their own.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand};
use roundel::{Clock, Name, SystemClock, Timestamp};
use roundel_server::{Grant, Role, Tokens as File};
use serde_json::json;

use crate::exit::{Exit, Failed, Result};
use crate::show::table::{self, fixed, flexible, plain};
use crate::show::{Output, Style, time};
use crate::start::span;

/// Tokens of the server.
#[derive(Subcommand, Debug)]
pub enum Tokens {
    /// Make a token, and print it, once.
    Add(Add),
    /// Those there are, without their secrets.
    List(At),
    /// From now on a token is worth nothing.
    Revoke(Revoke),
}

#[derive(Args, Debug)]
pub struct At {
    /// The file of tokens.
    #[arg(long, value_name = "FILE", default_value = "roundel-tokens.json")]
    tokens: PathBuf,
    #[command(flatten)]
    output: Output,
}

#[derive(Args, Debug)]
pub struct Add {
    /// Who has it: the operator in the audit.
    name: String,
    /// What for: viewer, operator, submitter, worker or admin.
    #[arg(long, value_parser = role)]
    role: Role,
    /// In this namespace, may be said several times; `*` for all. `default` unless said.
    #[arg(long = "in", value_name = "NAMESPACE", default_value = "default")]
    places: Vec<String>,
    /// For so long, such as `30d`; for ever unless said.
    #[arg(long, value_name = "SPAN", value_parser = span)]
    expires: Option<Duration>,
    #[command(flatten)]
    at: At,
}

#[derive(Args, Debug)]
pub struct Revoke {
    /// Whose.
    name: String,
    #[command(flatten)]
    at: At,
}

fn role(word: &str) -> std::result::Result<Role, String> {
    Role::parse(word).ok_or_else(|| {
        let words: Vec<&str> = Role::ALL.into_iter().map(Role::as_str).collect();
        format!("the roles are {}", words.join(", "))
    })
}

impl At {
    fn file(&self) -> Result<File> {
        Ok(File::at(&self.tokens)?)
    }
}

impl From<roundel_server::TokenError> for Failed {
    fn from(error: roundel_server::TokenError) -> Failed {
        Failed::usage(error.to_string())
    }
}

impl Tokens {
    pub(crate) fn output(&self) -> &Output {
        match self {
            Tokens::Add(args) => &args.at.output,
            Tokens::List(args) => &args.output,
            Tokens::Revoke(args) => &args.at.output,
        }
    }

    pub(crate) fn run(&self) -> Result<Exit> {
        match self {
            Tokens::Add(args) => args.run(),
            Tokens::List(args) => args.list(),
            Tokens::Revoke(args) => {
                args.at.file()?.revoke(&args.name)?;
                let mut screen = args.at.output.screen();
                match args.at.output.json {
                    true => screen.json(&json!({"revoked": args.name})),
                    false => screen.line(&format!("`{}` is revoked", args.name)),
                }
                screen.flush()?;
                Ok(Exit::Done)
            }
        }
    }
}

impl Add {
    fn run(&self) -> Result<Exit> {
        let (file, now) = (self.at.file()?, SystemClock::default().now());
        let until = self.expires.map(|span| now.after(span));
        let who = (Name::new(self.name.clone())?, self.role);
        let token = file.add(who, self.places.clone(), (now, until));
        let token = token?;
        let output = &self.at.output;
        let mut screen = output.screen();
        match output.json {
            true => screen.json(&json!({"name": self.name, "token": token.reveal()})),
            false => screen.line(token.reveal()),
        }
        screen.flush()?;
        output.note("this is shown once; whoever has it may do what its role may");
        Ok(Exit::Done)
    }
}

impl At {
    fn list(&self) -> Result<Exit> {
        let grants = self.file()?.list()?;
        let (mut screen, now) = (self.output.screen(), SystemClock::default().now());
        if self.output.json {
            for grant in &grants {
                screen.json(&json!({
                    "name": grant.name, "role": grant.role, "namespaces": grant.namespaces,
                    "created_at": grant.created_at, "expires_at": grant.expires_at,
                }));
            }
            screen.flush()?;
            return Ok(Exit::Done);
        }
        if grants.is_empty() {
            self.output
                .note("there are no tokens; `tokens add` makes one");
            return Ok(Exit::Done);
        }
        let columns = [
            flexible("name"),
            fixed("role"),
            flexible("in"),
            fixed("age"),
            fixed("expires"),
        ];
        let rows: Vec<_> = grants.iter().map(|grant| row(grant, now)).collect();
        table::show(&mut screen, &columns, &rows);
        screen.flush()?;
        Ok(Exit::Done)
    }
}

fn row(grant: &Grant, now: Timestamp) -> Vec<table::Cell> {
    let expires = grant.expires_at.map(|at| time::from_now(at, now));
    vec![
        plain(grant.name.as_str()),
        plain(grant.role.as_str()),
        plain(grant.namespaces.join(" ")),
        (Style::Dim, time::short(now.since(grant.created_at))),
        plain(expires.unwrap_or_default()),
    ]
}

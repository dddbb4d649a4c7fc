//! `confine`: a role of the server's that reads one namespace.

use clap::Args;
use roundel_core::Name;
use roundel_store::Postgres;
use serde_json::json;

use crate::database::Database;
use crate::exit::{Exit, Failed, Result};
use crate::show::{Output, clean};

/// Let a role of PostgreSQL read what is of one namespace, and nothing else.
#[derive(Args, Debug)]
pub struct Confine {
    /// The role, which is there and can log in and nothing else.
    role: String,
    #[command(flatten)]
    pub(crate) output: Output,
}

pub(crate) async fn run(args: &Confine, database: &Database) -> Result<Exit> {
    let address = database.address().filter(|_| database.is_server());
    let Some(url) = address.and_then(|url| url.to_str()) else {
        let message = "roles are a server's: name it with --db postgres://...";
        return Err(Failed::usage(message));
    };
    let (schema, role) = (database.schema_name(), args.role.as_str());
    let namespace = Name::new(database.namespace_name().to_owned())?;
    let reads = Postgres::confine(url, schema, role, &namespace).await;
    let reads = reads.map_err(|error| database.explain(roundel::Error::from(error).into()))?;
    let mut screen = args.output.screen();
    match args.output.json {
        true => {
            let namespace = namespace.as_str();
            screen.json(&json!({"role": role, "namespace": namespace, "reads": reads}));
        }
        false => screen.line(&format!(
            "`{}` reads what is of `{}` in these, and nothing else in the schema `{schema}`: {}",
            clean(role),
            clean(namespace.as_str()),
            reads.join(", ")
        )),
    }
    screen.flush()?;
    Ok(Exit::Done)
}

//! Opening: is this a server that can be used, and is the schema one that this version knows?

use std::str::FromStr;

use sqlx::postgres::{PgArguments, PgConnectOptions, PgRow};

use super::link::{Beginnings, Link, values};
use super::trouble::Trouble;
use super::{Id, Options};
use super::{migrate, moving};
use crate::Error;
use crate::cells::{self, Cells};

const OLDEST: i64 = 140_000;
/// Clocks of servers are set; nobody needs rows of processes that were gone before that.
const FORGOTTEN: i64 = 30 * 24 * 3600 * 1_000_000;

const ABOUT: &str = "SELECT current_setting('server_version_num')::bigint, \
     pg_is_in_recovery(), current_setting('server_encoding')";
const COMMITTER: &str = "INSERT INTO roundel_committer (incarnation, batch, at) \
     VALUES ($1, 0, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint)";
const NOW: &str = "SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint";
const FORGET: &str = "DELETE FROM roundel_committer \
     WHERE at < (extract(epoch FROM clock_timestamp()) * 1000000)::bigint - $1";

/// Where a URL leads.
pub(super) fn address(url: &str) -> Result<PgConnectOptions, Error> {
    let no_url = |why: &str| {
        let form = "postgres://user:password@host:port/database";
        Error::Unusable(format!(
            "this is no URL of a PostgreSQL database: {why}; use {form}"
        ))
    };
    if !url.starts_with("postgres://") && !url.starts_with("postgresql://") {
        return Err(no_url("it does not begin with postgres://"));
    }
    PgConnectOptions::from_str(url).map_err(|error| no_url(&error.to_string()))
}

/// Connects and refuses what cannot be used.
pub(super) async fn connect(options: &PgConnectOptions, keeps: bool) -> Result<Link, Error> {
    let link = Link::connect(options, keeps).await;
    let mut link = link.map_err(|error| {
        let (host, port) = (options.get_host(), options.get_port());
        let message = format!("the server at {host}:{port} does not let us in: {error}");
        match Trouble::from(error) {
            Trouble::Culprit(_) => Error::Unusable(message),
            _ => Error::Unavailable(message),
        }
    })?;
    check(&mut link).await?;
    Ok(link)
}

async fn check(link: &mut Link) -> Result<(), Error> {
    let rows = ask(link).await;
    let rows = rows.map_err(|trouble| Error::Unavailable(trouble.message()))?;
    let strange = |error: cells::Strange| Error::Unusable(error.to_string());
    let row = &rows[0];
    let server = About {
        version: row.int(0).map_err(strange)?.unwrap_or_default(),
        is_replica: row.int(1).map_err(strange)? != Some(0),
        encoding: cells::string(row, 2).map_err(strange)?,
    };
    server.refusal().map_or(Ok(()), Err)
}

/// In a transaction: behind a pooler a statement outside of one may be parsed by one connection of
/// the server and run by another.
async fn ask(link: &mut Link) -> Result<Vec<PgRow>, Trouble> {
    link.run("BEGIN").await?;
    let rows = link.all(ABOUT, PgArguments::default()).await?;
    link.run("COMMIT").await?;
    Ok(rows)
}

/// What a server says of itself.
struct About {
    version: i64,
    is_replica: bool,
    encoding: String,
}

impl About {
    /// Why it cannot be used, if it cannot.
    fn refusal(&self) -> Option<Error> {
        if self.version < OLDEST {
            let (major, minor) = (self.version / 10_000, self.version % 10_000);
            return Some(Error::Unusable(format!(
                "the server is PostgreSQL {major}.{minor}; version 14 or later is needed"
            )));
        }
        if self.is_replica {
            return Some(Error::Unavailable(
                "the server is a replica, which cannot be written to; connect to the primary \
                 (with several hosts, a proxy or a name that follows the primary)"
                    .into(),
            ));
        }
        (self.encoding != "UTF8").then(|| {
            let encoding = &self.encoding;
            Error::Unusable(format!(
                "the database is encoded as {encoding}; make one with ENCODING 'UTF8'"
            ))
        })
    }
}

/// A schema's name stands in statements: nothing but small letters, digits and `_`.
pub(super) fn check_schema(schema: &str) -> Result<(), Error> {
    let fits = |at: usize, byte: u8| match byte {
        b'a'..=b'z' | b'_' => true,
        b'0'..=b'9' => at > 0,
        _ => false,
    };
    let good = (1..=63).contains(&schema.len())
        && schema.bytes().enumerate().all(|(at, byte)| fits(at, byte))
        && !schema.starts_with("pg_");
    if good {
        return Ok(());
    }
    Err(Error::Unusable(format!(
        "`{schema}` is no name for a schema here; use 1 to 63 small letters, digits and `_`, \
         not beginning with a digit or `pg_`"
    )))
}

/// Makes the schema ready, and a row for this process in it. Returns when it was last restored.
pub(super) async fn prepare(
    link: &mut Link,
    options: &Options,
    begin: &Beginnings,
    incarnation: Id,
) -> Result<Option<i64>, Error> {
    in_transaction(link, options, begin, Some(incarnation)).await
}

/// Makes the schema ready, for one who does not work on it.
pub(super) async fn make_ready(
    link: &mut Link,
    options: &Options,
    begin: &Beginnings,
) -> Result<(), Error> {
    in_transaction(link, options, begin, None).await.map(drop)
}

async fn in_transaction(
    link: &mut Link,
    options: &Options,
    begin: &Beginnings,
    incarnation: Option<Id>,
) -> Result<Option<i64>, Error> {
    let prepared = make(link, options, begin, incarnation).await;
    if prepared.is_err() {
        let _ = link.run("ROLLBACK").await;
    }
    prepared
}

async fn make(
    link: &mut Link,
    options: &Options,
    begin: &Beginnings,
    incarnation: Option<Id>,
) -> Result<Option<i64>, Error> {
    let failed = |what: &str, trouble: Trouble| {
        let passing = matches!(
            trouble,
            Trouble::Again(_) | Trouble::Broken(_) | Trouble::Passing(_) | Trouble::Doubt(_)
        );
        let message = format!("{what}: {}", trouble.message());
        match passing {
            true => Error::Unavailable(message),
            false => Error::Unusable(message),
        }
    };
    let schema = options.schema.as_str();
    let began = link.run(&begin.plain).await;
    began.map_err(|error| Error::Unavailable(error.to_string()))?;
    let version = migrate::version(link, schema).await;
    let version = version.map_err(|trouble| failed("the schema cannot be read", trouble))?;
    if version > migrate::NEWEST {
        return Err(Error::Unusable(format!(
            "the schema `{schema}` has version {version}, made by a newer roundel; this one knows \
             {}; use the newer program",
            migrate::NEWEST
        )));
    }
    if version < migrate::NEWEST {
        if !options.create {
            let missing: Vec<&str> = migrate::missing(version).map(|(name, _)| *name).collect();
            return Err(Error::Unusable(format!(
                "the schema `{schema}` lacks {}; run `roundel migrate`, or open with `create`",
                missing.join(", ")
            )));
        }
        let applied = migrate::apply(link, schema).await;
        applied.map_err(|trouble| failed("the tables cannot be made", trouble))?;
    }
    if let Some(incarnation) = incarnation {
        let moved = moving::moved(link).await;
        if let Some(mark) = moved.map_err(|trouble| failed("it cannot be read", trouble))? {
            return Err(Error::Unusable(moving::refusal(schema, &mark)));
        }
        let noted = note(link, incarnation).await;
        noted.map_err(|trouble| failed("nothing can be written", trouble))?;
    }
    let restored = moving::restored(link).await;
    let restored = restored.map_err(|trouble| failed("it cannot be read", trouble))?;
    let committed = link.run("COMMIT").await;
    committed.map_err(|error| Error::Unavailable(error.to_string()))?;
    Ok(restored)
}

async fn note(link: &mut Link, incarnation: Id) -> Result<(), Trouble> {
    link.execute(FORGET, values![FORGOTTEN]).await?;
    link.execute(COMMITTER, values![incarnation]).await?;
    Ok(())
}

/// The row of a process that was taken for gone, in a database that was restored then.
pub(super) async fn note_again(
    link: &mut Link,
    begin: &Beginnings,
    (incarnation, before): (Id, Option<i64>),
) -> Result<Again, Trouble> {
    link.run(&begin.plain).await?;
    if let Some(mark) = moving::moved(link).await? {
        link.run("ROLLBACK").await?;
        return Ok(Again::Moved(mark));
    }
    if moving::restored(link).await? != before {
        link.run("ROLLBACK").await?;
        return Ok(Again::Restored);
    }
    link.execute(COMMITTER, values![incarnation]).await?;
    link.run("COMMIT").await?;
    Ok(Again::Made)
}

/// What became of the wish for a row.
pub(super) enum Again {
    Made,
    /// Nothing is ever committed here again.
    Moved(String),
    /// This is another database than the one that was opened.
    Restored,
}

/// The server's time, asked for by itself.
pub(super) async fn now_alone(link: &mut Link) -> Result<roundel_core::Timestamp, Error> {
    let failed = |error: sqlx::Error| Error::Unavailable(error.to_string());
    link.run("BEGIN").await.map_err(failed)?;
    let now = now(link).await?;
    link.run("COMMIT").await.map_err(failed)?;
    Ok(now)
}

/// The server's time, in the transaction that is open.
pub(super) async fn now(link: &mut Link) -> Result<roundel_core::Timestamp, Error> {
    let rows = link.all(NOW, PgArguments::default()).await;
    let rows = rows.map_err(|trouble| Error::Unavailable(trouble.message()))?;
    let micros = rows.first().map_or(Ok(None), |row| row.int(0));
    let micros = micros.map_err(|error| Error::Unusable(error.to_string()))?;
    Ok(roundel_core::Timestamp(micros.unwrap_or_default()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(version: i64, is_replica: bool, encoding: &str) -> Option<Error> {
        About {
            version,
            is_replica,
            encoding: encoding.to_owned(),
        }
        .refusal()
    }

    #[test]
    fn h10_servers_that_are_too_old_or_are_no_primary_are_refused_by_name() {
        assert!(refusal(140_000, false, "UTF8").is_none());
        let old = refusal(130_014, false, "UTF8").expect("a refusal");
        assert!(matches!(&old, Error::Unusable(why) if why.contains("13.14")));
        // It may become the primary: whoever asks may try again.
        let replica = refusal(150_000, true, "UTF8").expect("a refusal");
        assert!(matches!(&replica, Error::Unavailable(why) if why.contains("replica")));
        let latin = refusal(150_000, false, "LATIN1").expect("a refusal");
        assert!(matches!(&latin, Error::Unusable(why) if why.contains("LATIN1")));
    }
}

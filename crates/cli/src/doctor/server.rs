//! A server: what its settings mean for what was promised, and who is in its way.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use roundel::{Client, Error, Value};

use super::Findings;
use crate::show::time;

/// Clocks that differ by more are worth a look.
const SKEW: Duration = Duration::from_secs(2);

const SETTINGS: &str = "SELECT name, setting FROM pg_settings WHERE name IN ('fsync', \
     'full_page_writes', 'synchronous_commit', 'server_version', 'max_connections', \
     'idle_in_transaction_session_timeout')";
/// Microseconds, process, and what it runs in.
const OPEN: &str = "SELECT (extract(epoch FROM now() - xact_start) * 1000000)::bigint AS age, \
     pid::bigint AS pid, coalesce(application_name, '') AS name FROM pg_stat_activity \
     WHERE xact_start < now() - interval '5 minutes' AND datname = current_database() \
     ORDER BY xact_start LIMIT 1";
const CONNECTIONS: &str = "SELECT count(*)::bigint AS n FROM pg_stat_activity";
const DEAD: &str = "SELECT n_live_tup::bigint AS live, n_dead_tup::bigint AS dead \
     FROM pg_stat_user_tables WHERE relname = 'roundel_run' AND schemaname = current_schema()";

pub(super) async fn look(client: &Client, findings: &mut Findings) -> Result<(), Error> {
    let settings = settings(client).await?;
    let get = |name: &str| settings.get(name).map_or("", String::as_str);
    let program = env!("CARGO_PKG_VERSION");
    let version = get("server_version");
    findings.fine(
        "schema",
        format!("up to date, roundel {program}, PostgreSQL {version}"),
    );
    durable(get, findings);
    clocks(client, findings);
    held(client, findings).await?;
    room(client, get("max_connections"), findings).await?;
    let dead = client.sql(DEAD, 1).await?;
    if let Some([Value::Integer(live), Value::Integer(dead)]) =
        dead.rows.first().map(|row| &row[..])
        && *dead > 100_000
        && *dead > *live * 5
    {
        findings.unwise(
            "vacuum",
            format!("{dead} old versions of {live} runs have not been removed"),
            "see that autovacuum runs on this schema, and that nobody holds a transaction open",
        );
    }
    Ok(())
}

async fn settings(client: &Client) -> Result<BTreeMap<String, String>, Error> {
    let table = client.sql(SETTINGS, 100).await?;
    let text = |value: &Value| match value {
        Value::Text(text) => text.clone(),
        _ => String::new(),
    };
    let rows = table.rows.iter();
    Ok(rows.map(|row| (text(&row[0]), text(&row[1]))).collect())
}

fn durable<'a>(get: impl Fn(&str) -> &'a str, findings: &mut Findings) {
    let lost = [
        ("fsync", "a crash of the machine can destroy the database"),
        ("full_page_writes", "a loss of power can destroy pages"),
    ];
    let mut sound = true;
    for (name, means) in lost {
        if get(name) == "off" {
            sound = false;
            findings.wrong(
                "durability",
                format!("{name} is off: {means}"),
                &format!("set {name} = on and restart the server"),
            );
        }
    }
    match get("synchronous_commit") {
        "off" => findings.wrong(
            "durability",
            "synchronous_commit is off: what was acknowledged can be lost when the server crashes",
            "set it to on for the role or database of Roundel",
        ),
        level if sound => findings.fine("durability", format!("synchronous_commit is {level}")),
        _ => {}
    }
    if get("idle_in_transaction_session_timeout") == "0" {
        findings.unwise(
            "time-outs",
            "a forgotten session may hold a transaction open for ever",
            "set idle_in_transaction_session_timeout, such as to 10min",
        );
    }
}

fn clocks(client: &Client, findings: &mut Findings) {
    let here = SystemTime::now().duration_since(UNIX_EPOCH);
    let here = here.map_or(0, |since| i64::try_from(since.as_micros()).unwrap_or(0));
    let apart = Duration::from_micros(client.now().0.abs_diff(here));
    match apart > SKEW {
        true => findings.unwise(
            "clock",
            format!(
                "this machine's clock and the server's differ by {}",
                time::span(apart)
            ),
            "leases and timers go by the server's, so nothing breaks; ids are ordered by the \
             clocks of those who make them: let all machines follow a time server",
        ),
        false => findings.fine("clock", "this machine's agrees with the server's"),
    }
}

async fn held(client: &Client, findings: &mut Findings) -> Result<(), Error> {
    let table = client.sql(OPEN, 1).await?;
    let Some([Value::Integer(age), Value::Integer(pid), name]) =
        table.rows.first().map(|row| &row[..])
    else {
        findings.fine("transactions", "none has been open for more than 5 minutes");
        return Ok(());
    };
    let age = time::span(Duration::from_micros(age.unsigned_abs()));
    let name = match name {
        Value::Text(name) if !name.is_empty() => format!(" of `{name}`"),
        _ => String::new(),
    };
    findings.unwise(
        "transactions",
        format!("process {pid}{name} has had a transaction open for {age}"),
        "it keeps the server from removing old versions of rows, and facts from being followed: \
         let it end, or end it with pg_terminate_backend",
    );
    Ok(())
}

async fn room(client: &Client, most: &str, findings: &mut Findings) -> Result<(), Error> {
    let table = client.sql(CONNECTIONS, 1).await?;
    let Some([Value::Integer(used)]) = table.rows.first().map(|row| &row[..]) else {
        return Ok(());
    };
    let most: i64 = most.parse().unwrap_or(i64::MAX);
    match *used * 10 > most * 9 {
        true => findings.unwise(
            "connections",
            format!("{used} of {most} are in use"),
            "each process needs up to six: raise max_connections, or put a pooler in front and say \
             `pooled`",
        ),
        false => findings.fine("connections", format!("{used} of {most} are in use")),
    }
    Ok(())
}

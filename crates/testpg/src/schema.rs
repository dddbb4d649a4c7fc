//! A schema of its own for each test: tests run beside each other on one server.

use std::env;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use sqlx::{Connection, PgConnection};

use crate::{Pooler, Unavailable, address, unpooled, untested};

const DROP: &str = "\
DO $$ BEGIN
    EXECUTE format('DROP SCHEMA IF EXISTS %I CASCADE', current_setting('testpg.schema'));
END $$";

const CREATE: &str = "\
DO $$ BEGIN
    EXECUTE format('CREATE SCHEMA %I', current_setting('testpg.schema'));
END $$";

/// A name that no other test has. What is made under it is dropped with this value.
#[derive(Debug)]
pub struct Schema {
    server: String,
    name: String,
}

/// A schema for the calling test, or nothing, said and counted, if there is no server.
///
/// # Panics
/// Where `CI` is set and there is no server.
#[must_use]
pub fn schema() -> Option<Schema> {
    match address() {
        Ok(server) => Some(Schema::on(server)),
        Err(why) => {
            let thread = std::thread::current();
            untested(&place(thread.name()), &why);
            None
        }
    }
}

/// A pooler before the server, or nothing, said and counted, if this machine has none.
///
/// # Panics
/// Where `CI` is set and there is no server, or no pooler.
#[must_use]
pub fn pooler() -> Option<Pooler> {
    let name = std::thread::current().name().map(str::to_owned);
    let server = match address() {
        Ok(server) => server,
        Err(why) => {
            untested(&place(name.as_deref()), &why);
            return None;
        }
    };
    match Pooler::before(server) {
        Ok(pooler) => Some(pooler),
        Err(why) => {
            unpooled(&place(name.as_deref()), &why);
            None
        }
    }
}

/// Which test of which program.
fn place(test: Option<&str>) -> String {
    let program = env::current_exe().unwrap_or_default();
    let program = program.file_stem().unwrap_or_default().to_string_lossy();
    format!("{program}: {}", test.unwrap_or("a test"))
}

impl Schema {
    /// On this server. It is made at once and empty, for tables of the test's own.
    ///
    /// # Panics
    /// When the server does not take it.
    #[must_use]
    pub fn on(server: &str) -> Schema {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let next = NEXT.fetch_add(1, Ordering::Relaxed);
        let since = SystemTime::now().duration_since(UNIX_EPOCH);
        let nanos = since.map_or(0, |since| since.as_nanos());
        let name = format!("t{:x}_{:x}_{next}", std::process::id(), nanos & 0xffff_ffff);
        let schema = Schema {
            server: server.to_owned(),
            name,
        };
        run(&schema, CREATE).expect("a schema");
        schema
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The server's address, with this schema as the one where tables are made and found.
    #[must_use]
    pub fn address(&self) -> String {
        self.address_at(&self.server)
    }

    /// The same, by another way to the server.
    #[must_use]
    pub fn address_at(&self, server: &str) -> String {
        let sign = if server.contains('?') { '&' } else { '?' };
        format!("{server}{sign}options[search_path]={}", self.name)
    }
}

impl Drop for Schema {
    fn drop(&mut self) {
        if let Err(why) = run(self, DROP) {
            eprintln!("the schema {} stays behind: {why}", self.name);
        }
    }
}

/// On a thread of its own: a test may be inside of a runtime.
fn run(schema: &Schema, statement: &'static str) -> Result<(), Unavailable> {
    let work = || {
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        let runtime = runtime.enable_all().build()?;
        runtime.block_on(ask(schema, statement))
    };
    match std::thread::scope(|scope| scope.spawn(work).join()) {
        Ok(Ok(())) => Ok(()),
        Ok(Err(error)) => Err(Unavailable(error.to_string())),
        Err(_) => Err(Unavailable("a thread failed".to_owned())),
    }
}

async fn ask(schema: &Schema, statement: &'static str) -> Result<(), sqlx::Error> {
    let mut connection = PgConnection::connect(&schema.server).await?;
    sqlx::query("SELECT set_config('testpg.schema', $1, false)")
        .bind(&schema.name)
        .execute(&mut connection)
        .await?;
    sqlx::raw_sql(statement).execute(&mut connection).await?;
    connection.close().await
}

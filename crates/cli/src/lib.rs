//! The commands of `roundel`, to be mounted in a command of your own.
//!
//! [`Command`] is a clap subcommand: flatten it into yours, and run it on your database. So the
//! program that has the workflows also shows their runs, signals them and verifies the file, and
//! nobody has to say where the database is. `examples/mounted.rs` is a whole program.
//!
//! ```
//! use clap::Parser;
//! use roundel_cli::{Database, Exit};
//!
//! #[derive(Parser)]
//! enum Shop {
//!     /// Sell things.
//!     Sell,
//!     #[command(flatten)]
//!     Roundel(roundel_cli::Command),
//! }
//!
//! # #[tokio::main]
//! # async fn main() {
//! let exit = match Shop::parse_from(["shop", "runs", "list"]) {
//!     Shop::Sell => Exit::Done,
//!     Shop::Roundel(command) => command.run(&Database::file("shop.db")).await,
//! };
//! assert_eq!(exit, Exit::Database); // there is no shop.db, and none is made
//! # }
//! ```

mod audit;
mod backup;
mod batches;
mod check;
mod commands;
mod confine;
mod database;
mod doctor;
mod exit;
mod facts;
mod incoming;
mod keys;
mod many;
mod migrate;
mod parked;
mod payload;
mod projections;
mod queues;
mod relocate;
mod remote;
mod retention;
mod runs;
mod schedules;
mod send;
mod serve;
mod show;
mod signed;
mod sql;
mod start;
mod stop;
mod tokens;
mod top;
mod topics;
mod verify;
mod which;

use clap::Subcommand;
use roundel::EngineBuilder;

pub use database::{Database, Place};
pub use doctor::Doctor;
pub use exit::Exit;
pub use remote::{Remote, on_servers, unknown_arguments};

use exit::Result;
use show::Output;

/// The commands.
#[derive(Subcommand, Debug)]
pub enum Command {
    /// Look at runs, and end them.
    #[command(subcommand)]
    Runs(Runs),
    /// Start a run of a workflow.
    Start(Start),
    /// Send a signal to a run.
    Signal(Signal),
    /// Offer a signal to the run that waits longest for it.
    Offer(Offer),
    /// Topics: who subscribes, what was published, and whether anybody heard.
    Topics(Topics),
    /// Publish to a topic: every workflow that subscribes starts a run.
    Publish(Publish),
    /// Send commands, and see what became of them.
    #[command(subcommand)]
    Commands(Box<Commands>),
    /// Commands that were sent together: how far they are.
    #[command(subcommand)]
    Batches(Batches),
    /// Queues that have limits: pause, resume and limit them.
    Queues(Queues),
    /// Schedules: what is started again and again, by itself.
    #[command(subcommand)]
    Schedules(Schedules),
    /// What waits for an operator: commands, runs, rollbacks and signals.
    #[command(subcommand)]
    Parked(Box<Parked>),
    /// What happened, once and for all.
    #[command(subcommand)]
    Facts(Facts),
    /// What facts came to.
    #[command(subcommand)]
    Documents(Documents),
    /// Take facts that came in, and run jobs, once: for a program with projections or jobs.
    Tick(Tick),
    /// How facts are folded into documents: how far that is, and anew.
    #[command(subcommand)]
    Projections(Projections),
    /// What operators did: who, why, what and when.
    Audit(Audit),
    /// Ask the database in its own language: one statement that reads.
    Sql(Sql),
    /// What goes on, live: rates, counts, queues, workers, what waits longest, what failed last.
    Top(Top),
    /// Serve the API and the dashboard over HTTP.
    Serve(Serve),
    /// Who may ask the server for what.
    #[command(subcommand)]
    Tokens(Tokens),
    /// The keys that payloads are sealed with.
    #[command(subcommand)]
    Keys(Keys),
    /// What has ended and is still kept, and removing what ended long ago.
    #[command(subcommand)]
    Retention(Retention),
    /// Copy the database into a file, while others work on it.
    Backup(Backup),
    /// Make a database of a backup, and fence those who worked on the one before.
    Restore(Restore),
    /// Look for what is wrong or unwise, and say what to do about it.
    Doctor(Doctor),
    /// Check the file, and that what must be true of every run is.
    Verify(Verify),
    /// Replay every run in flight by this program, before it takes work: does each go on?
    Check(Check),
    /// Bring the database to this program's schema.
    Migrate(Migrate),
    /// Let a role of PostgreSQL read what is of one namespace, and nothing else.
    Confine(Confine),
    /// Move everything to another database: SQLite or PostgreSQL, both ways. Your own tables stay.
    Move(Move),
}

pub use audit::Audit;
pub use backup::{Backup, Restore};
pub use batches::Batches;
pub use check::Check;
pub use commands::Commands;
pub use confine::Confine;
pub use facts::{Documents, Facts};
pub use incoming::Tick;
pub use keys::Keys;
pub use migrate::Migrate;
pub use parked::Parked;
pub use projections::Projections;
pub use queues::Queues;
pub use relocate::Move;
pub use retention::Retention;
pub use runs::Command as Runs;
pub use schedules::Schedules;
pub use send::{Offer, Signal};
pub use serve::Serve;
pub use sql::Sql;
pub use start::Start;
pub use tokens::Tokens;
pub use top::Top;
pub use topics::{Publish, Topics};
pub use verify::Verify;

impl Command {
    /// Runs the command on this database. It prints what it found, and what went wrong.
    pub async fn run(self, database: &Database) -> Exit {
        let output = self.output().clone();
        match self.act(database).await {
            Ok(exit) => exit,
            Err(failed) => {
                output.complain(&failed);
                failed.exit
            }
        }
    }

    /// Runs the command over the database of this engine, with its workflows: it works while the
    /// command runs, so that what is started here is done here. Only `check` takes no work: it
    /// looks at what a new program would do before that does it.
    pub async fn run_in(self, engine: EngineBuilder) -> Exit {
        let engine = match self {
            Command::Check(_) => engine.idle(),
            _ => engine,
        };
        match engine.start().await {
            Ok(engine) => {
                let exit = self.run(&Database::open(engine.client())).await;
                engine.shutdown().await;
                exit
            }
            Err(error) => {
                let failed = exit::Failed::from(error);
                self.output().complain(&failed);
                failed.exit
            }
        }
    }

    /// Is it about files of its own, wherever the database is?
    #[must_use]
    pub fn needs_no_database(&self) -> bool {
        matches!(self, Command::Tokens(_) | Command::Keys(_))
    }

    fn output(&self) -> &Output {
        match self {
            Command::Runs(command) => command.output(),
            Command::Start(args) => &args.output,
            Command::Signal(args) => &args.output,
            Command::Offer(args) => &args.output,
            Command::Topics(args) => args.output(),
            Command::Publish(args) => &args.output,
            Command::Commands(args) => args.output(),
            Command::Batches(args) => args.output(),
            Command::Queues(args) => args.output(),
            Command::Schedules(args) => args.output(),
            Command::Parked(args) => args.output(),
            Command::Facts(args) => args.output(),
            Command::Documents(args) => args.output(),
            Command::Tick(args) => &args.output,
            Command::Projections(args) => args.output(),
            Command::Audit(args) => args.output(),
            Command::Sql(args) => &args.output,
            Command::Top(args) => &args.output,
            Command::Serve(args) => &args.output,
            Command::Tokens(args) => args.output(),
            Command::Keys(args) => args.output(),
            Command::Retention(args) => args.output(),
            Command::Backup(args) => &args.output,
            Command::Restore(args) => &args.output,
            Command::Doctor(args) => &args.output,
            Command::Verify(args) => &args.output,
            Command::Check(args) => &args.output,
            Command::Migrate(args) => &args.output,
            Command::Confine(args) => &args.output,
            Command::Move(args) => &args.output,
        }
    }

    async fn act(self, database: &Database) -> Result<Exit> {
        match self {
            Command::Backup(args) => return backup::make(&args, database).await,
            Command::Restore(args) => return backup::put_back(&args, database).await,
            Command::Doctor(args) => return doctor::run(&args, database).await,
            Command::Verify(args) => return verify::run(&args, database).await,
            Command::Migrate(args) => return migrate::run(&args, database).await,
            Command::Confine(args) => return confine::run(&args, database).await,
            Command::Move(args) => return relocate::run(&args, database).await,
            Command::Tokens(args) => return args.run(),
            Command::Keys(args) => return args.run(),
            _ => {}
        }
        let connected = database.connect().await?;
        let client = &connected.client;
        let done = match self {
            Command::Runs(command) => command.run(client).await,
            Command::Start(args) => start::run(args, client).await,
            Command::Signal(args) => send::signal(args, client).await,
            Command::Offer(args) => send::offer(args, client).await,
            Command::Topics(args) => args.run(client).await,
            Command::Publish(args) => topics::publish(args, client).await,
            Command::Commands(args) => args.run(client).await,
            Command::Batches(args) => args.run(client).await,
            Command::Queues(args) => args.run(client).await,
            Command::Schedules(args) => args.run(client).await,
            Command::Parked(args) => args.run(client).await,
            Command::Facts(args) => args.run(client).await,
            Command::Documents(args) => args.run(client).await,
            Command::Tick(args) => incoming::tick(args, client).await,
            Command::Projections(args) => args.run(client).await,
            Command::Audit(args) => args.run(client).await,
            Command::Sql(args) => sql::run(&args, client).await,
            Command::Retention(args) => args.run(client).await,
            Command::Top(args) => top::run(&args, client).await,
            Command::Serve(args) => args.run(client).await,
            Command::Check(args) => check::run(&args, client).await,
            Command::Backup(_)
            | Command::Restore(_)
            | Command::Doctor(_)
            | Command::Verify(_)
            | Command::Migrate(_)
            | Command::Confine(_)
            | Command::Move(_)
            | Command::Tokens(_)
            | Command::Keys(_) => unreachable!("taken above"),
        };
        connected.close().await;
        done
    }
}

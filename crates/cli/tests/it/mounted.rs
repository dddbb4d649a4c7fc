//! The commands in a program of one's own: the example is that program.

#[allow(dead_code, unreachable_pub)]
#[path = "../../examples/mounted.rs"]
mod example;

use clap::Parser;
use roundel::{Cx, Engine, Failure, RunState, Signal, Tx, Workflow};
use roundel_cli::{Command, Database, Exit};

use example::Shop;

#[tokio::test(flavor = "multi_thread")]
async fn a_program_mounts_the_commands_beside_its_own() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("shop.db");
    let shop = |args: &[&str]| {
        let args = [&["shop"], args].concat();
        Shop::try_parse_from(args).expect("a command")
    };
    for (args, exit) in [
        (&["prices"] as &[&str], Exit::Done),
        // Its own workflow runs in its own process.
        (
            &["start", "fulfil", "\"a lamp\"", "--wait", "--key", "k"],
            Exit::Done,
        ),
        (&["runs", "show", "k", "--json"], Exit::Done),
        (&["runs", "show", "nope"], Exit::NotFound),
        (&["verify", "--json"], Exit::Done),
        (&["check", "--json"], Exit::Done),
        (&["migrate"], Exit::Usage),
        (&["confine", "reader"], Exit::Usage),
    ] {
        let ended = example::run(shop(args), &file).await;
        assert_eq!(ended, exit, "{args:?}");
    }
    assert!(
        Shop::try_parse_from(["shop", "runs", "list", "--db", "x"]).is_err(),
        "it is its own"
    );
}

const FULFIL: Workflow<String, String> = Workflow::named("fulfil");

/// Runs a command as a program would that has another `fulfil`, over the example's file.
async fn other(file: &std::path::Path, step: &'static str, args: &[&str]) -> Exit {
    let fulfil = move |cx: Cx, item: String| async move {
        cx.step(step, |_: Tx| async { Ok::<_, Failure>(()) })
            .await?;
        let given = cx.wait(Signal::<String>::named("given")).await?;
        Ok(item + &given)
    };
    let nested = Nested::try_parse_from([&["shop"], args].concat()).expect("a command");
    let engine = Engine::open(file).register(FULFIL, fulfil);
    nested.command.run_in(engine).await
}

#[tokio::test(flavor = "multi_thread")]
async fn e5_a_new_program_is_checked_against_runs_of_the_old_one() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("shop.db");
    assert_eq!(
        other(&file, "pack", &["check"]).await,
        Exit::Database,
        "it makes no database"
    );
    let start = ["start", "fulfil", "\"a lamp\"", "--key", "k"];
    assert_eq!(other(&file, "pack", &start).await, Exit::Done);
    for (step, args, exit) in [
        ("pack", &["check", "--all"] as &[&str], Exit::Done),
        ("wrap", &["check"], Exit::No),
        ("wrap", &["check", "--json", "--unfit", "go"], Exit::Done),
        (
            "wrap",
            &["check", "--unfit", "park", "--reason", "new"],
            Exit::Done,
        ),
        // What is parked is not in the way of the next who look.
        ("wrap", &["check", "--json"], Exit::Done),
    ] {
        assert_eq!(other(&file, step, args).await, exit, "{step}: {args:?}");
    }
    let engine = Engine::open(&file).existing().start().await.expect("open");
    let row = engine.run("k").await.expect("the run").row;
    assert_eq!(row.state, RunState::Parked);
    let audit = engine.audit().fetch().await.expect("an audit").items;
    assert_eq!(audit.len(), 1);
    assert_eq!((&*audit[0].1.action, &*audit[0].1.reason), ("park", "new"));
    engine.shutdown().await;
}

#[derive(Parser)]
struct Nested {
    #[command(subcommand)]
    command: Command,
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_is_never_made() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("shop.db");
    let nested = Nested::try_parse_from(["shop", "runs", "list"]).expect("a command");
    let database = Database::file(&file).namespace("other");
    assert_eq!(nested.command.run(&database).await, Exit::Database);
    assert!(!file.exists());
}

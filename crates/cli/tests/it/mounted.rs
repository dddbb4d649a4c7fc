//! The commands in a program of one's own: the example is that program.

#[allow(dead_code, unreachable_pub)]
#[path = "../../examples/mounted.rs"]
mod example;

use clap::Parser;
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
        (&["migrate"], Exit::Usage),
    ] {
        let ended = example::run(shop(args), &file).await.expect("an engine");
        assert_eq!(ended, exit, "{args:?}");
    }
    assert!(
        Shop::try_parse_from(["shop", "runs", "list", "--db", "x"]).is_err(),
        "it is its own"
    );
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

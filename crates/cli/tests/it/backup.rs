//! `backup` and `restore`: real files, beside real workers.

use std::os::unix::fs::PermissionsExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use roundel::{Cx, Engine, Error, Result as RunResult, Signal, Workflow};

use crate::support::{ASK, GREET, Place, said};

const SLOW: Workflow<(), u32> = Workflow::named("slow");
const GO: Signal<u32> = Signal::named("go");

async fn slow(cx: Cx, (): ()) -> RunResult<u32> {
    cx.step("write", |tx| async move {
        tx.execute("CREATE TABLE IF NOT EXISTS parcel (id INTEGER)", ())
            .await?;
        tx.execute("INSERT INTO parcel VALUES (1)", ()).await?;
        Ok::<(), roundel::Failure>(())
    })
    .await?;
    let got = cx.wait(GO).await?;
    cx.step("again", |tx| async move {
        tx.execute("INSERT INTO parcel VALUES (2)", ()).await?;
        Ok::<(), roundel::Failure>(())
    })
    .await?;
    Ok(got)
}

async fn engine(path: &std::path::Path) -> Engine {
    let engine = Engine::open(path).register(SLOW, slow);
    engine.start().await.expect("an engine")
}

fn listed(place: &Place, db: &str) -> String {
    said(&mut place.command(&["runs", "list", "--json", "--db", db]))
        .ok()
        .out
}

#[tokio::test(flavor = "multi_thread")]
async fn g10_a_backup_is_made_while_the_engine_runs_and_put_back() {
    let place = Place::new().await;
    let worker = place.worker().await;
    let client = worker.client();
    let stop = Arc::new(AtomicBool::new(false));
    let busy = tokio::spawn({
        let stop = stop.clone();
        async move {
            while !stop.load(Ordering::Relaxed) {
                let mut run = client.start(GREET, &"Ada".to_owned()).await.unwrap();
                run.result().await.unwrap();
            }
        }
    });
    worker.start(ASK, &"why".to_owned()).key("k").await.unwrap();
    for number in 0..3 {
        let name = format!("copy-{number}.db");
        let told = place.run(&["backup", &name]).ok();
        for part in ["copying: ", "reading: ", "checking: "] {
            assert!(told.err.contains(part), "`{part}` is missing: {told:?}");
        }
        let mode = std::fs::metadata(place.folder.path().join(&name)).unwrap();
        assert_eq!(mode.permissions().mode() & 0o777, 0o600);
        for end in ["-wal", "-shm", ".part"] {
            assert!(
                !place.folder.path().join(format!("{name}{end}")).exists(),
                "{end}"
            );
        }
    }
    stop.store(true, Ordering::Relaxed);
    busy.await.unwrap();
    worker.shutdown().await;
    place.run(&["backup", "last.db"]).ok();
    // It is no database to work on, and can be checked as often as one likes.
    said(&mut place.command(&["runs", "list", "--db", "last.db"]))
        .fails(4, &["is a backup of", "runs.db", "roundel restore"]);
    let verified = said(&mut place.command(&["verify", "--db", "last.db"])).ok();
    assert!(verified.out.contains("sound"), "{verified:?}");
    let told = said(&mut place.command(&["restore", "last.db", "--db", "new.db", "--json"])).ok();
    assert_eq!(told.json()["sound"], true);
    assert_eq!(listed(&place, "new.db"), listed(&place, "runs.db"));
    let engine = Engine::open(place.folder.path().join("new.db"));
    let engine = engine
        .register(SLOW, slow)
        .start()
        .await
        .expect("an engine");
    assert_eq!(engine.run("k").await.unwrap().row.state.as_str(), "waiting");
    engine.shutdown().await;
    said(&mut place.command(&["verify", "--db", "new.db"])).ok();
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_replaced_and_nothing_is_left_behind() {
    let place = Place::new().await;
    std::fs::write(place.folder.path().join("diary.txt"), "dear diary").unwrap();
    place
        .run(&["backup", "diary.txt"])
        .fails(4, &["is there already", "diary.txt"]);
    let diary = std::fs::read_to_string(place.folder.path().join("diary.txt")).unwrap();
    assert_eq!(diary, "dear diary");
    place
        .run(&["backup", "./runs.db"])
        .fails(4, &["is there already"]);
    place
        .run(&["backup", "no/where.db"])
        .fails(4, &["no/where.db.part"]);
    std::fs::write(place.folder.path().join("b.db.part"), "").unwrap();
    place
        .run(&["backup", "b.db"])
        .fails(4, &["b.db.part", "delete it"]);
    place.run(&["backup", "a.db"]).ok();
    place
        .run(&["restore", "a.db"])
        .fails(4, &["is there already", "runs.db"]);
    // What is left of a database that was deleted would be taken for the new one's.
    std::fs::write(place.folder.path().join("n.db-wal"), "old").unwrap();
    let onto = ["restore", "a.db", "--db", "n.db"];
    said(&mut place.command(&onto)).fails(4, &["n.db-wal is there already"]);
    said(&mut place.command(&["restore", "runs.db", "--db", "c.db"]))
        .fails(4, &["not a backup", "twice", "--in-place"]);
    said(&mut place.command(&["restore", "diary.txt", "--db", "c.db"]))
        .fails(4, &["not an SQLite database"]);
    assert!(!place.folder.path().join("c.db").exists());
    assert!(!place.folder.path().join("c.db.part").exists());
    let folder = said(&mut place.command(&["backup", "x.db", "--db", "folder:objects"]));
    folder.fails(2, &["objects in a folder"]);
    let server = [
        "backup",
        "x.db",
        "--db",
        "postgres://nobody@127.0.0.1:1/none",
    ];
    said(&mut place.command(&server)).fails(2, &["pg_dump", "--in-place", "roundel move"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_wrong_with_a_database_is_told_of_its_copy() {
    let place = Place::new().await;
    place
        .run(&["start", "greet", "\"Bob\"", "--key", "bob"])
        .ok();
    place.sql("UPDATE roundel_run SET mail = 5 WHERE key = 'bob'");
    let told = place.run(&["backup", "a.db"]);
    assert_eq!(told.code, 1, "{told:?}");
    for part in ["inv2_no_lost_message", "not sound"] {
        assert!(told.out.contains(part), "`{part}` is missing: {told:?}");
    }
    // Of an older schema, the file alone can be checked: before a migration it is wanted most.
    place.sql("UPDATE roundel_run SET mail = 0 WHERE key = 'bob'");
    place.sql("UPDATE roundel_meta SET value = value - 1 WHERE name = 'schema'");
    let told = place.run(&["backup", "b.db"]).ok();
    assert!(told.out.contains("older than this program's"), "{told:?}");
}

/// An error says that the database was replaced, or restored.
#[track_caller]
fn refused<T: std::fmt::Debug>(result: Result<T, Error>, part: &str) {
    match result {
        Err(Error::Unusable(message)) if message.contains(part) => {}
        other => panic!("{other:?}"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn l7_workers_of_the_database_before_commit_nothing_to_the_restored_one() {
    let place = Place::empty();
    let (zombie, path) = (engine(&place.db()).await, place.db());
    zombie.start(SLOW, &()).key("k").await.unwrap();
    let waits = async || zombie.run("k").await.unwrap().row.state.as_str() == "waiting";
    while !waits().await {
        tokio::task::yield_now().await;
    }
    place.run(&["backup", "a.db"]).ok();
    // The database is lost, and put back under its name, while a worker lives on.
    for end in ["", "-wal", "-shm"] {
        let old = place.folder.path().join(format!("runs.db{end}"));
        let lost = place.folder.path().join(format!("lost.db{end}"));
        std::fs::rename(old, lost).unwrap();
    }
    place.run(&["restore", "a.db"]).ok();
    refused(
        zombie.signal("k", GO, &1).await,
        "was replaced by another file",
    );
    let heir = engine(&path).await;
    heir.signal("k", GO, &2).await.unwrap();
    let mut run = heir.start(SLOW, &()).key("k").await.unwrap();
    assert_eq!(run.result().await.unwrap(), 2);
    zombie.shutdown().await;
    heir.shutdown().await;
    place.run(&["verify"]).ok();
    let parcels = place.run(&["sql", "SELECT count(*) AS n FROM parcel"]).ok();
    assert_eq!(parcels.out, "n\n2\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn l7_a_database_that_was_put_back_otherwise_is_fenced_where_it_is() {
    let place = Place::empty();
    let path = place.db();
    fenced_in_place(&place, path.to_str().unwrap(), None).await;
    let told = place.run(&["restore", "--in-place"]);
    told.fails(2, &["--yes"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn l7_so_is_one_on_a_server() {
    let Some(schema) = roundel_testpg::schema() else {
        return;
    };
    let place = Place::empty();
    fenced_in_place(&place, &schema.address(), Some(schema.name())).await;
}

/// A worker has a run in hand and others in memory when its database is put back.
async fn fenced_in_place(place: &Place, db: &str, schema: Option<&str>) {
    let open = || match schema {
        Some(schema) => Engine::open(db).schema(schema.to_owned()),
        None => Engine::open(db),
    };
    let gate = Arc::new(tokio::sync::Semaphore::new(0));
    let held = gate.clone();
    let hold = move |cx: Cx, (): ()| {
        let held = held.clone();
        async move {
            cx.effect("hold", |_| async {
                held.acquire().await.expect("open").forget();
                Ok::<(), roundel::Failure>(())
            })
            .await?;
            Ok::<u32, roundel::Failure>(1)
        }
    };
    const HOLD: Workflow<(), u32> = Workflow::named("hold");
    let zombie = open().register(SLOW, slow).register(HOLD, hold.clone());
    let zombie = zombie.start().await.expect("an engine");
    zombie.start(SLOW, &()).key("waits").await.unwrap();
    zombie.start(HOLD, &()).key("works").await.unwrap();
    let is = async |key: &str, state: &str| {
        zombie.run(key.to_owned()).await.unwrap().row.state.as_str() == state
    };
    while !(is("waits", "waiting").await && is("works", "running").await) {
        tokio::task::yield_now().await;
    }
    let before = zombie.run("works").await.unwrap().row.epoch;
    let mut args = vec!["restore", "--in-place", "--yes", "--json", "--db", db];
    args.extend(schema.iter().flat_map(|name| ["--schema", name]));
    let told = said(&mut place.command(&args)).ok().json();
    assert_eq!(
        (&told["fenced"], &told["freed"]),
        (&true.into(), &1.into()),
        "{told}"
    );
    refused(
        zombie.signal("waits", GO, &1).await,
        "was restored from a backup",
    );
    refused(zombie.start(SLOW, &()).await, "was restored from a backup");
    // What it had in hand is finished by another, from where it stood.
    gate.add_permits(100);
    let heir = open().register(SLOW, slow).register(HOLD, hold);
    let heir = heir.start().await.expect("an engine");
    let mut run = heir.start(HOLD, &()).key("works").await.unwrap();
    assert_eq!(run.result().await.unwrap(), 1);
    heir.signal("waits", GO, &2).await.unwrap();
    let mut run = heir.start(SLOW, &()).key("waits").await.unwrap();
    assert_eq!(run.result().await.unwrap(), 2);
    let row = heir.run("works").await.unwrap().row;
    assert!(row.epoch > before + (1 << 32) && !row.suspect, "{row:?}");
    assert_eq!(zombie.metrics().runs_completed, 0);
    heir.shutdown().await;
    zombie.shutdown().await;
    let mut args = vec!["verify", "--db", db];
    args.extend(schema.iter().flat_map(|name| ["--schema", name]));
    said(&mut place.command(&args)).ok();
}

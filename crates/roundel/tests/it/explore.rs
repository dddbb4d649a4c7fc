//! Exploring users' tests.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use roundel::testkit::{World, explore};
use roundel::{Attempt, Client, Cx, EngineBuilder, Error, Failure, Result, Tx, Workflow};

/// A bank outside of the program: it survives its crashes.
#[derive(Clone, Default)]
struct Bank(Arc<Mutex<BTreeMap<String, usize>>>);

impl Bank {
    fn charge(&self, key: String) {
        *self.0.lock().unwrap().entry(key).or_default() += 1;
    }

    fn calls(&self) -> usize {
        self.0.lock().unwrap().values().sum()
    }

    fn charges(&self) -> usize {
        self.0.lock().unwrap().len()
    }
}

const ORDER: Workflow<String, u64> = Workflow::named("order");

async fn ship(tx: Tx, item: &str) -> Result<u64> {
    tx.execute("CREATE TABLE IF NOT EXISTS parcel (item TEXT)", ())
        .await?;
    Ok(tx
        .execute("INSERT INTO parcel VALUES ($1)", (item,))
        .await?)
}

fn shop(bank: Bank, key: fn(&Bank, &Attempt) -> String) -> impl Fn(EngineBuilder) -> EngineBuilder {
    move |engine| {
        let bank = bank.clone();
        engine.register(ORDER, move |cx: Cx, item: String| {
            let bank = bank.clone();
            async move {
                cx.effect("charge", |attempt| {
                    bank.charge(key(&bank, &attempt));
                    async { Ok::<_, Failure>(()) }
                })
                .await?;
                cx.sleep(Duration::from_secs(3600)).await;
                cx.step("ship", |tx| ship(tx, &item)).await
            }
        })
    }
}

/// An order is charged once, whatever the bank takes for the same charge.
async fn charged_once(world: World, key: fn(&Bank, &Attempt) -> String) -> Result<(), Error> {
    let bank = Bank::default();
    let kit = world.open(shop(bank.clone(), key)).await;
    let mut run = kit.start(ORDER, &"a lamp".to_owned()).await?;
    assert_eq!(run.result().await?, 1);
    assert_eq!(bank.charges(), 1, "charges for one order");
    let parcels = kit.sql(|tx| async move {
        let row = tx.query_one("SELECT count(*) FROM parcel", ()).await?;
        row.get::<i64>(0)
    });
    assert_eq!(parcels.await.expect("a table"), 1);
    Ok(())
}

/// By its key, as it should be.
fn right(_: &Bank, attempt: &Attempt) -> String {
    attempt.key()
}

/// Each call is another charge.
fn wrong(bank: &Bank, _: &Attempt) -> String {
    format!("charge {}", bank.charges())
}

#[test]
fn code_that_is_right_survives_every_fault() {
    let exploration = explore(|world| charged_once(world, right));
    // However slow the machine is.
    let report = exploration.limit(Duration::from_secs(600)).run();
    // Nothing, twice; six faults at each of seven requests; two at the attempt; hints; and 1,000.
    assert_eq!(
        (report.commit_points, report.attempts),
        (7, 1),
        "{report:?}"
    );
    assert!(report.schedules > 2 + 6 * 7 + 2 + 1000, "{report:?}");
    assert!(
        report.crashes > 500 && report.faults > 2000 && !report.cut_short,
        "{report:?}"
    );
}

#[tokio::test]
async fn it_can_be_explored_inside_a_runtime_too() {
    let report = explore(|world| charged_once(world, right))
        .schedules(0)
        .pairs(100);
    let report = report.run();
    assert!(report.schedules > 144 && report.faults > 200, "{report:?}");
}

#[test]
fn a_charge_without_its_key_is_found_with_one_fault_and_told() {
    let found = explore(|world| charged_once(world, wrong)).find();
    let broken = found.expect_err("it is charged twice");
    assert_eq!(broken.schedule(), "before4");
    let fault = "process 1 crashes before the commit that recorded effect `charge`, began sleep in \
                 `order` 1 is applied";
    assert_eq!(broken.faults(), [fault]);
    let told = broken.to_string();
    for line in [
        "assertion `left == right` failed: charges for one order",
        "e1  call: attempt 1 of effect `charge` of `order` 1\n",
        "recorded effect `charge`, began sleep in `order` 1  <== crash before it\n",
        "e2  call: attempt 1 of effect `charge` of `order` 1\n",
        "of workflow `order`, completed",
        "ROUNDEL_SEED=before4 cargo test explore::a_charge_without_its_key",
    ] {
        assert!(told.contains(line), "`{line}` is not in\n{told}");
    }
}

#[test]
fn a_schedule_is_played_again_exactly() {
    let told = |schedule: &str| {
        let exploration = explore(|world| charged_once(world, wrong)).only(schedule);
        let broken = exploration.find().expect_err("it is charged twice");
        assert_eq!(
            (broken.schedule(), broken.explored().schedules),
            (schedule.into(), 1)
        );
        broken.to_string()
    };
    for schedule in [
        "lost1",
        "before4",
        "after2-hint1-stall3-lost1",
        "late3-before4",
    ] {
        let first = told(schedule);
        assert_eq!(told(schedule), first);
    }
    let fine = explore(|world| charged_once(world, wrong))
        .only("after4")
        .run();
    assert_eq!((fine.schedules, fine.crashes), (1, 1));
}

#[test]
fn what_only_several_faults_bring_is_told_with_no_more_than_those() {
    // The bank forgives one call too many, not two.
    let forgiving = |bank: &Bank, _: &Attempt| format!("{}", bank.calls() / 2);
    let found = explore(|world| charged_once(world, forgiving)).find();
    let broken = found.expect_err("it is charged twice in the end");
    assert_eq!(broken.faults().len(), 2, "{broken}");
}

#[test]
fn what_is_not_a_schedule_says_how_one_looks() {
    let said = std::panic::catch_unwind(|| {
        explore(|world| charged_once(world, right))
            .only("bang")
            .run()
    });
    let said = said.expect_err("no schedule");
    let said = said.downcast_ref::<String>().expect("a text");
    assert!(said.contains("such as `after7-lost2`"), "{said}");
}

#[test]
fn a_test_that_differs_each_time_is_refused() {
    let plays = AtomicU32::new(0);
    let found = explore(|world: World| {
        let play = plays.fetch_add(1, Ordering::Relaxed);
        async move {
            let kit = world.open(shop(Bank::default(), right)).await;
            for _ in 0..play {
                kit.start(ORDER, &"a lamp".to_owned())
                    .await
                    .expect("it starts");
            }
        }
    });
    let broken = found.find().expect_err("the second play starts more");
    assert!(
        broken.why().contains("played twice, it is not the same"),
        "{broken}"
    );
    assert!(broken.to_string().contains("without any fault"), "{broken}");
}

#[test]
fn a_law_is_checked_after_every_commit_and_changes_nothing() {
    let found = explore(|world: World| async move {
        world.always("nothing is ever sent", |tx| async move {
            let made = tx.execute("CREATE TABLE IF NOT EXISTS parcel (item TEXT)", ());
            made.await.map_err(|error| error.to_string())?;
            let rows = tx.query("SELECT item FROM parcel", ()).await;
            match rows.map_err(|error| error.to_string())?.len() {
                0 => Ok(()),
                rows => Err(format!("{rows} sent")),
            }
        });
        charged_once(world, right).await
    });
    let broken = found.find().expect_err("it is sent");
    assert_eq!(
        broken.why(),
        "`nothing is ever sent` does not always hold: 1 sent"
    );
}

#[test]
fn a_run_that_is_parked_by_a_fault_alone_is_found() {
    const FICKLE: Workflow<(), ()> = Workflow::named("fickle");
    let found = explore(|world: World| async move {
        let starts = Arc::new(AtomicU32::new(0));
        let app = move |engine: EngineBuilder| {
            let starts = starts.clone();
            engine.register(FICKLE, move |cx: Cx, ()| {
                let name = format!("part {}", starts.fetch_add(1, Ordering::Relaxed));
                async move {
                    cx.effect(name, |_| async { Ok::<_, Failure>(()) }).await?;
                    cx.effect("end", |_| async { Ok::<_, Failure>(()) }).await
                }
            })
        };
        let kit = world.open(app).await;
        kit.start(FICKLE, &()).await.expect("it starts");
        kit.advance(Duration::from_secs(300)).await;
    });
    let broken = found.find().expect_err("it does not replay");
    assert!(
        broken.why().contains("parked that is not without faults"),
        "{broken}"
    );
    assert!(broken.why().contains("diverged"), "{broken}");
}

#[test]
fn a_request_is_made_again_after_a_crash_so_it_needs_a_key() {
    async fn ordered(world: World, key: Option<&'static str>) -> Result<(), Error> {
        let kit = world.open(shop(Bank::default(), right)).await;
        let order = |client: Client| async move {
            let start = client.start(ORDER, &"a lamp".to_owned());
            match key {
                Some(key) => start.key(key).await,
                None => start.await,
            }
        };
        kit.request(order).await?;
        kit.advance(Duration::from_secs(7200)).await;
        let runs = kit.runs().fetch().await?;
        assert_eq!(runs.items.len(), 1, "orders");
        Ok(())
    }
    explore(|world| ordered(world, Some("order-17")))
        .schedules(200)
        .run();
    let found = explore(|world| ordered(world, None)).find();
    let broken = found.expect_err("there are two orders");
    assert_eq!(broken.schedule(), "after3", "{broken}");
    let fault = "process 1 crashes after the commit that started `order` 1, began effect `charge`";
    assert_eq!(broken.faults(), [fault]);
}

#[test]
fn waiting_in_vain_and_going_on_for_ever_are_failures() {
    const HANGS: Workflow<(), ()> = Workflow::named("hangs");
    let hangs = |engine: EngineBuilder| {
        engine.register(HANGS, |cx: Cx, ()| async move {
            let hanging = |_| std::future::pending::<Result<()>>();
            cx.effect("hang", hanging).await
        })
    };
    let found = explore(|world: World| async move {
        let kit = world.open(hangs).await;
        let mut run = kit.start(HANGS, &()).await.expect("it starts");
        run.result().await
    });
    let broken = found.find().expect_err("it never ends");
    assert!(broken.why().contains("it comes to no end"), "{broken}");
    let nothing = explore(|_| async {}).find().expect_err("nothing is opened");
    assert!(nothing.why().contains("world.open(app)"), "{nothing}");
}

#[path = "page/broken.rs"]
#[allow(dead_code)]
mod broken;
#[path = "page/mended.rs"]
#[allow(dead_code)]
mod mended;

const PAGE: &str = include_str!("../../../../docs/guide/exploring.md");

#[test]
fn the_guide_shows_the_programs_and_what_they_print() {
    for program in [
        include_str!("page/broken.rs"),
        include_str!("page/mended.rs"),
    ] {
        assert!(
            PAGE.contains(program),
            "docs/guide/exploring.md differs from\n{program}"
        );
    }
    // As a program would print it: its thread is the main one.
    let explored = || {
        explore(broken::an_order_is_one_parcel)
            .find()
            .unwrap_err()
            .to_string()
    };
    let main = std::thread::Builder::new().name("main".into());
    let printed = main.spawn(explored).unwrap().join().unwrap();
    assert!(
        PAGE.contains(&printed),
        "docs/guide/exploring.md does not show\n{printed}"
    );
    mended::main();
}

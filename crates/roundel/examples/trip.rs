//! A saga: a workflow declared as a list of steps, each with how it is undone. The hotel is full
//! at first, and the step that asked for it handles that; when the payment fails in the end, all
//! that was booked is given back, newest first.

use roundel::{
    Cx, Ended, Engine, Failure, Next, Result, RunState, Saga, Topic, Tx, Visit, Workflow,
};
use serde::{Deserialize, Serialize};

#[derive(Clone, Debug, Serialize, Deserialize)]
struct Trip {
    traveller: String,
    budget: u32,
    cost: u32,
}

const TRIP: Workflow<Trip, Trip> = Workflow::named("trip");
const RESERVE: Workflow<String, String> = Workflow::named("reserve-room");
const ROOM_WANTED: Topic<String> = Topic::named("room-wanted");

const TABLE: &str = "CREATE TABLE IF NOT EXISTS booked (what TEXT PRIMARY KEY)";

async fn book(tx: &Tx, what: &str) -> Result<()> {
    tx.execute(TABLE, ()).await?;
    tx.execute("INSERT INTO booked VALUES (?1)", (what,))
        .await?;
    Ok(())
}

async fn give_back(tx: Tx, what: String) -> Result<()> {
    tx.execute("DELETE FROM booked WHERE what = ?1", (what.as_str(),))
        .await?;
    Ok(())
}

fn trip() -> Saga<Trip> {
    Saga::new()
        .step("flight", |tx: Tx, visit: Visit<Trip>| async move {
            let mut trip = visit.into_state();
            book(&tx, &format!("flight of {}", trip.traveller)).await?;
            trip.cost += 300;
            Ok::<_, Failure>(Next::go_on(trip))
        })
        .undo(|tx: Tx, trip: Trip| give_back(tx, format!("flight of {}", trip.traveller)))
        .step("hotel", |tx: Tx, visit: Visit<Trip>| async move {
            // Every workflow that subscribes runs; the next step waits for all of them.
            ROOM_WANTED.publish(&tx, &"the Grand".into())?;
            Ok::<_, Failure>(Next::go_on(visit.into_state()))
        })
        .on_child_failure(
            |tx: Tx, visit: Visit<Trip>, failed: Vec<Ended>| async move {
                match visit.iteration() {
                    1 => ROOM_WANTED.publish(&tx, &"the Station".into())?,
                    _ => return Err(failed[0].failure().cloned().expect("it failed")),
                }
                Ok(Next::go_on(visit.into_state()))
            },
        )
        .step("pay", |_: Tx, visit: Visit<Trip>| async move {
            let trip = visit.into_state();
            match trip.cost <= trip.budget {
                true => Ok(Next::go_on(trip)),
                false => Err(Failure::business("the card was declined")),
            }
        })
}

async fn reserve_room(cx: Cx, hotel: String) -> Result<String> {
    if hotel == "the Grand" {
        return Err(Failure::business("the Grand is full"));
    }
    let room = format!("room in {hotel} for run {}", cx.run());
    let reserved = cx.step("reserve", |tx: Tx| {
        let room = room.clone();
        async move { book(&tx, &room).await.map(|()| room) }
    });
    reserved.undo(give_back).await
}

#[tokio::main]
pub(crate) async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("trips.db");
    let engine = Engine::open(&path)
        .register(TRIP, trip().into_workflow())
        .register(RESERVE, reserve_room)
        .subscribe(ROOM_WANTED, RESERVE)
        .start()
        .await?;
    let plan = |traveller: &str, budget| Trip {
        traveller: traveller.into(),
        budget,
        cost: 0,
    };

    let done = engine
        .start(TRIP, &plan("Ada", 500))
        .await?
        .result()
        .await?;
    println!("Ada travels for {}", done.cost);

    let mut declined = engine.start(TRIP, &plan("Bob", 100)).await?;
    let failure = declined.result().await.expect_err("it costs too much");
    let state = engine.run(declined.id()).await?.row.state;
    assert_eq!(state, RunState::RolledBack);
    println!("Bob stays at home: {failure}");
    engine.shutdown().await;

    let booked: Vec<String> = {
        let database = rusqlite::Connection::open(&path)?;
        let mut all = database.prepare("SELECT what FROM booked ORDER BY what")?;
        let rows = all.query_map((), |row| row.get(0))?;
        rows.collect::<Result<_, _>>()?
    };
    println!("booked: {booked:?}");
    assert_eq!(
        booked.len(),
        2,
        "Ada's flight and room, and nothing of Bob's"
    );
    assert_eq!(booked[0], "flight of Ada");
    Ok(())
}

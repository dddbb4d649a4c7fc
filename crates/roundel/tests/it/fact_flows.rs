//! Facts that come in, explored: the real client, with every fault at every commit.

use roundel::testkit::World;
use roundel::{Arrival, Client, EngineBuilder, Error, Fact, Failure, Projection, RunState};

use crate::flows::holds;

const SAID: Fact<u64> = Fact::named("said");

fn app(engine: EngineBuilder) -> EngineBuilder {
    let talk = Projection::<Vec<u64>>::named("talk").fold(
        SAID,
        |_| vec!["talk".to_owned()],
        |talk, said| match *said {
            13 => Err(Failure::business("thirteen is not said here")),
            said => {
                let mut talk: Vec<u64> = talk.unwrap_or_default();
                talk.push(said);
                Ok(Some(talk))
            }
        },
    );
    engine.project(talk)
}

/// Two that need the third, one that cannot be recorded: queued, taken, each once.
async fn comes_in(world: World) -> Result<(), Error> {
    let kit = world.open(app).await;
    let arrivals = || {
        vec![
            Arrival::of(SAID, &2).id("b").needs("a"),
            Arrival::of(SAID, &13).id("x").needs("a"),
            Arrival::of(SAID, &3).id("c").needs("b"),
        ]
    };
    for number in 0..3 {
        let append = move |client: Client| async move {
            client.append(arrivals().swap_remove(number)).await
        };
        kit.request(append).await?;
    }
    let tick = |client: Client| async move { client.tick(client.now()).await };
    kit.request(tick).await?;
    let first =
        |client: Client| async move { client.handle_fact(Arrival::of(SAID, &1).id("a")).await };
    kit.request(first).await?;
    // Who crashed after the last that was needed had come left the others to the next tick.
    kit.request(tick).await?;
    let talk = |client: Client| async move { client.document::<Vec<u64>>("talk").await };
    let talk = kit.request(talk).await?.expect("something was said");
    assert_eq!(talk.value, [1, 2, 3]);
    let parked = |client: Client| async move { client.incoming(RunState::Parked, None, 10).await };
    assert_eq!(kit.request(parked).await?.items.len(), 1);
    let left = |client: Client| async move { client.incoming(RunState::Ready, None, 10).await };
    assert!(kit.request(left).await?.items.is_empty());
    Ok(())
}

#[test]
fn fa_06_every_fault_at_every_commit_of_facts_that_come_in() {
    holds(comes_in, 1);
}

#[test]
fn fa_06_every_fault_at_every_commit_of_facts_that_two_processes_take() {
    holds(comes_in, 2);
}

/// A projection follows, and is built anew: whatever breaks, no fact is missed or comes twice.
async fn follows(world: World) -> Result<(), Error> {
    let chain = || {
        Projection::<u64>::named("chain").following().fold(
            SAID,
            |_| vec!["chain".to_owned()],
            |chain, said| Ok(Some(chain.unwrap_or(1) * 31 + said)),
        )
    };
    let kit = world.open(move |engine| engine.project(chain())).await;
    let read = |client: Client| async move {
        client.catch_up().await?;
        client.document::<u64>("chain").await
    };
    let mut wanted = 1;
    for said in 1..=2_u64 {
        let id = format!("fact {said}");
        let record = move |client: Client| {
            let id = id.clone();
            async move { client.record(SAID, &said).id(id).await }
        };
        kit.request(record).await?;
        wanted = wanted * 31 + said;
        let chain = kit.request(read).await?.expect("something was said");
        assert_eq!(chain.value, wanted);
    }
    let rebuild = |client: Client| async move { client.rebuild("chain").await };
    kit.request(rebuild).await?;
    let chain = kit.request(read).await?.expect("something was said");
    assert_eq!(chain.value, wanted);
    Ok(())
}

#[test]
fn fa_13_every_fault_at_every_commit_of_a_projection_that_follows() {
    holds(follows, 1);
}

#[test]
fn fa_13_every_fault_at_every_commit_of_a_projection_that_two_processes_bring_further() {
    holds(follows, 2);
}

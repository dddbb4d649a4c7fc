//! Fan-out: a parent starts a child run for each part of its work and waits for all of them. The
//! children may run in other processes; each is retried, and survives, by itself.

use roundel::{Cx, Engine, Failure, Result, Workflow, future};

const REPORT: Workflow<Vec<String>, usize> = Workflow::named("report");
const COUNT_WORDS: Workflow<String, usize> = Workflow::named("count-words");

async fn report(cx: Cx, pages: Vec<String>) -> Result<usize> {
    // `future::try_join_all` polls in a fixed order, so that replay does the same.
    let children = pages.iter().map(|page| cx.child(COUNT_WORDS, page));
    let counts = future::try_join_all(children).await?;
    Ok(counts.into_iter().sum())
}

async fn count_words(cx: Cx, page: String) -> Result<usize> {
    cx.effect("count", |_| async {
        match page.split_whitespace().count() {
            0 => Err(Failure::business("the page is empty")),
            words => Ok(words),
        }
    })
    .await
}

#[tokio::main]
pub(crate) async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let folder = tempfile::tempdir()?;
    let engine = Engine::open(folder.path().join("report.db"))
        .register(REPORT, report)
        .register(COUNT_WORDS, count_words)
        .start()
        .await?;

    let mut pages: Vec<String> = (1..=100).map(|n| "word ".repeat(n)).collect();
    let mut run = engine.start(REPORT, &pages).await?;
    let words = run.result().await?;
    assert_eq!(words, 5050);
    let below = engine.children(&run, None, 1000).await?;
    assert_eq!(below.items.len(), 100);
    println!("100 children counted {words} words");

    // What a child fails with reaches its parent, which could handle it.
    pages.push(String::new());
    let failed = engine.start(REPORT, &pages).await?.result().await;
    let failed = failed.expect_err("one page is empty").to_string();
    assert!(failed.contains("the page is empty"), "{failed}");
    println!("with an empty page: {failed}");
    engine.shutdown().await;
    Ok(())
}

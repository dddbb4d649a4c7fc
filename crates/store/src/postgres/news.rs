//! News between processes: a notification after a commit, on a connection of its own, at most so
//! often; and an ear for those of others. A notification that is lost costs time only.
//!
//! Behind a proxy that gives each transaction another connection nobody can listen. Then the
//! counters of other processes are looked at: often while somebody waits, seldom at rest. A step
//! commits without its process's counter, so what it alone wakes elsewhere is left to the sweep.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use roundel_core::{RunId, Timestamp};
use sqlx::postgres::PgListener;

use super::link::{Link, values};
use super::open;
use super::shared::Shared;
use super::trouble::Trouble;
use crate::News;
use crate::cells::Cells;

/// What is committed within this time is told together.
const TOGETHER: Duration = Duration::from_millis(10);
/// How long to wait before the next try to connect.
const RECONNECT: Duration = Duration::from_millis(500);

/// Runs in one text.
const RUNS: usize = 200;

/// Looks are this far apart, while somebody waits and at rest.
const LOOKS: [Duration; 2] = [Duration::from_millis(100), Duration::from_secs(1)];

const OTHERS: &str = "SELECT coalesce(sum(batch), 0)::bigint, count(*) \
     FROM roundel_committer WHERE incarnation <> $1";
/// Nobody waits until it is on the disk: what it tells of is there already.
const NOTIFY: &str = "SELECT set_config('synchronous_commit', 'off', true), pg_notify($1, $2)";

fn channel(shared: &Shared) -> String {
    format!("roundel_{}", shared.options.schema)
}

/// Tells other processes of commits, until the store is closed.
pub(super) async fn tell(shared: Arc<Shared>) {
    let (channel, own) = (channel(&shared), own_name(&shared));
    let mut link: Option<Link> = None;
    loop {
        shared.news.notified().await;
        tokio::time::sleep(TOGETHER).await;
        let connected = match link.take() {
            Some(link) => Ok(link),
            None => open::connect(&shared.connect, shared.keeps).await,
        };
        let Ok(mut connected) = connected else {
            tokio::time::sleep(RECONNECT).await;
            shared.news.notify_one();
            continue;
        };
        let told = async {
            for text in texts(&own, &shared.take_news()) {
                connected
                    .all(NOTIFY, values![channel.as_str(), text])
                    .await?;
            }
            Ok::<_, Trouble>(())
        };
        if told.await.is_ok() {
            link = Some(connected);
        }
    }
}

/// Hears of commits of other processes, until the store is closed.
pub(super) async fn hear(shared: Arc<Shared>) {
    let (channel, own) = (channel(&shared), own_name(&shared));
    loop {
        let pool = sqlx::postgres::PgPoolOptions::new()
            .max_connections(1)
            .connect_lazy_with(shared.connect.clone());
        if let Ok(mut listener) = PgListener::connect_with(&pool).await
            && listener.listen(&channel).await.is_ok()
        {
            // What was told before is not heard: look.
            shared.listeners.others_committed();
            while let Ok(told) = listener.recv().await {
                match told.payload().split_once(' ') {
                    Some((by, _)) if by == own => {}
                    Some((_, text)) => match read(text) {
                        Some(news) => shared.listeners.others_brought(&news),
                        None => shared.listeners.others_committed(),
                    },
                    None => shared.listeners.others_committed(),
                }
            }
        }
        tokio::time::sleep(RECONNECT).await;
    }
}

/// Looks for commits of other processes, until the store is closed.
pub(super) async fn look(shared: Arc<Shared>) {
    let mut link: Option<Link> = None;
    let mut last = None;
    loop {
        let closely = shared.closely.load(Ordering::Relaxed);
        tokio::time::sleep(LOOKS[usize::from(!closely)]).await;
        let connected = match link.take() {
            Some(link) => Ok(link),
            None => open::connect(&shared.connect, shared.keeps).await,
        };
        let Ok(mut connected) = connected else {
            tokio::time::sleep(RECONNECT).await;
            continue;
        };
        let Ok(seen) = others(&shared, &mut connected).await else {
            continue;
        };
        link = Some(connected);
        if last.replace(seen) != Some(seen) {
            shared.listeners.others_committed();
        }
    }
}

/// What other processes have committed, as numbers that change with it.
async fn others(shared: &Shared, link: &mut Link) -> Result<(i64, i64), Trouble> {
    link.run(&shared.begin.read).await?;
    let rows = link.all(OTHERS, values![shared.incarnation]).await?;
    link.run("COMMIT").await?;
    let number = |column| rows.first().map_or(Ok(None), |row| row.int(column));
    Ok((
        number(0)?.unwrap_or_default(),
        number(1)?.unwrap_or_default(),
    ))
}

fn own_name(shared: &Shared) -> String {
    uuid::Uuid::from_bytes(shared.incarnation.0).to_string()
}

/// News as others are told them: by whom, then words. One text can be 8,000 bytes long.
fn texts(own: &str, news: &News) -> Vec<String> {
    let mut first = own.to_owned();
    if let Some(at) = news.ready {
        first.push_str(&format!(" ready={}", at.0));
    }
    if news.mail {
        first.push_str(" mail");
    }
    if news.facts {
        first.push_str(" facts");
    }
    let mut texts = vec![first];
    for runs in news.at_rest.chunks(RUNS) {
        let ids = runs.iter().map(|run| run.0.simple().to_string());
        texts.push(format!("{own} rest={}", ids.collect::<String>()));
    }
    texts.retain(|text| text != own);
    texts
}

/// What such a text says; none if another version wrote it.
fn read(text: &str) -> Option<News> {
    let mut news = News::default();
    for word in text.split(' ') {
        match word.split_once('=') {
            None if word == "mail" => news.mail = true,
            None if word == "facts" => news.facts = true,
            Some(("ready", at)) => news.ready = Some(Timestamp(at.parse().ok()?)),
            Some(("rest", ids)) => {
                for id in ids.as_bytes().chunks(32) {
                    news.at_rest
                        .push(RunId(uuid::Uuid::try_parse_ascii(id).ok()?));
                }
            }
            _ => return None,
        }
    }
    Some(news)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn news_are_read_as_they_were_told() {
        let run = |number| RunId(uuid::Uuid::from_u128(number));
        let news = News {
            ready: Some(Timestamp(-7)),
            mail: true,
            facts: true,
            at_rest: (0..2 * RUNS as u128 + 1).map(run).collect(),
        };
        let texts = texts("me", &news);
        assert!(texts.iter().all(|text| text.len() < 8_000));
        let mut heard = News::default();
        for text in &texts {
            let part = read(text.strip_prefix("me ").unwrap()).unwrap();
            heard.ready = heard.ready.or(part.ready);
            heard.mail |= part.mail;
            heard.facts |= part.facts;
            heard.at_rest.extend(part.at_rest);
        }
        assert_eq!(heard, news);
        assert_eq!(super::texts("me", &News::default()), [""; 0]);
        assert_eq!(read("something=else"), None);
        assert_eq!(read("rest=xyz"), None);
    }
}

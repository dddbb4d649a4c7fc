//! Writes messages, who waits for them, and the keys under which things are found.

use std::collections::BTreeSet;

use roundel_core::{
    Changes, KeyId, KeyRow, MailId, MailRow, OfferId, OfferRow, Rows, Taken, WaitId, WaitRow, Write,
};

use super::{encoded, parted};
use crate::cells::number;
use crate::postgres::link::{Link, arrays};
use crate::postgres::trouble::Trouble;
use crate::postgres::values::Id;

const MAIL_PUT: &str = "INSERT INTO roundel_mail \
     (run, name, number, execution, call, body, at, policy, expires_at, parked_at) \
     SELECT * FROM unnest($1::uuid[], $2::text[], $3::bigint[], $4::bigint[], $5::bigint[], \
     $6::bytea[], $7::bigint[], $8::smallint[], $9::bigint[], $10::bigint[]) \
     ON CONFLICT (run, name, number) DO UPDATE SET \
     execution = excluded.execution, call = excluded.call, body = excluded.body, \
     at = excluded.at, policy = excluded.policy, expires_at = excluded.expires_at, \
     parked_at = excluded.parked_at";
const MAIL_DELETE: &str = "DELETE FROM roundel_mail AS mail \
     USING unnest($1::uuid[], $2::text[], $3::bigint[]) AS old (run, name, number) \
     WHERE mail.run = old.run AND mail.name = old.name AND mail.number = old.number";
const WAIT_INSERT: &str = "INSERT INTO roundel_wait \
     (run, name, call, place, taken_mail, taken_offer, namespace) \
     SELECT * FROM unnest($1::uuid[], $2::text[], $3::bigint[], $4::bigint[], $5::bigint[], \
     $6::bigint[], $7::text[])";
const WAIT_UPDATE: &str = "UPDATE roundel_wait AS wait SET place = new.place, \
     taken_mail = new.taken_mail, taken_offer = new.taken_offer \
     FROM unnest($1::uuid[], $2::text[], $3::bigint[], $4::bigint[], $5::bigint[], \
     $6::bigint[]) AS new (run, name, call, place, taken_mail, taken_offer) \
     WHERE wait.run = new.run AND wait.name = new.name AND wait.call = new.call";
const WAIT_DELETE: &str = "DELETE FROM roundel_wait AS wait \
     USING unnest($1::uuid[], $2::text[], $3::bigint[]) AS old (run, name, call) \
     WHERE wait.run = old.run AND wait.name = old.name AND wait.call = old.call";
const GATE_PUT: &str = "INSERT INTO roundel_gate (namespace, name, waiters, offers) \
     SELECT * FROM unnest($1::text[], $2::text[], $3::bigint[], $4::bigint[]) \
     ON CONFLICT (namespace, name) \
     DO UPDATE SET waiters = excluded.waiters, offers = excluded.offers";
const GATE_DELETE: &str = "DELETE FROM roundel_gate AS gate \
     USING unnest($1::text[], $2::text[]) AS old (namespace, name) \
     WHERE gate.namespace = old.namespace AND gate.name = old.name";
const OFFER_PUT: &str = "INSERT INTO roundel_offer \
     (namespace, name, place, payload, taken_by, at) \
     SELECT * FROM unnest($1::text[], $2::text[], $3::bigint[], $4::bytea[], $5::uuid[], \
     $6::bigint[]) ON CONFLICT (namespace, name, place) \
     DO UPDATE SET taken_by = excluded.taken_by";
const OFFER_DELETE: &str = "DELETE FROM roundel_offer AS offer \
     USING unnest($1::text[], $2::text[], $3::bigint[]) AS old (namespace, name, place) \
     WHERE offer.namespace = old.namespace AND offer.name = old.name \
     AND offer.place = old.place";
const KEY_PUT: &str = "INSERT INTO roundel_key (namespace, kind, key, run, digest, sent) \
     SELECT * FROM unnest($1::text[], $2::text[], $3::text[], $4::uuid[], $5::bytea[], \
     $6::bytea[]) ON CONFLICT (namespace, kind, key) \
     DO UPDATE SET run = excluded.run, digest = excluded.digest, sent = excluded.sent";
const KEY_DELETE: &str = "DELETE FROM roundel_key AS found \
     USING unnest($1::text[], $2::text[], $3::text[]) AS old (namespace, kind, key) \
     WHERE found.namespace = old.namespace AND found.kind = old.kind AND found.key = old.key";
const WATCH_INSERT: &str = "INSERT INTO roundel_watch (watched, watcher, execution, call) \
     SELECT * FROM unnest($1::uuid[], $2::uuid[], $3::bigint[], $4::bigint[]) \
     ON CONFLICT DO NOTHING";
const WATCH_DELETE: &str = "DELETE FROM roundel_watch AS watch \
     USING unnest($1::uuid[], $2::uuid[], $3::bigint[], $4::bigint[]) \
     AS old (watched, watcher, execution, call) \
     WHERE watch.watched = old.watched AND watch.watcher = old.watcher \
     AND watch.execution = old.execution AND watch.call = old.call";

pub(super) async fn all(
    link: &mut Link,
    changes: &Changes,
    rows: &Rows,
    empty: &mut BTreeSet<KeyId>,
) -> Result<(), Trouble> {
    mail(link, &changes.mail).await?;
    waits(link, &changes.waits, rows).await?;
    gates(link, changes).await?;
    offers(link, &changes.offers).await?;
    keys(link, &changes.keys, empty).await?;
    watches(link, changes).await
}

async fn mail(link: &mut Link, writes: &[(MailId, Write<MailRow>)]) -> Result<(), Trouble> {
    let name = |id: &MailId| {
        id.name
            .as_ref()
            .map_or(String::new(), |name| name.to_string())
    };
    let (put, deleted) = parted(writes);
    if !put.is_empty() {
        let values = arrays![put; (id, row) =>
            Id::from(id.run), name(id), number(id.number),
            row.answers.map(|answers| i64::from(answers.0)),
            row.answers.map(|answers| i64::from(answers.1)), encoded(&row.body), row.at.0,
            i16::from(row.policy.number()), row.expires_at.map(|at| at.0),
            row.parked_at.map(|at| at.0)];
        link.execute(MAIL_PUT, values).await?;
    }
    if !deleted.is_empty() {
        let values = arrays![deleted; id => Id::from(id.run), name(id), number(id.number)];
        link.execute(MAIL_DELETE, values).await?;
    }
    Ok(())
}

async fn waits(
    link: &mut Link,
    writes: &[(WaitId, Write<WaitRow>)],
    rows: &Rows,
) -> Result<(), Trouble> {
    let mail = |row: &WaitRow| match row.taken {
        Some(Taken::Mail(mail)) => Some(number(mail)),
        _ => None,
    };
    let offer = |row: &WaitRow| match row.taken {
        Some(Taken::Offer(place)) => Some(number(place)),
        _ => None,
    };
    let namespace = |id: &WaitId| {
        let run = rows.run(id.run).expect("a new wait's run is here");
        rows.lane(run.lane).namespace.as_str()
    };
    let (mut new, mut changed, mut gone) = (Vec::new(), Vec::new(), Vec::new());
    for (id, write) in writes {
        match write {
            Write::Insert(row) => new.push((id, row)),
            Write::Update(row) => changed.push((id, row)),
            Write::Delete => gone.push(id),
        }
    }
    if !new.is_empty() {
        let values = arrays![new; (id, row) =>
            Id::from(id.run), id.name.as_str(), i64::from(id.call), row.place.map(number),
            mail(row), offer(row), namespace(id)];
        link.execute(WAIT_INSERT, values).await?;
    }
    if !changed.is_empty() {
        let values = arrays![changed; (id, row) =>
            Id::from(id.run), id.name.as_str(), i64::from(id.call), row.place.map(number),
            mail(row), offer(row)];
        link.execute(WAIT_UPDATE, values).await?;
    }
    if !gone.is_empty() {
        let values = arrays![gone; id => Id::from(id.run), id.name.as_str(), i64::from(id.call)];
        link.execute(WAIT_DELETE, values).await?;
    }
    Ok(())
}

async fn gates(link: &mut Link, changes: &Changes) -> Result<(), Trouble> {
    let (put, deleted) = parted(&changes.gates);
    if !put.is_empty() {
        let values = arrays![put; (id, row) =>
            id.namespace.as_str(), id.name.as_str(), number(row.waiters), number(row.offers)];
        link.execute(GATE_PUT, values).await?;
    }
    if !deleted.is_empty() {
        let values = arrays![deleted; id => id.namespace.as_str(), id.name.as_str()];
        link.execute(GATE_DELETE, values).await?;
    }
    Ok(())
}

async fn offers(link: &mut Link, writes: &[(OfferId, Write<OfferRow>)]) -> Result<(), Trouble> {
    let (put, deleted) = parted(writes);
    if !put.is_empty() {
        let values = arrays![put; (id, row) =>
            id.gate.namespace.as_str(), id.gate.name.as_str(), number(id.place),
            row.payload.as_str().as_bytes(), row.taken_by.map(Id::from), row.at.0];
        link.execute(OFFER_PUT, values).await?;
    }
    if !deleted.is_empty() {
        let values = arrays![deleted; id =>
            id.gate.namespace.as_str(), id.gate.name.as_str(), number(id.place)];
        link.execute(OFFER_DELETE, values).await?;
    }
    Ok(())
}

async fn keys(
    link: &mut Link,
    writes: &[(KeyId, Write<KeyRow>)],
    empty: &mut BTreeSet<KeyId>,
) -> Result<(), Trouble> {
    let (put, deleted) = parted(writes);
    if !put.is_empty() {
        empty.retain(|key| put.iter().all(|(id, _)| *id != key));
        let values = arrays![put; (id, row) =>
            id.namespace.as_str(), id.kind.as_str(), id.key.as_str(), row.run.map(Id::from),
            row.digest.to_be_bytes().to_vec(), row.sent.as_ref().map(encoded)];
        link.execute(KEY_PUT, values).await?;
    }
    delete_keys(link, &deleted).await
}

pub(super) async fn delete_keys(link: &mut Link, keys: &[&KeyId]) -> Result<(), Trouble> {
    if !keys.is_empty() {
        let values = arrays![keys; id =>
            id.namespace.as_str(), id.kind.as_str(), id.key.as_str()];
        link.execute(KEY_DELETE, values).await?;
    }
    Ok(())
}

async fn watches(link: &mut Link, changes: &Changes) -> Result<(), Trouble> {
    let (put, deleted) = parted(&changes.watches);
    if !put.is_empty() {
        let values = arrays![put; ((watched, watcher, execution, call), ()) =>
            Id::from(*watched), Id::from(*watcher), i64::from(*execution), i64::from(*call)];
        link.execute(WATCH_INSERT, values).await?;
    }
    if !deleted.is_empty() {
        let values = arrays![deleted; (watched, watcher, execution, call) =>
            Id::from(*watched), Id::from(*watcher), i64::from(*execution), i64::from(*call)];
        link.execute(WATCH_DELETE, values).await?;
    }
    Ok(())
}

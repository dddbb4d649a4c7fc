//! The raw limit of the machine: how fast one durable writer is when nothing decides, over SQLite
//! or on a PostgreSQL server.
//!
//! The tables and the order of writes are those of a journal of interleaved runs, reduced to the
//! two statements that no engine can avoid. An engine's throughput on the same disk,
//! divided by `rows_per_second`, says how much the engine itself costs.
//!
//! Everything is written to a fresh folder, or schema, which is removed afterwards, also after an
//! error. Nothing is tuned beyond `synchronous=FULL`, so that the limit stays honest.

pub(crate) mod server;

use std::fs::File;
use std::io::{self, Seek, Write};
use std::path::Path;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use rusqlite::{Connection, Statement, params};
use serde::Serialize;

use crate::ground::{Ground, Target};
use crate::percentile::Sorted;

/// Rows written in one transaction.
const BATCH: usize = 100;
/// Runs that take turns; the next wave begins when all of them have had their rounds.
const LIVE_RUNS: u64 = 1000;
const ROUNDS_PER_RUN: u64 = 5;
const PAYLOAD: [u8; 100] = [b'r'; 100];
/// Ids share their time stamp in groups of this size, as they do in a busy engine.
const RUNS_PER_MILLISECOND: u64 = 50;

const BLOCK: [u8; 4096] = [b'r'; 4096];
/// The file that is synced grows to 64 MiB at most; by then the latencies are known.
const MAX_APPENDS: usize = 16_384;

const OPEN: &str = "PRAGMA journal_mode = WAL; \
    PRAGMA synchronous = FULL; \
    PRAGMA temp_store = MEMORY; \
    CREATE TABLE journal (run BLOB NOT NULL, seq INTEGER NOT NULL, payload BLOB NOT NULL, \
        PRIMARY KEY (run, seq)) WITHOUT ROWID; \
    CREATE TABLE run (id BLOB NOT NULL PRIMARY KEY, state INTEGER NOT NULL, \
        head INTEGER NOT NULL, changed INTEGER NOT NULL) WITHOUT ROWID;";
const APPEND: &str = "INSERT INTO journal (run, seq, payload) VALUES (?1, ?2, ?3)";
const START: &str = "INSERT INTO run (id, state, head, changed) VALUES (?1, 0, ?2, ?3)";
const ADVANCE: &str = "UPDATE run SET state = 1, head = ?2, changed = ?3 WHERE id = ?1";

/// What the machine can do at most. Latencies are in microseconds.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Limit {
    /// Journal rows per second, each with its run row, in durable batches of a hundred.
    pub rows_per_second: f64,
    /// The `COMMIT` of one batch, which makes it durable.
    pub commit_p50_us: f64,
    /// Over a file: appending 4 KiB to it and syncing its data.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fdatasync_p50_us: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fdatasync_p99_us: Option<f64>,
    /// On a server: one row inserted and committed, there and back.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub round_trip_p50_us: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub round_trip_p99_us: Option<f64>,
}

/// Why the limit could not be measured: in both cases the folder does not allow it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    #[error("a file for the measurement could not be written: {0}; choose a folder with space")]
    File(#[from] io::Error),
    #[error("the database for the measurement failed: {0}; choose a folder on a local disk")]
    Database(#[from] rusqlite::Error),
}

/// Measures for about `time`: a quarter of it goes to the disk alone, or to round trips, the rest
/// to batches. At least one sample of each is taken, however short the time.
///
/// # Errors
/// When the folder or the server cannot be used.
pub async fn measure(target: &Target, time: Duration) -> Result<Limit, crate::Error> {
    Ground::with(target, "limit", async |ground| match ground {
        Ground::Folder(folder) => Ok(tokio::task::block_in_place(|| {
            on_disk(folder.path(), time)
        })?),
        Ground::Server { url, .. } => Ok(on_server(url, &ground.schema("raw"), time).await?),
    })
    .await
}

async fn on_server(url: &str, schema: &str, time: Duration) -> Result<Limit, sqlx::Error> {
    let mut server = server::Server::open(url, schema).await?;
    let mut round_trips = vec![server.round_trip().await?];
    let start = Instant::now();
    while start.elapsed() < time / 4 {
        round_trips.push(server.round_trip().await?);
    }
    let written = server.write_for(time - time / 4).await?;
    let round_trips = Sorted::new(round_trips);
    Ok(Limit {
        rows_per_second: written.rows_per_second,
        commit_p50_us: percentile(&written.commits_us, 50.0),
        fdatasync_p50_us: None,
        fdatasync_p99_us: None,
        round_trip_p50_us: Some(percentile(&round_trips, 50.0)),
        round_trip_p99_us: Some(percentile(&round_trips, 99.0)),
    })
}

fn on_disk(folder: &Path, time: Duration) -> Result<Limit, Error> {
    let disk_time = time / 4;
    let mut disk = Disk::open(&folder.join("append"))?;
    let mut syncs = vec![disk.sync()?];
    let start = Instant::now();
    while start.elapsed() < disk_time && syncs.len() < MAX_APPENDS {
        syncs.push(disk.sync()?);
    }
    let mut rows = Rows::open(&folder.join("rows.db"))?;
    let written = rows.write_for(time - disk_time)?;
    let syncs = Sorted::new(syncs);
    Ok(Limit {
        rows_per_second: written.rows_per_second,
        commit_p50_us: percentile(&written.commits_us, 50.0),
        fdatasync_p50_us: Some(percentile(&syncs, 50.0)),
        fdatasync_p99_us: Some(percentile(&syncs, 99.0)),
        round_trip_p50_us: None,
        round_trip_p99_us: None,
    })
}

fn percentile(samples: &Sorted, percent: f64) -> f64 {
    samples
        .percentile(percent)
        .expect("every measurement takes at least one sample")
}

/// The disk alone.
#[derive(Debug)]
pub struct Disk {
    file: File,
    appends: usize,
}

impl Disk {
    /// Over a new file.
    pub fn open(path: &Path) -> Result<Disk, Error> {
        let file = File::create_new(path)?;
        Ok(Disk { file, appends: 0 })
    }

    /// Appends a block and syncs its data: how long that took, in microseconds.
    pub fn sync(&mut self) -> Result<f64, Error> {
        if self.appends == MAX_APPENDS {
            self.file.rewind()?;
            self.file.set_len(0)?;
            self.appends = 0;
        }
        self.appends += 1;
        let began = Instant::now();
        self.file.write_all(&BLOCK)?;
        self.file.sync_data()?;
        Ok(microseconds(began.elapsed()))
    }
}

/// The durable writer of rows, which can be stopped and go on.
#[derive(Debug)]
pub struct Rows {
    connection: Connection,
    turn: u64,
    epoch: u64,
}

/// What [`Rows`] wrote in one go.
#[derive(Debug)]
pub struct Written {
    /// Journal rows per second, each with its run row.
    pub rows_per_second: f64,
    /// Each `COMMIT`, in microseconds.
    pub commits_us: Sorted,
}

impl Rows {
    /// Over a new database.
    pub fn open(path: &Path) -> Result<Rows, Error> {
        let connection = Connection::open(path)?;
        connection.execute_batch(OPEN)?;
        Ok(Rows {
            connection,
            turn: 0,
            epoch: milliseconds_since_1970(),
        })
    }

    /// Writes batches for so long, one at least.
    pub fn write_for(&mut self, time: Duration) -> Result<Written, Error> {
        let connection = &self.connection;
        let mut writer = Writer::new(connection, self.epoch)?;
        let mut commits = Vec::new();
        let start = Instant::now();
        loop {
            connection.execute_batch("BEGIN IMMEDIATE")?;
            for _ in 0..BATCH {
                writer.write(&Round::nth(self.turn))?;
                self.turn += 1;
            }
            let began = Instant::now();
            connection.execute_batch("COMMIT")?;
            commits.push(microseconds(began.elapsed()));
            let elapsed = start.elapsed();
            if elapsed >= time {
                let rows = (commits.len() * BATCH) as f64;
                return Ok(Written {
                    rows_per_second: rows / elapsed.as_secs_f64(),
                    commits_us: Sorted::new(commits),
                });
            }
        }
    }
}

/// One run's turn: the run, counted from zero over all waves, and which of its rounds it is.
#[derive(Debug, PartialEq, Eq)]
struct Round {
    run: u64,
    seq: u64,
}

impl Round {
    /// Every live run has its first round, then every one its second, until the wave is over.
    fn nth(turn: u64) -> Self {
        let (pass, slot) = (turn / LIVE_RUNS, turn % LIVE_RUNS);
        let wave = pass / ROUNDS_PER_RUN;
        Round {
            run: wave * LIVE_RUNS + slot,
            seq: pass % ROUNDS_PER_RUN + 1,
        }
    }
}

struct Writer<'a> {
    append: Statement<'a>,
    start: Statement<'a>,
    advance: Statement<'a>,
    /// Milliseconds since 1970 when the measurement began; the ids count on from here.
    epoch: u64,
}

impl<'a> Writer<'a> {
    fn new(connection: &'a Connection, epoch: u64) -> Result<Self, Error> {
        Ok(Writer {
            append: connection.prepare(APPEND)?,
            start: connection.prepare(START)?,
            advance: connection.prepare(ADVANCE)?,
            epoch,
        })
    }

    fn write(&mut self, round: &Round) -> Result<(), Error> {
        let id = run_id(self.epoch, round.run);
        let seq = round.seq as i64;
        let changed = self.epoch as i64 + seq;
        self.append.execute(params![id, seq, PAYLOAD])?;
        let run = if round.seq == 1 {
            &mut self.start
        } else {
            &mut self.advance
        };
        let written = run.execute(params![id, seq, changed])?;
        assert_eq!(written, 1, "round {round:?} has exactly one run row");
        Ok(())
    }
}

/// An id in the form of a UUIDv7: milliseconds first, then bits without order. The bits come from
/// the number of the run, so that two measurements write the same pattern.
fn run_id(epoch: u64, run: u64) -> [u8; 16] {
    let milliseconds = u128::from(epoch + run / RUNS_PER_MILLISECOND);
    let (high, low) = (
        u128::from(scramble(2 * run)),
        u128::from(scramble(2 * run + 1)),
    );
    let version = 0x7_u128;
    let variant = 0b10_u128;
    let id = milliseconds << 80
        | version << 76
        | (high & 0xfff) << 64
        | variant << 62
        | low & ((1 << 62) - 1);
    id.to_be_bytes()
}

/// The finalizer of SplitMix64: every input has its own output, and neighbours look unrelated.
fn scramble(input: u64) -> u64 {
    let mut value = input.wrapping_add(0x9e37_79b9_7f4a_7c15);
    value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}

fn milliseconds_since_1970() -> u64 {
    let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH);
    since_1970.unwrap_or_default().as_millis() as u64
}

fn microseconds(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e6
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::fs;

    use super::*;

    fn folder(path: &Path) -> Target {
        Target::Folder(path.to_owned())
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_measurement_fills_every_field_and_leaves_nothing_behind() {
        let dir = tempfile::tempdir().unwrap();
        let limit = measure(&folder(dir.path()), Duration::from_millis(40)).await;
        let limit = limit.unwrap();
        assert!(limit.rows_per_second > 0.0);
        assert!(limit.fdatasync_p50_us > Some(0.0));
        assert!(limit.fdatasync_p99_us >= limit.fdatasync_p50_us);
        assert!(limit.commit_p50_us > 0.0);
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn no_time_at_all_still_takes_one_sample() {
        let dir = tempfile::tempdir().unwrap();
        let limit = measure(&folder(dir.path()), Duration::ZERO).await.unwrap();
        assert_eq!(limit.fdatasync_p50_us, limit.fdatasync_p99_us);
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_missing_folder_is_an_error_of_files() {
        let dir = tempfile::tempdir().unwrap();
        let missing = folder(&dir.path().join("missing"));
        let result = measure(&missing, Duration::ZERO).await;
        assert!(matches!(result, Err(crate::Error::Folder(_))));
    }

    #[test]
    fn a_wave_gives_each_of_its_runs_every_round_in_turn() {
        assert_eq!(Round::nth(0), Round { run: 0, seq: 1 });
        assert_eq!(Round::nth(LIVE_RUNS), Round { run: 0, seq: 2 });
        let wave = LIVE_RUNS * ROUNDS_PER_RUN;
        assert_eq!(
            Round::nth(wave - 1),
            Round {
                run: LIVE_RUNS - 1,
                seq: ROUNDS_PER_RUN
            }
        );
        assert_eq!(
            Round::nth(wave),
            Round {
                run: LIVE_RUNS,
                seq: 1
            }
        );
    }

    #[test]
    fn what_is_written_is_what_is_counted() {
        let connection = Connection::open_in_memory().unwrap();
        connection.execute_batch(OPEN).unwrap();
        let mut writer = Writer::new(&connection, 1_700_000_000_000).unwrap();
        for turn in 0..LIVE_RUNS * ROUNDS_PER_RUN + 1 {
            writer.write(&Round::nth(turn)).unwrap();
        }
        let count = |sql| {
            connection
                .query_row(sql, [], |row| row.get::<_, u32>(0).map(u64::from))
                .unwrap()
        };
        assert_eq!(
            count("SELECT count(*) FROM journal"),
            LIVE_RUNS * ROUNDS_PER_RUN + 1
        );
        assert_eq!(count("SELECT count(*) FROM run"), LIVE_RUNS + 1);
        assert_eq!(
            count("SELECT count(*) FROM run WHERE head = 5 AND state = 1"),
            LIVE_RUNS
        );
    }

    #[test]
    fn a_writer_that_goes_on_writes_what_comes_next() {
        let dir = tempfile::tempdir().unwrap();
        let mut rows = Rows::open(&dir.path().join("rows.db")).unwrap();
        for slices in 1..=3 {
            let written = rows.write_for(Duration::ZERO).unwrap();
            assert!(written.rows_per_second > 0.0);
            assert_eq!(rows.turn, slices * BATCH as u64);
        }
    }

    #[test]
    fn the_database_is_durable_at_every_commit() {
        let dir = tempfile::tempdir().unwrap();
        let connection = Connection::open(dir.path().join("rows.db")).unwrap();
        connection.execute_batch(OPEN).unwrap();
        let text = |sql| {
            connection
                .query_row(sql, [], |row| row.get::<_, String>(0))
                .unwrap()
        };
        let number = |sql| {
            connection
                .query_row(sql, [], |row| row.get::<_, i64>(0))
                .unwrap()
        };
        assert_eq!(text("PRAGMA journal_mode"), "wal");
        assert_eq!(number("PRAGMA synchronous"), 2, "2 is FULL");
    }

    #[test]
    fn ids_are_distinct_ordered_by_time_and_marked_as_version_seven() {
        let ids: Vec<_> = (0..1000)
            .map(|run| run_id(1_700_000_000_000, run))
            .collect();
        assert_eq!(ids.iter().collect::<BTreeSet<_>>().len(), ids.len());
        assert!(ids.windows(2).all(|pair| pair[0][..6] <= pair[1][..6]));
        assert!(ids.iter().all(|id| id[6] >> 4 == 7 && id[8] >> 6 == 0b10));
    }
}

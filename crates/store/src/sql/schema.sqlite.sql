-- Runs, what happened in them, and what waits for them.
--
-- One row per round holds the entries of that round as a JSON array; the view `roundel_entry`
-- unpacks them. Ids are sixteen bytes, times are microseconds since 1970 in UTC. Nothing here
-- refers to another table by a foreign key: the rows are written by one program, and what the keys
-- would check is checked by `roundel verify`.

CREATE TABLE roundel_meta (
    name  TEXT NOT NULL PRIMARY KEY,
    value INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- A small number for what can be run: it stands first in the index that schedules.
CREATE TABLE roundel_lane (
    id        INTEGER NOT NULL PRIMARY KEY,
    namespace TEXT NOT NULL CHECK (octet_length(namespace) BETWEEN 1 AND 256),
    workflow  TEXT NOT NULL CHECK (octet_length(workflow) BETWEEN 1 AND 256),
    version   INTEGER NOT NULL CHECK (version >= 0),
    UNIQUE (namespace, workflow, version)
) STRICT;

CREATE TABLE roundel_run (
    id               BLOB NOT NULL PRIMARY KEY CHECK (length(id) = 16),
    lane             INTEGER NOT NULL,
    -- Not `IN`, for which SQLite would fill a table of its own at every update.
    state            TEXT NOT NULL CHECK (
        state = 'ready' OR state = 'running' OR state = 'waiting' OR state = 'rolling_back'
        OR state = 'parked' OR state = 'completed' OR state = 'failed' OR state = 'rolled_back'
        OR state = 'rollback_failed' OR state = 'cancelled'),
    priority         INTEGER NOT NULL,
    execution        INTEGER NOT NULL,
    epoch            INTEGER NOT NULL,
    owner            BLOB,
    lease_until      INTEGER,
    ready_at         INTEGER,
    news_at          INTEGER,
    timer_at         INTEGER,
    head             INTEGER NOT NULL,
    mail_last        INTEGER NOT NULL,
    mail             INTEGER NOT NULL,
    matched          INTEGER NOT NULL,
    waits            INTEGER NOT NULL,
    watchers         INTEGER NOT NULL,
    suspect          INTEGER NOT NULL,
    crashes          INTEGER NOT NULL,
    cancel           INTEGER NOT NULL,
    holder           BLOB,
    parent_run       BLOB,
    parent_execution INTEGER,
    parent_call      INTEGER,
    root             BLOB NOT NULL,
    depth            INTEGER NOT NULL,
    key              TEXT,
    created_at       INTEGER NOT NULL,
    changed_at       INTEGER NOT NULL,
    outcome          TEXT,
    -- The latch that it lowers when it ends: -1 if nobody is told, null if its parent's call is.
    told_part        INTEGER,
    told_execution   INTEGER,
    told_call        INTEGER,
    number           INTEGER,
    publication      BLOB,
    undo             INTEGER NOT NULL DEFAULT 0
) STRICT, WITHOUT ROWID;

-- Everything that is due, and when: new runs, retries, timers and ended leases alike. A round that
-- continues changes none of these columns.
CREATE INDEX roundel_run_ready ON roundel_run (lane, suspect, priority, ready_at)
    WHERE ready_at IS NOT NULL;
CREATE INDEX roundel_run_parent ON roundel_run (parent_run) WHERE parent_run IS NOT NULL;
-- The troubleshooting queue.
CREATE INDEX roundel_run_parked ON roundel_run (id) WHERE state = 'parked';

CREATE TABLE roundel_journal (
    run       BLOB NOT NULL,
    execution INTEGER NOT NULL,
    first     INTEGER NOT NULL,
    count     INTEGER NOT NULL,
    epoch     INTEGER NOT NULL,
    at        INTEGER NOT NULL,
    entries   TEXT NOT NULL,
    PRIMARY KEY (run, execution, first)
) STRICT, WITHOUT ROWID;

-- Messages that wait for a run. Those of the engine's own have the empty name and say which call
-- they answer.
CREATE TABLE roundel_mail (
    run       BLOB NOT NULL,
    name      TEXT NOT NULL,
    number    INTEGER NOT NULL,
    execution INTEGER,
    call      INTEGER,
    body      TEXT NOT NULL,
    at        INTEGER NOT NULL,
    PRIMARY KEY (run, name, number)
) STRICT, WITHOUT ROWID;

CREATE TABLE roundel_wait (
    run         BLOB NOT NULL,
    name        TEXT NOT NULL CHECK (octet_length(name) BETWEEN 1 AND 256),
    call        INTEGER NOT NULL,
    namespace   TEXT NOT NULL,
    place       INTEGER,
    taken_mail  INTEGER,
    taken_offer INTEGER,
    PRIMARY KEY (run, name, call)
) STRICT, WITHOUT ROWID;

-- Who waits for an offer and has none, the longest first.
CREATE INDEX roundel_wait_place ON roundel_wait (namespace, name, place)
    WHERE place IS NOT NULL AND taken_mail IS NULL AND taken_offer IS NULL;

CREATE TABLE roundel_gate (
    namespace TEXT NOT NULL,
    name      TEXT NOT NULL CHECK (octet_length(name) BETWEEN 1 AND 256),
    waiters   INTEGER NOT NULL,
    offers    INTEGER NOT NULL,
    PRIMARY KEY (namespace, name)
) STRICT, WITHOUT ROWID;

CREATE TABLE roundel_offer (
    namespace TEXT NOT NULL,
    name      TEXT NOT NULL,
    place     INTEGER NOT NULL,
    payload   TEXT NOT NULL,
    taken_by  BLOB,
    at        INTEGER NOT NULL,
    PRIMARY KEY (namespace, name, place)
) STRICT, WITHOUT ROWID;

CREATE TABLE roundel_key (
    namespace TEXT NOT NULL,
    kind      TEXT NOT NULL CHECK (kind IN ('run', 'sender')),
    key       TEXT NOT NULL,
    run       BLOB,
    digest    BLOB NOT NULL,
    sent      TEXT,
    PRIMARY KEY (namespace, kind, key)
) STRICT, WITHOUT ROWID;

CREATE INDEX roundel_key_run ON roundel_key (run) WHERE run IS NOT NULL;

-- Who waits for whose end.
CREATE TABLE roundel_watch (
    watched   BLOB NOT NULL,
    watcher   BLOB NOT NULL,
    execution INTEGER NOT NULL,
    call      INTEGER NOT NULL,
    PRIMARY KEY (watched, watcher, execution, call)
) STRICT, WITHOUT ROWID;

CREATE TABLE roundel_state (
    run     BLOB NOT NULL PRIMARY KEY,
    version INTEGER NOT NULL,
    value   TEXT NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE roundel_worker (
    id         BLOB NOT NULL PRIMARY KEY,
    name       TEXT NOT NULL,
    started_at INTEGER NOT NULL,
    seen_at    INTEGER NOT NULL,
    suspect    BLOB
) STRICT, WITHOUT ROWID;

CREATE TABLE roundel_label (
    run   BLOB NOT NULL,
    name  TEXT NOT NULL CHECK (octet_length(name) BETWEEN 1 AND 256),
    value TEXT NOT NULL,
    PRIMARY KEY (run, name)
) STRICT, WITHOUT ROWID;

CREATE INDEX roundel_label_value ON roundel_label (name, value, run);

-- The last batch that each process committed: how an unknown outcome is resolved.
CREATE TABLE roundel_committer (
    incarnation BLOB NOT NULL PRIMARY KEY,
    batch       INTEGER NOT NULL,
    at          INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- What one call set off together, in order.
CREATE INDEX roundel_run_scope ON roundel_run (parent_run, parent_execution, parent_call, number)
    WHERE number IS NOT NULL;
-- Rollbacks that failed: part of the troubleshooting queue until somebody accepts them.
CREATE INDEX roundel_run_rollback_failed ON roundel_run (id) WHERE state = 'rollback_failed';

CREATE TABLE roundel_subscription (
    namespace TEXT NOT NULL,
    topic     TEXT NOT NULL CHECK (octet_length(topic) BETWEEN 1 AND 256),
    workflow  TEXT NOT NULL CHECK (octet_length(workflow) BETWEEN 1 AND 256),
    since     INTEGER NOT NULL,
    PRIMARY KEY (namespace, topic, workflow)
) STRICT, WITHOUT ROWID;

CREATE TABLE roundel_publication (
    id           BLOB NOT NULL PRIMARY KEY CHECK (length(id) = 16),
    namespace    TEXT NOT NULL,
    topic        TEXT NOT NULL,
    payload      TEXT NOT NULL,
    by_run       BLOB,
    by_execution INTEGER,
    by_call      INTEGER,
    at           INTEGER NOT NULL,
    heard        INTEGER NOT NULL,
    -- Until then whoever subscribes to the topic joins.
    closes_at    INTEGER
) STRICT, WITHOUT ROWID;

CREATE INDEX roundel_publication_by ON roundel_publication (by_run) WHERE by_run IS NOT NULL;
CREATE INDEX roundel_publication_topic ON roundel_publication (namespace, topic, id);
CREATE INDEX roundel_publication_window ON roundel_publication (namespace, topic, closes_at)
    WHERE closes_at IS NOT NULL;

-- How many of the runs that a call set off together have not ended.
CREATE TABLE roundel_latch (
    run       BLOB NOT NULL,
    execution INTEGER NOT NULL,
    call      INTEGER NOT NULL,
    part      INTEGER NOT NULL,
    open      INTEGER NOT NULL,
    total     INTEGER NOT NULL,
    failed    INTEGER NOT NULL,
    closes_at INTEGER,
    PRIMARY KEY (run, execution, call, part)
) STRICT, WITHOUT ROWID;

-- The journal, one entry per row.
CREATE VIEW roundel_entry AS
    SELECT
        journal.run,
        journal.execution,
        journal.first + entry.key AS number,
        CASE entry.type
            WHEN 'object' THEN (SELECT part.key FROM json_each(entry.value) AS part)
            ELSE entry.value
        END AS kind,
        CASE entry.type
            WHEN 'object' THEN (SELECT part.value FROM json_each(entry.value) AS part)
        END AS entry,
        journal.epoch,
        journal.at
    FROM roundel_journal AS journal, json_each(journal.entries) AS entry;

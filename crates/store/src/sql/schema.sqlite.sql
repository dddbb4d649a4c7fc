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
    undo             INTEGER NOT NULL DEFAULT 0,
    -- Until when it must have ended, forward and when it is rolled back, and which run said so.
    forward_by       INTEGER,
    forward_set_by   BLOB,
    rollback_by      INTEGER,
    rollback_set_by  BLOB,
    -- Of runs whose queue has limits: 1 while a run is leased and counts, 2 if no limit holds it
    -- back.
    flow             INTEGER,
    -- On whose behalf it is. What has a flow key is due by `keyed_at` instead of `ready_at`.
    flow_key         TEXT,
    keyed_at         INTEGER
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
    -- What becomes of it if nobody waits for it.
    policy    INTEGER NOT NULL DEFAULT 0,
    -- From then on nobody gets it.
    expires_at INTEGER,
    -- Its run ended without it: part of the troubleshooting queue.
    parked_at INTEGER,
    PRIMARY KEY (run, name, number)
) STRICT, WITHOUT ROWID;

CREATE INDEX roundel_mail_expires ON roundel_mail (run, name) WHERE expires_at IS NOT NULL;
CREATE INDEX roundel_mail_parked ON roundel_mail (run, number) WHERE parked_at IS NOT NULL;

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
    suspect    BLOB,
    lanes      TEXT
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
-- What a publication set off: it is kept as long as one of them is.
CREATE INDEX roundel_run_publication ON roundel_run (publication) WHERE publication IS NOT NULL;
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
    closes_at    INTEGER,
    -- What flows down to those that it sets off, as JSON.
    deadlines    TEXT,
    context      TEXT
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

-- The log of cooperation: what was published, and what became of it. For people and their tools;
-- the engine reads neither. Ids are text here, since that is what people compare and paste. The
-- names begin like all others: `messages` may well be a table of the user's in the same file.

CREATE VIEW roundel_messages AS
    SELECT
        substr(hex, 1, 8) || '-' || substr(hex, 9, 4) || '-' || substr(hex, 13, 4)
            || '-' || substr(hex, 17, 4) || '-' || substr(hex, 21) AS id,
        topic,
        payload,
        at AS created_at,
        namespace
    FROM (SELECT lower(hex(id)) AS hex, topic, payload, at, namespace FROM roundel_publication);

-- What happened to messages, and to the runs that they set off, in the order of `id`: within a run
-- that of its journal, across runs that of the commits, and in one commit parents first. Each event
-- is derived from what the engine keeps:
--
-- EMITTED: a publication. Run, step and lineage are those of who published; none if a client did.
-- SEEN: a worker has claimed the run, or somebody completed it from outside. The time is that of
--     its first round, the first thing that a worker commits; until then of the run's last change.
-- SUSPENDED: a step or effect completed; a call that sets off runs begins to wait for them. In a
--     rollback: what a call did, and before that what it set off, has been undone.
-- COMMITTED: the run completed.
-- ROLLING_BACK: the run begins to undo what it did; again after an operator's retry or skip. A run
--     that failed, or was cancelled, with nothing to undo says it together with ROLLED_BACK.
-- ROLLBACK_EMITTED: what a call set off is rolled back, one event for each message of the call; one
--     without a message for children.
-- ROLLED_BACK: the run ended as rolled back, cancelled or failed: nothing of it is left.
-- ROLLBACK_FAILED: an undo failed, or that of a run below.
--
-- A run that was started by name or as a child has no message: `message_id` is null. Whatever is
-- asked, the whole journal is read: this is for a look, not for programs that ask often.
CREATE VIEW roundel_message_event AS
    WITH called AS (
        -- What was called is in a call's first entry.
        SELECT
            run, execution, number, at, kind, entry,
            json_extract(entry, '$.call') AS call,
            first_value(json_extract(entry, '$.what')) OVER (
                PARTITION BY run, execution, json_extract(entry, '$.call') ORDER BY number
            ) AS what,
            max(kind = 'rolling_back') OVER (PARTITION BY run, execution) AS rolls_back
        FROM roundel_entry
    ), about AS (
        -- An undo and a rollback are about an earlier call.
        SELECT
            *,
            (SELECT key FROM json_each(what)) AS asked,
            coalesce(
                json_extract(what, '$.undo.of'), json_extract(what, '$.roll_back.of'), call
            ) AS about,
            coalesce(
                json_extract(what, '$.undo.execution'),
                json_extract(what, '$.roll_back.execution'), execution
            ) AS about_execution
        FROM called
    ), named AS (
        SELECT
            *,
            first_value(what) OVER (
                PARTITION BY run, about_execution, about ORDER BY execution, number
            ) AS about_what,
            kind IN ('did', 'done') AND json_type(entry, '$.outcome.value') IS NOT NULL AS worked
        FROM about
    ), types (type, rank) AS (
        VALUES
            ('EMITTED', 0), ('SUSPENDED', 1), ('COMMITTED', 1), ('ROLLING_BACK', 0),
            ('ROLLBACK_EMITTED', 0), ('ROLLED_BACK', 1), ('ROLLBACK_FAILED', 1)
    ), event AS (
        SELECT
            id AS message, 'EMITTED' AS type, NULL AS run, 1 AS execution, 0 AS number, 0 AS rank,
            NULL AS step, at
        FROM roundel_publication WHERE by_run IS NULL
        UNION ALL
        SELECT
            run.publication, 'SEEN', run.id, 1, 1, 0, NULL,
            CASE
                WHEN start.count > 1 THEN start.at
                ELSE coalesce((
                    SELECT round.at FROM roundel_journal AS round
                    WHERE round.run = run.id AND round.execution = 1 AND round.first > 1
                    ORDER BY round.first LIMIT 1
                ), run.changed_at)
            END
        FROM roundel_run AS run JOIN roundel_journal AS start
            ON start.run = run.id AND start.execution = 1 AND start.first = 1
        WHERE run.epoch > 0
        UNION ALL
        SELECT
            CASE WHEN type IN ('EMITTED', 'ROLLBACK_EMITTED') THEN emitted.id
                ELSE (SELECT publication FROM roundel_run WHERE id = named.run) END,
            type, named.run, named.execution, named.number, rank,
            coalesce(
                json_extract(about_what, '$.step.name'), json_extract(about_what, '$.effect.name'),
                json_extract(about_what, '$.publish.topic'),
                json_extract(about_what, '$.child.workflow'),
                json_extract(about_what, '$.children.workflow')),
            named.at
        FROM named JOIN types
            ON CASE type
                WHEN 'EMITTED' THEN kind = 'worked' OR kind = 'begun' AND asked = 'publish'
                WHEN 'SUSPENDED' THEN kind = 'worked'
                    OR kind = 'begun' AND asked IN ('publish', 'child', 'children')
                    OR worked AND asked IN ('step', 'effect', 'undo')
                    -- The undo of the step itself comes after that of what it set off.
                    OR worked AND asked = 'roll_back'
                        AND json_type(about_what, '$.step.undo') IS NULL
                WHEN 'ROLLBACK_EMITTED' THEN kind IN ('begun', 'did') AND asked = 'roll_back'
                WHEN 'ROLLING_BACK' THEN kind = 'rolling_back' OR kind = 'ended' AND NOT rolls_back
                    AND json_extract(entry, '$.state') IN ('failed', 'cancelled')
                ELSE kind = 'ended' AND type = CASE json_extract(entry, '$.state')
                    WHEN 'completed' THEN 'COMMITTED'
                    WHEN 'rollback_failed' THEN 'ROLLBACK_FAILED'
                    ELSE 'ROLLED_BACK'
                END
            END
        LEFT JOIN roundel_publication AS emitted
            ON type IN ('EMITTED', 'ROLLBACK_EMITTED') AND emitted.by_run = named.run
            AND emitted.by_execution = about_execution AND emitted.by_call = about
        WHERE type <> 'EMITTED' OR emitted.id IS NOT NULL
    )
    SELECT
        printf('%016x-%02x-%s-%04x-%06x-%d', event.at, coalesce(run.depth, 0),
            lower(hex(coalesce(event.run, message))), event.execution, event.number, rank)
            || '-' || lower(hex(message)) AS id,
        nullif(
            substr(lower(hex(message)), 1, 8) || '-' || substr(lower(hex(message)), 9, 4)
            || '-' || substr(lower(hex(message)), 13, 4)
            || '-' || substr(lower(hex(message)), 17, 4)
            || '-' || substr(lower(hex(message)), 21), '----') AS message_id,
        type,
        lane.workflow AS coroutine_name,
        nullif(
            substr(lower(hex(run.id)), 1, 8) || '-' || substr(lower(hex(run.id)), 9, 4)
            || '-' || substr(lower(hex(run.id)), 13, 4)
            || '-' || substr(lower(hex(run.id)), 17, 4)
            || '-' || substr(lower(hex(run.id)), 21), '----') AS coroutine_identifier,
        step,
        (
            WITH RECURSIVE up (id, parent, depth) AS (
                SELECT run.id, run.parent_run, run.depth WHERE run.id IS NOT NULL
                UNION ALL
                SELECT above.id, above.parent_run, above.depth
                FROM up JOIN roundel_run AS above ON above.id = up.parent
            ), path AS (SELECT lower(hex(id)) AS hex FROM up ORDER BY depth)
            SELECT json_group_array(
                substr(hex, 1, 8) || '-' || substr(hex, 9, 4) || '-' || substr(hex, 13, 4)
                    || '-' || substr(hex, 17, 4) || '-' || substr(hex, 21))
            FROM path
        ) AS cooperation_lineage,
        event.at AS created_at,
        coalesce(lane.namespace, published.namespace) AS namespace
    FROM event
        LEFT JOIN roundel_run AS run ON run.id = event.run
        LEFT JOIN roundel_lane AS lane ON lane.id = run.lane
        LEFT JOIN roundel_publication AS published ON published.id = message;

-- What was done in somebody's name, in the commit of what it records. Each row is sealed together
-- with the seal of the one before it; `roundel audit verify` checks that.
CREATE TABLE roundel_audit (
    namespace TEXT NOT NULL CHECK (octet_length(namespace) BETWEEN 1 AND 256),
    number    INTEGER NOT NULL CHECK (number > 0),
    at        INTEGER NOT NULL,
    operator  TEXT NOT NULL CHECK (octet_length(operator) BETWEEN 1 AND 256),
    reason    TEXT NOT NULL,
    action    TEXT NOT NULL,
    target    TEXT NOT NULL,
    run       BLOB CHECK (length(run) = 16),
    detail    TEXT,
    answer    TEXT NOT NULL,
    seal      BLOB NOT NULL CHECK (length(seal) = 32),
    PRIMARY KEY (namespace, number)
) STRICT, WITHOUT ROWID;

CREATE INDEX roundel_audit_run ON roundel_audit (run, number) WHERE run IS NOT NULL;

-- The limits of a queue, and how far its rate is used up. A lane of the version 4294967295 says that
-- there is such a row.
CREATE TABLE roundel_queue (
    namespace   TEXT NOT NULL CHECK (octet_length(namespace) BETWEEN 1 AND 256),
    queue       TEXT NOT NULL CHECK (octet_length(queue) BETWEEN 1 AND 256),
    paused      INTEGER NOT NULL,
    concurrency INTEGER,
    rate_count  INTEGER,
    rate_time   INTEGER,
    spent_until INTEGER NOT NULL,
    changed_at  INTEGER NOT NULL,
    per_key     INTEGER,
    turn        TEXT,
    PRIMARY KEY (namespace, queue)
) STRICT, WITHOUT ROWID;

CREATE INDEX roundel_run_flow
    ON roundel_run (lane, flow, coalesce(ready_at, keyed_at), flow_key) WHERE flow IS NOT NULL;
-- The keys of a lane take turns.
CREATE INDEX roundel_run_keyed ON roundel_run (lane, flow_key, suspect, priority, keyed_at)
    WHERE keyed_at IS NOT NULL;

-- What happened, once and for all, in the order of commits.
CREATE TABLE roundel_fact (
    position       INTEGER PRIMARY KEY,
    namespace      TEXT NOT NULL CHECK (octet_length(namespace) BETWEEN 1 AND 256),
    id             TEXT NOT NULL CHECK (octet_length(id) BETWEEN 1 AND 256),
    kind           TEXT NOT NULL CHECK (octet_length(kind) BETWEEN 1 AND 256),
    version        INTEGER NOT NULL,
    data           TEXT NOT NULL,
    at             INTEGER NOT NULL,
    own            INTEGER NOT NULL,
    by_name        TEXT,
    run            BLOB CHECK (length(run) = 16),
    execution      INTEGER,
    entry          INTEGER,
    stream         TEXT,
    stream_version INTEGER,
    UNIQUE (namespace, id)
) STRICT;

CREATE UNIQUE INDEX roundel_fact_stream
    ON roundel_fact (namespace, stream, stream_version) WHERE stream IS NOT NULL;
CREATE INDEX roundel_fact_run ON roundel_fact (run) WHERE run IS NOT NULL;

-- What is known of projections. `said` is all of it, as JSON; `generation` is the building of its
-- documents that is read, if there is one.
CREATE TABLE roundel_projection (
    namespace  TEXT NOT NULL CHECK (octet_length(namespace) BETWEEN 1 AND 256),
    name       TEXT NOT NULL CHECK (octet_length(name) BETWEEN 1 AND 256),
    generation INTEGER,
    said       TEXT NOT NULL,
    PRIMARY KEY (namespace, name)
) STRICT, WITHOUT ROWID;

-- What facts came to, whose that is, and in which building of it.
CREATE TABLE roundel_document (
    namespace  TEXT NOT NULL CHECK (octet_length(namespace) BETWEEN 1 AND 256),
    path       TEXT NOT NULL CHECK (octet_length(path) BETWEEN 1 AND 256),
    generation INTEGER NOT NULL,
    projection TEXT NOT NULL,
    version    INTEGER NOT NULL CHECK (version > 0),
    value      TEXT,
    at         INTEGER NOT NULL,
    PRIMARY KEY (namespace, path, generation)
) STRICT, WITHOUT ROWID;

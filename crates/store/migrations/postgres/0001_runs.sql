-- Runs, what happened in them, and what waits for them.
--
-- One row per round holds the entries of that round as a JSON array; the view `roundel_entry`
-- unpacks them. Times are microseconds since 1970 in UTC. Payloads and entries are bytes, since
-- JSON may hold what the database's own text cannot. Nothing here refers to another table by a
-- foreign key: the rows are written by one program, and what the keys would check is checked by
-- `roundel verify`. Names are compared by their bytes.

CREATE TABLE roundel_meta (
    name  text COLLATE "C" NOT NULL PRIMARY KEY,
    value bigint NOT NULL
);

-- A small number for what can be run: it stands first in the index that schedules.
CREATE TABLE roundel_lane (
    id        integer NOT NULL PRIMARY KEY,
    namespace text COLLATE "C" NOT NULL CHECK (octet_length(namespace) BETWEEN 1 AND 256),
    workflow  text COLLATE "C" NOT NULL CHECK (octet_length(workflow) BETWEEN 1 AND 256),
    version   bigint NOT NULL CHECK (version >= 0),
    UNIQUE (namespace, workflow, version)
);

-- Room is left in each page, so that a round that continues puts the new version of its row beside
-- the old one and touches no index.
CREATE TABLE roundel_run (
    id               uuid NOT NULL PRIMARY KEY,
    root             uuid NOT NULL,
    epoch            bigint NOT NULL,
    lease_until      bigint,
    ready_at         bigint,
    news_at          bigint,
    timer_at         bigint,
    head             bigint NOT NULL,
    mail_last        bigint NOT NULL,
    created_at       bigint NOT NULL,
    changed_at       bigint NOT NULL,
    execution        bigint NOT NULL,
    mail             bigint NOT NULL,
    matched          bigint NOT NULL,
    waits            bigint NOT NULL,
    watchers         bigint NOT NULL,
    crashes          bigint NOT NULL,
    lane             integer NOT NULL,
    priority         integer NOT NULL,
    depth            integer NOT NULL,
    cancel           smallint NOT NULL,
    undo             smallint NOT NULL DEFAULT 0,
    suspect          boolean NOT NULL,
    owner            uuid,
    holder           uuid,
    state            text COLLATE "C" NOT NULL CHECK (state IN (
        'ready', 'running', 'waiting', 'rolling_back', 'parked', 'completed', 'failed',
        'rolled_back', 'rollback_failed', 'cancelled')),
    parent_run       uuid,
    parent_execution bigint,
    parent_call      bigint,
    key              text COLLATE "C",
    outcome          bytea,
    -- The latch that it lowers when it ends: -1 if nobody is told, null if its parent's call is.
    told_part        bigint,
    told_execution   bigint,
    told_call        bigint,
    number           bigint,
    publication      uuid,
    -- Until when it must have ended, forward and when it is rolled back, and which run said so.
    forward_by       bigint,
    forward_set_by   uuid,
    rollback_by      bigint,
    rollback_set_by  uuid
) WITH (
    fillfactor = 60, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_cost_delay = 0
);

-- Everything that is due, and when: new runs, retries, timers and ended leases alike. A round that
-- continues changes none of these columns.
CREATE INDEX roundel_run_ready ON roundel_run (lane, suspect, priority, ready_at, id)
    WHERE ready_at IS NOT NULL;
CREATE INDEX roundel_run_parent ON roundel_run (parent_run, id) WHERE parent_run IS NOT NULL;
-- What one call set off together, in order.
CREATE INDEX roundel_run_scope ON roundel_run (parent_run, parent_execution, parent_call, number)
    WHERE number IS NOT NULL;
-- What a publication set off: it is kept as long as one of them is.
CREATE INDEX roundel_run_publication ON roundel_run (publication) WHERE publication IS NOT NULL;
-- The troubleshooting queue.
CREATE INDEX roundel_run_parked ON roundel_run (id) WHERE state = 'parked';
-- Rollbacks that failed: part of the troubleshooting queue until somebody accepts them.
CREATE INDEX roundel_run_rollback_failed ON roundel_run (id) WHERE state = 'rollback_failed';

CREATE TABLE roundel_journal (
    run       uuid NOT NULL,
    execution bigint NOT NULL,
    first     bigint NOT NULL,
    count     bigint NOT NULL,
    epoch     bigint NOT NULL,
    at        bigint NOT NULL,
    entries   bytea NOT NULL,
    PRIMARY KEY (run, execution, first)
);

-- Messages that wait for a run. Those of the engine's own have the empty name and say which call
-- they answer.
CREATE TABLE roundel_mail (
    run       uuid NOT NULL,
    name      text COLLATE "C" NOT NULL,
    number    bigint NOT NULL,
    execution bigint,
    call      bigint,
    body      bytea NOT NULL,
    at        bigint NOT NULL,
    PRIMARY KEY (run, name, number)
);

CREATE TABLE roundel_wait (
    run         uuid NOT NULL,
    name        text COLLATE "C" NOT NULL CHECK (octet_length(name) BETWEEN 1 AND 256),
    call        bigint NOT NULL,
    namespace   text COLLATE "C" NOT NULL,
    place       bigint,
    taken_mail  bigint,
    taken_offer bigint,
    PRIMARY KEY (run, name, call)
);

-- Who waits for an offer and has none, the longest first.
CREATE INDEX roundel_wait_place ON roundel_wait (namespace, name, place)
    WHERE place IS NOT NULL AND taken_mail IS NULL AND taken_offer IS NULL;

-- Its row is locked by whoever looks for somebody who waits, or for an offer. It is made for that,
-- and then counts nothing.
CREATE TABLE roundel_gate (
    namespace text COLLATE "C" NOT NULL,
    name      text COLLATE "C" NOT NULL CHECK (octet_length(name) BETWEEN 1 AND 256),
    waiters   bigint NOT NULL,
    offers    bigint NOT NULL,
    PRIMARY KEY (namespace, name)
) WITH (fillfactor = 50);

CREATE TABLE roundel_offer (
    namespace text COLLATE "C" NOT NULL,
    name      text COLLATE "C" NOT NULL,
    place     bigint NOT NULL,
    payload   bytea NOT NULL,
    taken_by  uuid,
    at        bigint NOT NULL,
    PRIMARY KEY (namespace, name, place)
);

CREATE TABLE roundel_key (
    namespace text COLLATE "C" NOT NULL,
    kind      text COLLATE "C" NOT NULL CHECK (kind IN ('run', 'sender')),
    key       text COLLATE "C" NOT NULL,
    run       uuid,
    digest    bytea NOT NULL,
    sent      bytea,
    PRIMARY KEY (namespace, kind, key)
);

CREATE INDEX roundel_key_run ON roundel_key (run) WHERE run IS NOT NULL;

-- Who waits for whose end.
CREATE TABLE roundel_watch (
    watched   uuid NOT NULL,
    watcher   uuid NOT NULL,
    execution bigint NOT NULL,
    call      bigint NOT NULL,
    PRIMARY KEY (watched, watcher, execution, call)
);

CREATE TABLE roundel_state (
    run     uuid NOT NULL PRIMARY KEY,
    version bigint NOT NULL,
    value   bytea NOT NULL
);

CREATE TABLE roundel_worker (
    id         uuid NOT NULL PRIMARY KEY,
    name       text COLLATE "C" NOT NULL,
    started_at bigint NOT NULL,
    seen_at    bigint NOT NULL,
    suspect    uuid,
    lanes      bytea
) WITH (fillfactor = 50);

CREATE TABLE roundel_label (
    run   uuid NOT NULL,
    name  text COLLATE "C" NOT NULL CHECK (octet_length(name) BETWEEN 1 AND 256),
    value text COLLATE "C" NOT NULL,
    PRIMARY KEY (run, name)
);

CREATE INDEX roundel_label_value ON roundel_label (name, value, run);

-- The last batch that each process committed: how an unknown outcome is resolved.
CREATE TABLE roundel_committer (
    incarnation uuid NOT NULL PRIMARY KEY,
    batch       bigint NOT NULL,
    at          bigint NOT NULL
) WITH (fillfactor = 50);

CREATE TABLE roundel_subscription (
    namespace text COLLATE "C" NOT NULL,
    topic     text COLLATE "C" NOT NULL CHECK (octet_length(topic) BETWEEN 1 AND 256),
    workflow  text COLLATE "C" NOT NULL CHECK (octet_length(workflow) BETWEEN 1 AND 256),
    since     bigint NOT NULL,
    PRIMARY KEY (namespace, topic, workflow)
);

-- What was done in somebody's name, in the commit of what it records. Each row is sealed together
-- with the seal of the one before it; `roundel audit verify` checks that.
CREATE TABLE roundel_audit (
    namespace text COLLATE "C" NOT NULL CHECK (octet_length(namespace) BETWEEN 1 AND 256),
    number    bigint NOT NULL CHECK (number > 0),
    at        bigint NOT NULL,
    operator  text COLLATE "C" NOT NULL CHECK (octet_length(operator) BETWEEN 1 AND 256),
    reason    text COLLATE "C" NOT NULL,
    action    text COLLATE "C" NOT NULL,
    target    text COLLATE "C" NOT NULL,
    run       uuid,
    detail    bytea,
    answer    text COLLATE "C" NOT NULL,
    seal      bytea NOT NULL CHECK (length(seal) = 32),
    PRIMARY KEY (namespace, number)
);

CREATE INDEX roundel_audit_run ON roundel_audit (run, number) WHERE run IS NOT NULL;

CREATE TABLE roundel_publication (
    id           uuid NOT NULL PRIMARY KEY,
    namespace    text COLLATE "C" NOT NULL,
    topic        text COLLATE "C" NOT NULL,
    payload      bytea NOT NULL,
    by_run       uuid,
    by_execution bigint,
    by_call      bigint,
    at           bigint NOT NULL,
    heard        bigint NOT NULL,
    -- Until then whoever subscribes to the topic joins.
    closes_at    bigint,
    -- What flows down to those that it sets off, as JSON.
    deadlines    bytea,
    context      bytea
);

CREATE INDEX roundel_publication_by ON roundel_publication (by_run) WHERE by_run IS NOT NULL;
CREATE INDEX roundel_publication_topic ON roundel_publication (namespace, topic, id);
CREATE INDEX roundel_publication_window ON roundel_publication (namespace, topic, closes_at)
    WHERE closes_at IS NOT NULL;

-- How many of the runs that a call set off together have not ended.
CREATE TABLE roundel_latch (
    run       uuid NOT NULL,
    execution bigint NOT NULL,
    call      bigint NOT NULL,
    part      smallint NOT NULL,
    open      bigint NOT NULL,
    total     bigint NOT NULL,
    failed    bigint NOT NULL,
    closes_at bigint,
    PRIMARY KEY (run, execution, call, part)
);

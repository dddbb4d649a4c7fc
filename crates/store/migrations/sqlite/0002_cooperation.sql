-- What is set off together, and how it is undone.

-- The latch that a run lowers when it ends: -1 if nobody is told, null if its parent's call is.
ALTER TABLE roundel_run ADD COLUMN told_part INTEGER;
ALTER TABLE roundel_run ADD COLUMN told_execution INTEGER;
ALTER TABLE roundel_run ADD COLUMN told_call INTEGER;
ALTER TABLE roundel_run ADD COLUMN number INTEGER;
ALTER TABLE roundel_run ADD COLUMN publication BLOB;
ALTER TABLE roundel_run ADD COLUMN undo INTEGER NOT NULL DEFAULT 0;

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

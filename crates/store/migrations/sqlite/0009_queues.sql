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
    PRIMARY KEY (namespace, queue)
) STRICT, WITHOUT ROWID;

-- Of runs whose queue has limits: 1 while a run is leased and counts, 2 if no limit holds it back.
ALTER TABLE roundel_run ADD COLUMN flow INTEGER;
CREATE INDEX roundel_run_flow ON roundel_run (lane, flow, ready_at) WHERE flow IS NOT NULL;

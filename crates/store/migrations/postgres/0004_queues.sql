-- The limits of a queue, and how far its rate is used up. A lane of the version 4294967295 says that
-- there is such a row.
CREATE TABLE roundel_queue (
    namespace   text COLLATE "C" NOT NULL CHECK (octet_length(namespace) BETWEEN 1 AND 256),
    queue       text COLLATE "C" NOT NULL CHECK (octet_length(queue) BETWEEN 1 AND 256),
    paused      boolean NOT NULL,
    concurrency bigint,
    rate_count  bigint,
    rate_time   bigint,
    spent_until bigint NOT NULL,
    changed_at  bigint NOT NULL,
    PRIMARY KEY (namespace, queue)
);

-- Of runs whose queue has limits: 1 while a run is leased and counts, 2 if no limit holds it back.
ALTER TABLE roundel_run ADD COLUMN flow smallint;
CREATE INDEX roundel_run_flow ON roundel_run (lane, flow, ready_at, id) WHERE flow IS NOT NULL;

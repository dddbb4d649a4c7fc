-- On whose behalf a run is. What has a flow key is due by `keyed_at` instead of `ready_at`, and is in
-- an index of its own, in which the keys of a lane take turns.
ALTER TABLE roundel_run ADD COLUMN flow_key TEXT;
ALTER TABLE roundel_run ADD COLUMN keyed_at INTEGER;
CREATE INDEX roundel_run_keyed ON roundel_run (lane, flow_key, suspect, priority, keyed_at)
    WHERE keyed_at IS NOT NULL;
DROP INDEX roundel_run_flow;
CREATE INDEX roundel_run_flow
    ON roundel_run (lane, flow, coalesce(ready_at, keyed_at), flow_key) WHERE flow IS NOT NULL;

-- How many of a key at once, and whose turn it was last.
ALTER TABLE roundel_queue ADD COLUMN per_key INTEGER;
ALTER TABLE roundel_queue ADD COLUMN turn TEXT;

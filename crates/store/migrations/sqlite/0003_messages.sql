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

-- The journal, and the log of cooperation: what was published, and what became of it. For people and
-- their tools; the engine reads none of it. The columns are those of the views of the same names in
-- a file, where each event is explained; ids of messages and their events are text, as there.

-- The journal, one entry per row.
CREATE VIEW roundel_entry AS
    SELECT
        journal.run,
        journal.execution,
        journal.first + entry.place - 1 AS number,
        coalesce(part.key, entry.value #>> '{}') COLLATE "C" AS kind,
        part.value AS entry,
        journal.epoch,
        journal.at
    FROM roundel_journal AS journal
        CROSS JOIN LATERAL json_array_elements(convert_from(journal.entries, 'UTF8')::json)
            WITH ORDINALITY AS entry (value, place)
        LEFT JOIN LATERAL json_each(
            CASE json_typeof(entry.value) WHEN 'object' THEN entry.value END
        ) AS part ON true;

CREATE VIEW roundel_messages AS
    SELECT id::text COLLATE "C" AS id, topic, convert_from(payload, 'UTF8') AS payload,
        at AS created_at, namespace
    FROM roundel_publication;

CREATE VIEW roundel_message_event AS
    WITH RECURSIVE called AS (
        -- What was called is in a call's first entry.
        SELECT
            run, execution, number, at, kind, entry,
            (entry ->> 'call')::bigint AS call,
            first_value(entry -> 'what') OVER (
                PARTITION BY run, execution, entry ->> 'call' ORDER BY number
            ) AS what,
            bool_or(kind = 'rolling_back') OVER (PARTITION BY run, execution) AS rolls_back
        FROM roundel_entry
    ), about AS (
        -- An undo and a rollback are about an earlier call.
        SELECT
            *,
            CASE json_typeof(what) WHEN 'object'
                THEN (SELECT key FROM json_object_keys(what) AS key LIMIT 1) END AS asked,
            coalesce(
                what #>> '{undo,of}', what #>> '{roll_back,of}', call::text
            )::bigint AS about,
            coalesce(
                what #>> '{undo,execution}', what #>> '{roll_back,execution}', execution::text
            )::bigint AS about_execution
        FROM called
    ), named AS (
        SELECT
            *,
            first_value(what) OVER (
                PARTITION BY run, about_execution, about ORDER BY execution, number
            ) AS about_what,
            kind IN ('did', 'done') AND entry #> '{outcome,value}' IS NOT NULL AS worked
        FROM about
    ), types (type, rank) AS (
        VALUES
            ('EMITTED', 0), ('SUSPENDED', 1), ('COMMITTED', 1), ('ROLLING_BACK', 0),
            ('ROLLBACK_EMITTED', 0), ('ROLLED_BACK', 1), ('ROLLBACK_FAILED', 1)
    ), event AS (
        SELECT
            id AS message, 'EMITTED' AS type, NULL::uuid AS run, 1::bigint AS execution,
            0::bigint AS number, 0 AS rank, NULL::text AS step, at
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
                about_what #>> '{step,name}', about_what #>> '{effect,name}',
                about_what #>> '{publish,topic}', about_what #>> '{child,workflow}',
                about_what #>> '{children,workflow}'),
            named.at
        FROM named JOIN types
            ON CASE type
                WHEN 'EMITTED' THEN kind = 'worked' OR kind = 'begun' AND asked = 'publish'
                WHEN 'SUSPENDED' THEN kind = 'worked'
                    OR kind = 'begun' AND asked IN ('publish', 'child', 'children')
                    OR worked AND asked IN ('step', 'effect', 'undo')
                    -- The undo of the step itself comes after that of what it set off.
                    OR worked AND asked = 'roll_back' AND about_what #> '{step,undo}' IS NULL
                WHEN 'ROLLBACK_EMITTED' THEN kind IN ('begun', 'did') AND asked = 'roll_back'
                WHEN 'ROLLING_BACK' THEN kind = 'rolling_back' OR kind = 'ended' AND NOT rolls_back
                    AND entry ->> 'state' IN ('failed', 'cancelled')
                ELSE kind = 'ended' AND type = CASE entry ->> 'state'
                    WHEN 'completed' THEN 'COMMITTED'
                    WHEN 'rollback_failed' THEN 'ROLLBACK_FAILED'
                    ELSE 'ROLLED_BACK'
                END
            END
        LEFT JOIN roundel_publication AS emitted
            ON type IN ('EMITTED', 'ROLLBACK_EMITTED') AND emitted.by_run = named.run
            AND emitted.by_execution = about_execution AND emitted.by_call = about
        WHERE type <> 'EMITTED' OR emitted.id IS NOT NULL
    ), path (id, up, depth, lineage) AS (
        SELECT id, parent_run, depth, '"' || id::text || '"' FROM roundel_run
        WHERE parent_run IS NULL
        UNION ALL
        SELECT run.id, run.parent_run, run.depth, path.lineage || ',"' || run.id::text || '"'
        FROM path JOIN roundel_run AS run ON run.parent_run = path.id
    )
    SELECT
        (lpad(to_hex(event.at), 16, '0') || '-' || lpad(to_hex(coalesce(run.depth, 0)), 4, '0')
            || '-' || replace(coalesce(event.run, message)::text, '-', '')
            || '-' || lpad(to_hex(event.execution), 8, '0')
            || '-' || lpad(to_hex(event.number), 8, '0') || '-' || rank
            || '-' || coalesce(replace(message::text, '-', ''), '')) COLLATE "C" AS id,
        message::text COLLATE "C" AS message_id,
        type,
        lane.workflow AS coroutine_name,
        run.id::text COLLATE "C" AS coroutine_identifier,
        step,
        '[' || coalesce((SELECT lineage FROM path WHERE path.id = run.id), '') || ']'
            AS cooperation_lineage,
        event.at AS created_at,
        coalesce(lane.namespace, published.namespace) AS namespace
    FROM event
        LEFT JOIN roundel_run AS run ON run.id = event.run
        LEFT JOIN roundel_lane AS lane ON lane.id = run.lane
        LEFT JOIN roundel_publication AS published ON published.id = message;

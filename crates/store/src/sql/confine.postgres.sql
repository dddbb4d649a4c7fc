-- Lets the role of the setting `roundel.reader` read what is of the namespace of
-- `roundel.namespace` in this schema, and nothing else there. A table that says neither its
-- namespace nor its run is not for it, nor is one that a later version adds. Everybody else sees
-- what they saw.

DO $$
DECLARE
    reader CONSTANT text := current_setting('roundel.reader');
    home CONSTANT text := current_schema();
    thing record;
BEGIN
    EXECUTE format('REVOKE ALL ON ALL TABLES IN SCHEMA %I FROM %I', home, reader);
    EXECUTE format(
        'ALTER DEFAULT PRIVILEGES IN SCHEMA %I REVOKE ALL ON TABLES FROM %I', home, reader);
    EXECUTE format('REVOKE ALL ON SCHEMA %I FROM %I', home, reader);
    EXECUTE format('GRANT USAGE ON SCHEMA %I TO %I', home, reader);
    FOR thing IN
        SELECT class.oid, class.oid::regclass AS name, class.relrowsecurity AS has_policies,
            CASE
                WHEN bool_or(part.attname = 'namespace')
                    THEN format('namespace = %L', current_setting('roundel.namespace'))
                -- What these tables show is their own policies' to say.
                WHEN class.relname = 'roundel_run'
                    THEN 'EXISTS (SELECT FROM roundel_lane AS known WHERE known.id = lane)'
                WHEN class.relname = 'roundel_watch'
                    THEN 'EXISTS (SELECT FROM roundel_run AS known WHERE known.id = watcher)'
                WHEN bool_or(part.attname = 'run')
                    THEN 'EXISTS (SELECT FROM roundel_run AS known WHERE known.id = run)'
            END AS shown
        FROM pg_class AS class
            JOIN pg_namespace AS space ON space.oid = class.relnamespace AND space.nspname = home
            JOIN pg_attribute AS part
                ON part.attrelid = class.oid AND part.attnum > 0 AND NOT part.attisdropped
        WHERE class.relkind = 'r' AND starts_with(class.relname, 'roundel_')
        GROUP BY class.oid, class.relname, class.relrowsecurity
        ORDER BY class.relname
    LOOP
        CONTINUE WHEN thing.shown IS NULL;
        IF NOT thing.has_policies THEN
            EXECUTE format('ALTER TABLE %s ENABLE ROW LEVEL SECURITY', thing.name);
        END IF;
        IF NOT EXISTS (
            SELECT FROM pg_policy WHERE polrelid = thing.oid AND polname = 'everybody'
        ) THEN
            EXECUTE format(
                'CREATE POLICY everybody ON %s USING (true) WITH CHECK (true)', thing.name);
        END IF;
        EXECUTE format('DROP POLICY IF EXISTS %I ON %s', reader, thing.name);
        EXECUTE format(
            'CREATE POLICY %I ON %s AS RESTRICTIVE TO %I USING (%s)',
            reader, thing.name, reader, thing.shown);
        EXECUTE format('GRANT SELECT ON %s TO %I', thing.name, reader);
    END LOOP;
    -- A view shows what its owner may see, unless the server knows better.
    FOR thing IN
        SELECT class.oid::regclass AS name
        FROM pg_class AS class
            JOIN pg_namespace AS space ON space.oid = class.relnamespace AND space.nspname = home
        WHERE class.relkind = 'v' AND starts_with(class.relname, 'roundel_')
            AND current_setting('server_version_num')::integer >= 150000
        ORDER BY class.relname
    LOOP
        EXECUTE format('ALTER VIEW %s SET (security_invoker = true)', thing.name);
        EXECUTE format('GRANT SELECT ON %s TO %I', thing.name, reader);
    END LOOP;
END $$;

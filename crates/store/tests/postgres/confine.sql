-- The same rows in two namespaces, `shop` and `bank`, one in each table that says whose it is.
DO $$ BEGIN
CREATE TEMPORARY TABLE space ON COMMIT DROP AS
    SELECT name, n, ('00000000-0000-7000-8000-00000000000' || n)::uuid AS run,
        convert_to(CASE name WHEN 'shop' THEN '1' ELSE '"secret of the bank"' END, 'UTF8') AS said
    FROM (VALUES ('shop', 1), ('bank', 2)) AS space (name, n);
INSERT INTO roundel_lane (id, namespace, workflow, version)
    SELECT n, name, 'flow', 1 FROM space;
INSERT INTO roundel_run (
        id, root, epoch, head, mail_last, created_at, changed_at, execution, mail, matched, waits,
        watchers, crashes, lane, priority, depth, cancel, suspect, state, publication)
    SELECT run, run, 1, 1, 1, 1, 1, 1, 1, 0, 1, 0, 0, n, 0, 0, 0, false, 'waiting', run
    FROM space;
INSERT INTO roundel_journal (run, execution, first, count, epoch, at, entries)
    SELECT run, 1, 1, 1, 1, 1, convert_to(
        '[{"started":{"workflow":"flow","version":1,"input":' || convert_from(said, 'UTF8') || '}}]',
        'UTF8')
    FROM space;
INSERT INTO roundel_mail (run, name, number, body, at) SELECT run, 'word', 1, said, 1 FROM space;
INSERT INTO roundel_wait (run, name, call, namespace) SELECT run, 'word', 1, name FROM space;
INSERT INTO roundel_gate (namespace, name, waiters, offers) SELECT name, 'word', 1, 1 FROM space;
INSERT INTO roundel_offer (namespace, name, place, payload, at)
    SELECT name, 'word', 1, said, 1 FROM space;
INSERT INTO roundel_key (namespace, kind, key, run, digest)
    SELECT name, 'run', 'key of the ' || name, run, said FROM space;
INSERT INTO roundel_watch (watched, watcher, execution, call) SELECT run, run, 1, 1 FROM space;
INSERT INTO roundel_state (run, version, value) SELECT run, 1, said FROM space;
INSERT INTO roundel_label (run, name, value) SELECT run, 'of', name FROM space;
INSERT INTO roundel_subscription (namespace, topic, workflow, since)
    SELECT name, 'topic of the ' || name, 'flow', 1 FROM space;
INSERT INTO roundel_audit (namespace, number, at, operator, reason, action, target, answer, seal)
    SELECT name, 1, 1, 'of the ' || name, '', 'cancel', '', '', decode(repeat('00', 32), 'hex')
    FROM space;
INSERT INTO roundel_publication (id, namespace, topic, payload, at, heard)
    SELECT run, name, 'topic', said, 1, 1 FROM space;
INSERT INTO roundel_latch (run, execution, call, part, open, total, failed)
    SELECT run, 1, 1, 0, 1, 1, 0 FROM space;
INSERT INTO roundel_queue (namespace, queue, paused, spent_until, changed_at)
    SELECT name, 'queue of the ' || name, false, 0, 1 FROM space;
INSERT INTO roundel_fact (namespace, id, kind, version, data, at, own)
    SELECT name, 'fact', 'said', 1, said, 1, true FROM space;
INSERT INTO roundel_document (namespace, path, generation, projection, version, value, at, xid)
    SELECT name, 'path', 0, 'last', 1, said, 1, 1 FROM space;
INSERT INTO roundel_projection (namespace, name, said) SELECT name, 'last', said FROM space;
END $$

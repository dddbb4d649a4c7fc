-- Signals that a run ended without are parked, unless their policy says otherwise; and signals may
-- expire.

ALTER TABLE roundel_mail ADD COLUMN policy smallint NOT NULL DEFAULT 0;
ALTER TABLE roundel_mail ADD COLUMN expires_at bigint;
ALTER TABLE roundel_mail ADD COLUMN parked_at bigint;

CREATE INDEX roundel_mail_expires ON roundel_mail (run, name) WHERE expires_at IS NOT NULL;
CREATE INDEX roundel_mail_parked ON roundel_mail (run, number) WHERE parked_at IS NOT NULL;

UPDATE roundel_mail SET policy = 2 WHERE name = '';
UPDATE roundel_mail SET parked_at = at WHERE name <> '' AND run IN (
    SELECT id FROM roundel_run WHERE state IN (
        'completed', 'failed', 'rolled_back', 'rollback_failed', 'cancelled'));

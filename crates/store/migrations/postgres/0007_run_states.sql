-- A check of a table is read and planned anew by every statement that writes to it, a quarter of
-- what the server does for one round; that of a domain is kept, and looked at only where the column
-- is written.

CREATE DOMAIN roundel_run_state AS text COLLATE "C" CHECK (VALUE IN (
    'ready', 'running', 'waiting', 'rolling_back', 'parked', 'completed', 'failed',
    'rolled_back', 'rollback_failed', 'cancelled'));
ALTER TABLE roundel_run DROP CONSTRAINT roundel_run_state_check;
ALTER TABLE roundel_run ALTER COLUMN state TYPE roundel_run_state USING state::roundel_run_state;

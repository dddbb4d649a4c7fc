-- What was done in somebody's name, in the commit of what it records. Each row is sealed together
-- with the seal of the one before it; `roundel audit verify` checks that.
CREATE TABLE roundel_audit (
    namespace TEXT NOT NULL CHECK (octet_length(namespace) BETWEEN 1 AND 256),
    number    INTEGER NOT NULL CHECK (number > 0),
    at        INTEGER NOT NULL,
    operator  TEXT NOT NULL CHECK (octet_length(operator) BETWEEN 1 AND 256),
    reason    TEXT NOT NULL,
    action    TEXT NOT NULL,
    target    TEXT NOT NULL,
    run       BLOB CHECK (length(run) = 16),
    detail    TEXT,
    answer    TEXT NOT NULL,
    seal      BLOB NOT NULL CHECK (length(seal) = 32),
    PRIMARY KEY (namespace, number)
) STRICT, WITHOUT ROWID;

CREATE INDEX roundel_audit_run ON roundel_audit (run, number) WHERE run IS NOT NULL;

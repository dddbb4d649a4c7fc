-- What happened, once and for all, in the order of commits.
CREATE TABLE roundel_fact (
    position       INTEGER PRIMARY KEY,
    namespace      TEXT NOT NULL CHECK (octet_length(namespace) BETWEEN 1 AND 256),
    id             TEXT NOT NULL CHECK (octet_length(id) BETWEEN 1 AND 256),
    kind           TEXT NOT NULL CHECK (octet_length(kind) BETWEEN 1 AND 256),
    version        INTEGER NOT NULL,
    data           TEXT NOT NULL,
    at             INTEGER NOT NULL,
    own            INTEGER NOT NULL,
    by_name        TEXT,
    run            BLOB CHECK (length(run) = 16),
    execution      INTEGER,
    entry          INTEGER,
    stream         TEXT,
    stream_version INTEGER,
    UNIQUE (namespace, id)
) STRICT;

CREATE UNIQUE INDEX roundel_fact_stream
    ON roundel_fact (namespace, stream, stream_version) WHERE stream IS NOT NULL;
CREATE INDEX roundel_fact_run ON roundel_fact (run) WHERE run IS NOT NULL;

-- What facts came to.
CREATE TABLE roundel_document (
    namespace TEXT NOT NULL CHECK (octet_length(namespace) BETWEEN 1 AND 256),
    path      TEXT NOT NULL CHECK (octet_length(path) BETWEEN 1 AND 256),
    version   INTEGER NOT NULL CHECK (version > 0),
    value     TEXT,
    at        INTEGER NOT NULL,
    PRIMARY KEY (namespace, path)
) STRICT, WITHOUT ROWID;

-- What is known of projections. `said` is all of it, as JSON; `generation` is the building of its
-- documents that is read, if there is one.
CREATE TABLE roundel_projection (
    namespace  TEXT NOT NULL CHECK (octet_length(namespace) BETWEEN 1 AND 256),
    name       TEXT NOT NULL CHECK (octet_length(name) BETWEEN 1 AND 256),
    generation INTEGER,
    said       TEXT NOT NULL,
    PRIMARY KEY (namespace, name)
) STRICT, WITHOUT ROWID;

-- Documents say whose they are, and lie beside those of the next building while it is made. Those
-- that do not say it are made again from their facts, by the processes that know how.
DROP TABLE roundel_document;
CREATE TABLE roundel_document (
    namespace  TEXT NOT NULL CHECK (octet_length(namespace) BETWEEN 1 AND 256),
    path       TEXT NOT NULL CHECK (octet_length(path) BETWEEN 1 AND 256),
    generation INTEGER NOT NULL,
    projection TEXT NOT NULL,
    version    INTEGER NOT NULL CHECK (version > 0),
    value      TEXT,
    at         INTEGER NOT NULL,
    PRIMARY KEY (namespace, path, generation)
) STRICT, WITHOUT ROWID;

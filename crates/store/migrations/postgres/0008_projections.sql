-- What is known of projections. `said` is all of it, as JSON; `generation` is the building of its
-- documents that is read, if there is one.
CREATE TABLE roundel_projection (
    namespace  text COLLATE "C" NOT NULL CHECK (octet_length(namespace) BETWEEN 1 AND 256),
    name       text COLLATE "C" NOT NULL CHECK (octet_length(name) BETWEEN 1 AND 256),
    generation bigint,
    said       bytea NOT NULL,
    PRIMARY KEY (namespace, name)
) WITH (fillfactor = 60);

-- Documents say whose they are, and lie beside those of the next building while it is made. Those
-- that do not say it are made again from their facts, by the processes that know how.
DROP TABLE roundel_document;
CREATE TABLE roundel_document (
    namespace  text COLLATE "C" NOT NULL CHECK (octet_length(namespace) BETWEEN 1 AND 256),
    path       text COLLATE "C" NOT NULL CHECK (octet_length(path) BETWEEN 1 AND 256),
    generation bigint NOT NULL,
    projection text COLLATE "C" NOT NULL,
    version    bigint NOT NULL CHECK (version > 0),
    value      bytea,
    at         bigint NOT NULL,
    xid        bigint NOT NULL,
    PRIMARY KEY (namespace, path, generation)
) WITH (fillfactor = 60);

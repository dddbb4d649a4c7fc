-- What happened, once and for all. Transactions commit in another order than that in which they take
-- numbers: so the order of facts is that of transactions, and a reader who must not miss any reads
-- only what is older than every transaction under way.
CREATE TABLE roundel_fact (
    xid            bigint NOT NULL DEFAULT (pg_current_xact_id()::text::bigint),
    number         bigint GENERATED ALWAYS AS IDENTITY,
    namespace      text COLLATE "C" NOT NULL CHECK (octet_length(namespace) BETWEEN 1 AND 256),
    id             text COLLATE "C" NOT NULL CHECK (octet_length(id) BETWEEN 1 AND 256),
    kind           text COLLATE "C" NOT NULL CHECK (octet_length(kind) BETWEEN 1 AND 256),
    version        bigint NOT NULL,
    data           bytea NOT NULL,
    at             bigint NOT NULL,
    own            boolean NOT NULL,
    by_name        text COLLATE "C",
    run            uuid,
    execution      bigint,
    entry          bigint,
    stream         text COLLATE "C",
    stream_version bigint,
    PRIMARY KEY (xid, number),
    UNIQUE (namespace, id)
);

CREATE UNIQUE INDEX roundel_fact_stream
    ON roundel_fact (namespace, stream, stream_version) WHERE stream IS NOT NULL;
CREATE INDEX roundel_fact_run ON roundel_fact (run, xid, number) WHERE run IS NOT NULL;

-- What facts came to, and by which transaction.
CREATE TABLE roundel_document (
    namespace text COLLATE "C" NOT NULL CHECK (octet_length(namespace) BETWEEN 1 AND 256),
    path      text COLLATE "C" NOT NULL CHECK (octet_length(path) BETWEEN 1 AND 256),
    version   bigint NOT NULL CHECK (version > 0),
    value     bytea,
    at        bigint NOT NULL,
    xid       bigint NOT NULL,
    PRIMARY KEY (namespace, path)
) WITH (fillfactor = 60);

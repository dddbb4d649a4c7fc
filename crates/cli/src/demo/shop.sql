-- The shop's own tables, beside the engine's, in words that both databases know. Nothing that happens
-- is unique here on purpose: what happened twice would be seen.

CREATE TABLE stock (
    item      BIGINT PRIMARY KEY,
    name      TEXT NOT NULL,
    had       BIGINT NOT NULL,
    remaining BIGINT NOT NULL
);

CREATE TABLE orders (
    number   BIGINT NOT NULL,
    customer TEXT NOT NULL,
    item     BIGINT NOT NULL,
    pieces   BIGINT NOT NULL,
    cents    BIGINT NOT NULL,
    status   TEXT NOT NULL
);

CREATE TABLE ledger (
    number  BIGINT NOT NULL,
    cents   BIGINT NOT NULL,
    receipt TEXT NOT NULL
);

CREATE TABLE parcels (
    number  BIGINT NOT NULL,
    parcel  BIGINT NOT NULL,
    address TEXT NOT NULL,
    label   TEXT NOT NULL
);

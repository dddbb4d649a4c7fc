-- The shop's own tables, beside the engine's. Nothing that happens is unique here on purpose: what
-- happened twice would be seen.

CREATE TABLE stock (
    item      INTEGER PRIMARY KEY,
    name      TEXT NOT NULL,
    had       INTEGER NOT NULL,
    remaining INTEGER NOT NULL
) STRICT;

CREATE TABLE orders (
    number   INTEGER NOT NULL,
    customer TEXT NOT NULL,
    item     INTEGER NOT NULL,
    pieces   INTEGER NOT NULL,
    cents    INTEGER NOT NULL,
    status   TEXT NOT NULL
) STRICT;

CREATE TABLE ledger (
    number  INTEGER NOT NULL,
    cents   INTEGER NOT NULL,
    receipt TEXT NOT NULL
) STRICT;

CREATE TABLE parcels (
    number  INTEGER NOT NULL,
    parcel  INTEGER NOT NULL,
    address TEXT NOT NULL,
    label   TEXT NOT NULL
) STRICT;

-- What a worker can run: the ids of its lanes, as a JSON array; none said by those that are older.
ALTER TABLE roundel_worker ADD COLUMN lanes TEXT;

-- Until when a run must have ended, forward and when it is rolled back, and which run said so.
ALTER TABLE roundel_run ADD COLUMN forward_by INTEGER;
ALTER TABLE roundel_run ADD COLUMN forward_set_by BLOB;
ALTER TABLE roundel_run ADD COLUMN rollback_by INTEGER;
ALTER TABLE roundel_run ADD COLUMN rollback_set_by BLOB;

-- What flows down to those that a publication sets off, as JSON.
ALTER TABLE roundel_publication ADD COLUMN deadlines TEXT;
ALTER TABLE roundel_publication ADD COLUMN context TEXT;

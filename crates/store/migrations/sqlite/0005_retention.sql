-- What a publication set off: it is kept as long as one of them is.
CREATE INDEX roundel_run_publication ON roundel_run (publication) WHERE publication IS NOT NULL;

-- no-transaction
-- One automatic run per occurrence: the protocol says so, and from here on UNIQUE does, too. It replaces idx_runs_occurrence_id with
-- the next one. A run is history, so no migration changes one: duplicates stop this one (docs/operations.md, "Two automatic runs").
CREATE UNIQUE INDEX CONCURRENTLY IF NOT EXISTS idx_runs_automatic ON runs (occurrence_id) WHERE trigger IN ('schedule', 'catch_up');

-- no-transaction
-- A claim tells an action the time of the run before. Times without a run (skipped, missed) may be many: they are not in this index.
CREATE INDEX CONCURRENTLY IF NOT EXISTS idx_occurrences_run_time ON occurrences (workflow_id, scheduled_time DESC) WHERE run_id IS NOT NULL;

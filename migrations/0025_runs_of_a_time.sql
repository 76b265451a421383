-- no-transaction
-- The proof reads the runs of a span by workflow and time; a backfill finds the last run of an occurrence by it, too.
CREATE INDEX CONCURRENTLY IF NOT EXISTS idx_runs_scheduled_time ON runs (workflow_id, scheduled_time) WHERE scheduled_time IS NOT NULL;

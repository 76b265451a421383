-- no-transaction
-- The runs of before the days may be many, so their part of idx_runs_retry_of (migration 131) is built while runs end.
CREATE INDEX CONCURRENTLY IF NOT EXISTS idx_runs_ended_before_retry_of ON runs_ended_before (retry_of) WHERE retry_of IS NOT NULL;

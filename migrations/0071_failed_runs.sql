-- no-transaction
-- Runs that did not succeed are few, and people look for them: a list of them must not pass over all others.
CREATE INDEX CONCURRENTLY IF NOT EXISTS idx_runs_failed ON runs (team_id, id) WHERE state IN ('failed', 'timed_out', 'abandoned');

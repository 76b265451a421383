-- no-transaction
-- Normally it has no entry, so the job prune finds at once that a deployment has left no workflow uncounted.
CREATE INDEX CONCURRENTLY IF NOT EXISTS idx_workflows_uncounted ON workflows (id) WHERE fires_per_hour IS NULL AND state <> 'archived';

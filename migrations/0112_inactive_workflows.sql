-- no-transaction
-- As idx_workflows_inactive, whose name it gets in the next migration, with the column that the count of the workflows that cronbox paused reads.
CREATE INDEX CONCURRENTLY IF NOT EXISTS idx_workflows_stopped ON workflows (team_id, state, id) INCLUDE (paused_by) WHERE state IN ('paused', 'archived');

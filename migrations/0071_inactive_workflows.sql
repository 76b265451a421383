-- no-transaction
-- A list of a team's paused or archived workflows reads it: they may be few among many active ones.
CREATE INDEX CONCURRENTLY IF NOT EXISTS idx_workflows_inactive ON workflows (team_id, state, id) WHERE state IN ('paused', 'archived');

-- no-transaction
-- A claim reads a team's accepted runs by it, and passes over a team that has used up its share.
CREATE INDEX CONCURRENTLY IF NOT EXISTS idx_runs_claim ON runs (team_id, run_after) WHERE state = 'accepted';

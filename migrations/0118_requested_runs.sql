-- no-transaction
-- A claim reads it in a freeze: the accepted runs of a team that a freeze does not hold, the oldest first, however many of its schedules wait. A fire writes no entry of it.
CREATE INDEX CONCURRENTLY IF NOT EXISTS idx_runs_claim_requested ON runs_live (team_id, run_after) WHERE state = 'accepted' AND trigger NOT IN ('schedule', 'catch_up');

-- no-transaction
-- The list of a team's failures reads it: few runs fail, so without it the list would read all runs of the team.
CREATE INDEX CONCURRENTLY IF NOT EXISTS idx_runs_team_failed ON runs (team_id, state, id) WHERE state IN ('failed', 'timed_out', 'abandoned');

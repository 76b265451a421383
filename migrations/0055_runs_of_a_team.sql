-- no-transaction
-- As idx_runs_workflow_key, for the list of a team's runs: no plan can pass over the runs of other teams.
CREATE INDEX CONCURRENTLY IF NOT EXISTS idx_runs_team ON runs (team_id, id);

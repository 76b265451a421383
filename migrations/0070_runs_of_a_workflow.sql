-- no-transaction
-- As idx_runs_team_key, for the list of a workflow's runs: in idx_runs_workflow_id the id descends.
CREATE INDEX CONCURRENTLY IF NOT EXISTS idx_runs_workflow_key ON runs (workflow_id, id);

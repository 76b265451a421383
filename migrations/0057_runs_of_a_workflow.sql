-- no-transaction
-- As idx_runs_team_key, for the list of a workflow's runs. The next migration drops its predecessor, in which the id descends.
CREATE INDEX CONCURRENTLY IF NOT EXISTS idx_runs_workflow_key ON runs (workflow_id, id);

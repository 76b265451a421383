-- no-transaction
-- A claim counts the running runs of a team that has a limit. It replaces idx_runs_running, whose readers need no order.
CREATE INDEX CONCURRENTLY IF NOT EXISTS idx_runs_running_of_a_team ON runs_live (team_id, started_on) WHERE state = 'running';

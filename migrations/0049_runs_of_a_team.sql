-- no-transaction
-- The list of a team's runs reads it backward: ids ascend with time (uuid v7), so it also serves `from` and `to`. Both columns ascend,
-- because a comparison of rows, `(team_id, id) < ($1, $2)`, reads only such an index: no plan can pass over the runs of other teams.
CREATE INDEX CONCURRENTLY IF NOT EXISTS idx_runs_team_key ON runs (team_id, id);

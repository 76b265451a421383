-- no-transaction
-- The lists of a team read it: the newest runs first. Built before the swap of migration 57, so that the swap builds no large index.
CREATE INDEX CONCURRENTLY IF NOT EXISTS idx_runs_team ON runs (team_id, id DESC);

-- no-transaction
-- The runs of before the days may be many, so their part of idx_runs_team_trigger is built while runs end.
CREATE INDEX CONCURRENTLY IF NOT EXISTS idx_runs_ended_before_team_trigger ON runs_ended_before (team_id, trigger, id) WHERE trigger <> 'schedule';

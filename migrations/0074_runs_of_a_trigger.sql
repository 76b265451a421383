-- A list of a team's runs with a trigger other than `schedule` reads it: they may be few among the fires. A fire writes no entry of it.
CREATE INDEX idx_runs_team_trigger ON runs (team_id, trigger, id) WHERE trigger <> 'schedule';

COMMENT ON INDEX idx_runs_team_trigger IS 'The list of the runs of a team that no fire accepted, by trigger';

-- Why a run is to stop is known when it is asked to, not when its executor hears of it; and a retry names the run that it repeats.
ALTER TABLE runs
    ADD COLUMN cancel_reason TEXT NULL,
    ADD COLUMN retry_of      UUID NULL;

COMMENT ON COLUMN runs.cancel_reason IS 'Why it was asked to stop, in a sentence; NULL = on request';
COMMENT ON COLUMN runs.retry_of      IS 'The run that this retry repeats: the first one, however often it was repeated; NULL = no retry';
COMMENT ON COLUMN occurrences.decision IS
    'What was decided; missed may become fired, caught_up or backfilled, these become abandoned if their run is given up, and fired becomes skipped_overlap if a newer fire replaces its run before it has started';
COMMENT ON COLUMN occurrences.run_id IS 'The first run of this time, NULL = none, or one that was replaced before it had started';

-- A claim takes accepted runs team by team, so it must find a team's first run without reading the backlog of another.
ALTER TABLE runs ADD COLUMN team_id BIGINT NULL;

COMMENT ON COLUMN runs.team_id IS 'The team of its workflow, for the claim; NULL = it had ended before this column was added';

-- By the words of idx_runs_live: the table is locked, so it must not be read in full.
UPDATE runs r SET team_id = w.team_id
  FROM workflows w
 WHERE w.id = r.workflow_id AND r.state IN ('accepted', 'queued', 'running');

CREATE FUNCTION runs_set_team() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    SELECT team_id INTO NEW.team_id FROM workflows WHERE id = NEW.workflow_id;
    RETURN NEW;
END
$$;

COMMENT ON FUNCTION runs_set_team() IS 'Sets the team of a run whose INSERT names none, for example by an older version of the app';

CREATE TRIGGER runs_set_team
    BEFORE INSERT ON runs
    FOR EACH ROW WHEN (NEW.team_id IS NULL) EXECUTE FUNCTION runs_set_team();

-- The next migration has its successor; until then a claim reads idx_runs_live.
DROP INDEX idx_runs_accepted;

-- The claim must not start what the job `queue` is about to abandon: one rule for both.
CREATE FUNCTION unstarted_run_expires_on(
    created_on timestamptz, run_after timestamptz, catch_up_window_secs integer, spread_secs integer
) RETURNS timestamptz LANGUAGE sql STABLE AS $$
    SELECT GREATEST(created_on + make_interval(secs => GREATEST(catch_up_window_secs, spread_secs)),
                    run_after + INTERVAL '60 seconds')
$$;

COMMENT ON FUNCTION unstarted_run_expires_on(timestamptz, timestamptz, integer, integer) IS
    'Until when an accepted schedule or catch_up run may start: the larger of catch-up window and spread, but a minute after its spread at least';

-- The UNIQUE index has the same columns and is read backwards as well.
DROP INDEX idx_occurrences_scheduled_time;

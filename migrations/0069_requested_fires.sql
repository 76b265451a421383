DROP INDEX idx_runs_running;

COMMENT ON INDEX idx_runs_running_of_a_team IS 'Recovery and timeouts read the runs with a lease, a claim counts those of one team; a renewal changes no column of it';

COMMENT ON COLUMN team_limits.fires_per_minute IS 'Fires a minute, on average over an hour in which all workflows fire; and as many manual runs, retries and runs of backfills together';

-- What callers request is limited by the minute, over all instances. Its updates change no indexed column and find room on their page.
CREATE TABLE team_requested_fires (
    team_id     BIGINT      NOT NULL CONSTRAINT team_requested_fires_pkey PRIMARY KEY CONSTRAINT team_requested_fires_team_id_fkey REFERENCES teams (id) ON DELETE CASCADE,
    taken_until timestamptz NOT NULL
) WITH (fillfactor = 50);

COMMENT ON TABLE  team_requested_fires             IS 'How much of its limit of fires a minute each team has used by manual runs, retries and backfills; no fire of a schedule counts';
COMMENT ON COLUMN team_requested_fires.team_id     IS 'The team';
COMMENT ON COLUMN team_requested_fires.taken_until IS 'Each run takes a minute divided by the limit, from now or from here on, and starts if this is then at most a minute ahead (cronbox_now)';

-- One team must not use up what all teams share. A limit that no admin has set is the operator's, which each instance
-- has in its configuration.
CREATE TABLE team_limits (
    team_id            BIGINT NOT NULL CONSTRAINT team_limits_pkey PRIMARY KEY CONSTRAINT team_limits_team_id_fkey REFERENCES teams (id) ON DELETE CASCADE,
    running_runs       BIGINT NULL CONSTRAINT team_limits_running_runs CHECK (running_runs >= 0),
    workflows          BIGINT NULL CONSTRAINT team_limits_workflows CHECK (workflows >= 0),
    fires_per_minute   BIGINT NULL CONSTRAINT team_limits_fires_per_minute CHECK (fires_per_minute >= 0),
    input_bytes        BIGINT NULL CONSTRAINT team_limits_input_bytes CHECK (input_bytes >= 0),
    requests_in_flight BIGINT NULL CONSTRAINT team_limits_requests_in_flight CHECK (requests_in_flight >= 0),
    edits_in_flight    BIGINT NULL CONSTRAINT team_limits_edits_in_flight CHECK (edits_in_flight >= 0),
    lists_in_flight    BIGINT NULL CONSTRAINT team_limits_lists_in_flight CHECK (lists_in_flight >= 0)
);

COMMENT ON TABLE  team_limits                    IS 'What an admin permits a team; in each column NULL = the default of the operator, 0 = no limit';
COMMENT ON COLUMN team_limits.team_id            IS 'The team';
COMMENT ON COLUMN team_limits.running_runs       IS 'Runs that all instances together execute at once';
COMMENT ON COLUMN team_limits.workflows          IS 'Workflows that are not archived';
COMMENT ON COLUMN team_limits.fires_per_minute   IS 'Fires a minute, on average over an hour in which all workflows fire';
COMMENT ON COLUMN team_limits.input_bytes        IS 'Bytes of inputs and actions of the workflows that are not archived';
COMMENT ON COLUMN team_limits.requests_in_flight IS 'Requests in progress on one instance';
COMMENT ON COLUMN team_limits.edits_in_flight    IS 'Edits in progress on one instance';
COMMENT ON COLUMN team_limits.lists_in_flight    IS 'Lists and statistics in progress on one instance';

-- Its updates change no indexed column and find room on their page.
CREATE TABLE team_usage (
    team_id        BIGINT NOT NULL CONSTRAINT team_usage_pkey PRIMARY KEY CONSTRAINT team_usage_team_id_fkey REFERENCES teams (id) ON DELETE CASCADE,
    workflows      BIGINT NOT NULL,
    fires_per_hour BIGINT NOT NULL,
    input_bytes    BIGINT NOT NULL
) WITH (fillfactor = 50);

COMMENT ON TABLE  team_usage                IS 'What the workflows of a team that are not archived add up to; a trigger on workflows counts, so an edit reads one row';
COMMENT ON COLUMN team_usage.team_id        IS 'The team';
COMMENT ON COLUMN team_usage.workflows      IS 'Its workflows';
COMMENT ON COLUMN team_usage.fires_per_hour IS 'The sum of workflows.fires_per_hour';
COMMENT ON COLUMN team_usage.input_bytes    IS 'The sum of workflows.input_bytes';

ALTER TABLE workflows
    ADD COLUMN fires_per_hour SMALLINT NULL,
    ADD COLUMN input_bytes    INTEGER  NULL;

COMMENT ON COLUMN workflows.fires_per_hour IS 'How many times the cron fires in an hour in which it fires, 0 without one; NULL = written by an older version, not counted yet';
COMMENT ON COLUMN workflows.input_bytes    IS 'Bytes of starting_inputs and action as JSON; NULL = written by an older version, not counted yet';

-- The audit log grew by the complete object twice with each edit.
COMMENT ON COLUMN audit_log.before IS 'What the change changed, as it was before; of a value above 1 KiB its sha256 and bytes; entries of version 0.1 have the complete state; secrets redacted; NULL at a create';
COMMENT ON COLUMN audit_log.after  IS 'The same as it was after the change; NULL at a delete';

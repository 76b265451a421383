-- What the archived workflows of a team add up to. 0135 counts those that exist.
--
-- Archiving takes a workflow out of the limits of its team, while its row, its inputs and its history stay until an admin deletes them. So
-- a loop of creates and archives could fill the disk of all teams.
--
-- A file of its own: edits and lists of limits wait only for a moment.
ALTER TABLE team_usage
    ADD COLUMN archived_workflows BIGINT NOT NULL DEFAULT 0,
    ADD COLUMN archived_bytes     BIGINT NOT NULL DEFAULT 0;

COMMENT ON TABLE  team_usage                    IS 'What the workflows of a team add up to; triggers on workflows count, so an edit reads one row';
COMMENT ON COLUMN team_usage.workflows          IS 'Its workflows that are not archived';
COMMENT ON COLUMN team_usage.fires_per_hour     IS 'The sum of their fires_per_hour';
COMMENT ON COLUMN team_usage.input_bytes        IS 'The sum of their input_bytes';
COMMENT ON COLUMN team_usage.archived_workflows IS 'Its archived workflows';
COMMENT ON COLUMN team_usage.archived_bytes     IS 'The sum of their input_bytes';

-- The sweep: all that stands in EventBridge, held against the database.
--
--   sweeps     a comparison that is asked for, under way or done. At most one is open.
--   sightings  which workflows the open sweep has found listed, so that who continues it, a tick or
--              a process later, can tell what is missing without having seen the earlier pages.
--   orphans    schedules of ours by name that no workflow accounts for; deleted at the second look.
CREATE TABLE sweeps (
    id           BIGINT      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    requested_by TEXT        NOT NULL,
    force        BOOLEAN     NOT NULL DEFAULT FALSE,
    requested_on timestamptz NOT NULL,
    started_on   timestamptz NULL,
    listed_on    timestamptz NULL,
    finished_on  timestamptz NULL,
    locked_by    TEXT        NULL,
    locked_until timestamptz NULL,
    next_token   TEXT        NULL,
    sample_every BIGINT      NOT NULL DEFAULT 1 CONSTRAINT sweeps_sample_every CHECK (sample_every > 0),
    report       JSONB       NOT NULL DEFAULT '{}',
    CONSTRAINT sweeps_lease CHECK ((locked_by IS NULL) = (locked_until IS NULL))
);

CREATE UNIQUE INDEX sweeps_open ON sweeps ((TRUE)) WHERE finished_on IS NULL;

COMMENT ON INDEX  sweeps_open         IS 'At most one sweep is open, whoever asks';
COMMENT ON TABLE  sweeps              IS 'Comparisons of EventBridge with the database: asked for, under way, done';
COMMENT ON COLUMN sweeps.id           IS 'Identity';
COMMENT ON COLUMN sweeps.requested_by IS 'The key''s public prefix, or publisher when it was time';
COMMENT ON COLUMN sweeps.force        IS 'Whether a mass of orphans may be deleted';
COMMENT ON COLUMN sweeps.requested_on IS 'When it was asked for (cronbox_now)';
COMMENT ON COLUMN sweeps.started_on   IS 'When the first publisher took it (cronbox_now)';
COMMENT ON COLUMN sweeps.listed_on    IS 'When the list came to its end; what is missing can be told from then on';
COMMENT ON COLUMN sweeps.finished_on  IS 'When it was done; NULL = open';
COMMENT ON COLUMN sweeps.locked_by    IS 'The publisher that works on it, NULL = none';
COMMENT ON COLUMN sweeps.locked_until IS 'When that publisher''s lease lapses (cronbox_now)';
COMMENT ON COLUMN sweeps.next_token   IS 'Where the list goes on; NULL = at its beginning';
COMMENT ON COLUMN sweeps.sample_every IS 'One in so many workflows is read whole, another one each sweep';
COMMENT ON COLUMN sweeps.report       IS 'What was found and done so far';

CREATE TABLE sightings (
    sweep_id    BIGINT NOT NULL REFERENCES sweeps ON DELETE CASCADE,
    workflow_id BIGINT NOT NULL,
    PRIMARY KEY (sweep_id, workflow_id)
);

COMMENT ON TABLE  sightings             IS 'Workflows whose schedule the open sweep has found listed; emptied when it is done';
COMMENT ON COLUMN sightings.sweep_id    IS 'The sweep';
COMMENT ON COLUMN sightings.workflow_id IS 'The workflow that the schedule''s name says';

CREATE TABLE orphans (
    name       TEXT        PRIMARY KEY,
    first_seen timestamptz NOT NULL,
    last_seen  timestamptz NOT NULL
);

COMMENT ON TABLE  orphans            IS 'Schedules with a name of ours that no workflow accounts for';
COMMENT ON COLUMN orphans.name       IS 'The schedule''s name, wf-<id>-<env>';
COMMENT ON COLUMN orphans.first_seen IS 'When a sweep first listed it (cronbox_now)';
COMMENT ON COLUMN orphans.last_seen  IS 'When a sweep last listed it (cronbox_now)';

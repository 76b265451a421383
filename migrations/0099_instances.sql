-- The instances of the app: each says every 10 s that it is there. Nothing depends on it: leases decide which instance owns a run or a job.
CREATE TABLE instances (
    id         uuid        PRIMARY KEY,
    version    text        NOT NULL,
    started_on timestamptz NOT NULL,
    seen_on    timestamptz NOT NULL,
    slots      integer     NOT NULL,
    has_jobs   boolean     NOT NULL,
    stops      boolean     NOT NULL DEFAULT FALSE
) WITH (fillfactor = 50);

COMMENT ON TABLE  instances            IS 'Instances of the app, for operators';
COMMENT ON COLUMN instances.id         IS 'The id by which it owns leases of runs and jobs';
COMMENT ON COLUMN instances.version    IS 'The version of its program';
COMMENT ON COLUMN instances.started_on IS 'When it started';
COMMENT ON COLUMN instances.seen_on    IS 'When it last said that it is there (cronbox_now)';
COMMENT ON COLUMN instances.slots      IS 'How many runs it executes at once';
COMMENT ON COLUMN instances.has_jobs   IS 'Whether it takes background jobs';
COMMENT ON COLUMN instances.stops      IS 'Whether it shuts down: it accepts fires, and starts no more runs';

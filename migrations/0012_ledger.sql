-- Runs that are tried again, recovered, replaced and backfilled; and the jobs that see to it.
ALTER TABLE runs
    ADD COLUMN tries       INTEGER     NOT NULL DEFAULT 0,
    ADD COLUMN recoveries  INTEGER     NOT NULL DEFAULT 0,
    ADD COLUMN late_result JSONB       NULL,
    ADD COLUMN inputs      JSONB       NULL,
    ADD COLUMN backfill_id UUID        NULL;

CREATE INDEX idx_runs_live ON runs (workflow_id, run_after, id) WHERE state IN ('accepted', 'queued', 'running');
CREATE INDEX idx_runs_queued ON runs (created_on) WHERE state = 'queued';
CREATE INDEX idx_runs_finished_on ON runs (finished_on) WHERE finished_on IS NOT NULL;
CREATE INDEX idx_runs_backfill_id ON runs (backfill_id) WHERE backfill_id IS NOT NULL;

COMMENT ON COLUMN runs.tries       IS 'Answers that failed; at most the workflow''s max_attempts';
COMMENT ON COLUMN runs.recoveries  IS 'Times that it went on after its instance died';
COMMENT ON COLUMN runs.late_result IS 'What an attempt answered after it had lost the run';
COMMENT ON COLUMN runs.inputs      IS 'Inputs of this run alone (:fire); NULL = the workflow''s starting inputs';
COMMENT ON COLUMN runs.backfill_id IS 'The backfill that asked for it, NULL = none';
COMMENT ON COLUMN runs.state       IS 'queued -> accepted -> running -> a terminal state, which never changes';

CREATE TABLE jobs (
    name             TEXT        PRIMARY KEY,
    locked_by        UUID        NULL,
    locked_until     timestamptz NULL,
    last_run         timestamptz NULL,
    last_duration_ms BIGINT      NULL,
    last_result      TEXT        NULL CONSTRAINT jobs_last_result CHECK (last_result IN ('success', 'failed', 'skipped')),
    last_error       TEXT        NULL,
    next_run         timestamptz NOT NULL,
    run_count        BIGINT      NOT NULL DEFAULT 0,
    error_count      BIGINT      NOT NULL DEFAULT 0,
    CONSTRAINT jobs_lease CHECK ((locked_by IS NULL) = (locked_until IS NULL))
);

COMMENT ON TABLE  jobs                  IS 'Background jobs of the app; each on one instance at a time';
COMMENT ON COLUMN jobs.name             IS 'watchdog, recovery, timeouts, prune, ..';
COMMENT ON COLUMN jobs.locked_by        IS 'The app instance that runs it now, NULL = none';
COMMENT ON COLUMN jobs.locked_until     IS 'When that instance''s lease lapses (cronbox_now)';
COMMENT ON COLUMN jobs.last_run         IS 'When it last began (business clock)';
COMMENT ON COLUMN jobs.last_duration_ms IS 'Milliseconds that it took';
COMMENT ON COLUMN jobs.last_result      IS 'success, failed, or skipped because there was nothing to do';
COMMENT ON COLUMN jobs.last_error       IS 'Why it last failed; NULL after a success';
COMMENT ON COLUMN jobs.next_run         IS 'When it is to run again (cronbox_now)';
COMMENT ON COLUMN jobs.run_count        IS 'Runs so far';
COMMENT ON COLUMN jobs.error_count      IS 'Failed runs so far';

CREATE TABLE backfills (
    id             UUID        PRIMARY KEY,
    workflow_id    BIGINT      NOT NULL CONSTRAINT backfills_workflow_id_fkey REFERENCES workflows (id) ON DELETE CASCADE,
    start_at       timestamptz NOT NULL,
    end_at         timestamptz NOT NULL,
    run_order      TEXT        NOT NULL CONSTRAINT backfills_run_order CHECK (run_order IN ('oldest_first', 'newest_first')),
    only_decided   TEXT        NOT NULL CONSTRAINT backfills_only_decided CHECK (only_decided IN ('missing', 'failed', 'all')),
    max_concurrent INTEGER     NOT NULL CONSTRAINT backfills_max_concurrent CHECK (max_concurrent BETWEEN 1 AND 10),
    state          TEXT        NOT NULL CONSTRAINT backfills_state CHECK (state IN ('running', 'paused', 'cancelled', 'finished')),
    cursor_at      timestamptz NULL,
    total          BIGINT      NOT NULL,
    started        BIGINT      NOT NULL DEFAULT 0,
    requested_by   TEXT        NOT NULL,
    created_on     timestamptz NOT NULL,
    updated_on     timestamptz NOT NULL,
    finished_on    timestamptz NULL,
    CONSTRAINT backfills_span CHECK (start_at < end_at),
    CONSTRAINT backfills_finished CHECK ((state IN ('cancelled', 'finished')) = (finished_on IS NOT NULL))
);

CREATE INDEX idx_backfills_running ON backfills (created_on) WHERE state = 'running';
CREATE INDEX idx_backfills_workflow_id ON backfills (workflow_id);

COMMENT ON TABLE  backfills                IS 'Times of the past that somebody wants run; worked off beside the live schedule';
COMMENT ON COLUMN backfills.id             IS 'Identity (uuid v7)';
COMMENT ON COLUMN backfills.workflow_id    IS 'The workflow; a hard delete erases its backfills';
COMMENT ON COLUMN backfills.start_at       IS 'The first time that may be meant';
COMMENT ON COLUMN backfills.end_at         IS 'Every time meant lies before this';
COMMENT ON COLUMN backfills.run_order      IS 'oldest_first or newest_first';
COMMENT ON COLUMN backfills.only_decided   IS 'missing: times that never ran; failed: whose last run failed; all';
COMMENT ON COLUMN backfills.max_concurrent IS 'Runs of it that may be live at once';
COMMENT ON COLUMN backfills.state          IS 'running, paused, cancelled, finished';
COMMENT ON COLUMN backfills.cursor_at      IS 'The last time that was looked at; NULL = none yet';
COMMENT ON COLUMN backfills.total          IS 'Times meant, counted when it was asked for';
COMMENT ON COLUMN backfills.started        IS 'Runs made so far';
COMMENT ON COLUMN backfills.requested_by   IS 'The key that asked (its public prefix)';
COMMENT ON COLUMN backfills.created_on     IS 'When it was asked for (business clock)';
COMMENT ON COLUMN backfills.updated_on     IS 'When it last went on (business clock)';
COMMENT ON COLUMN backfills.finished_on    IS 'When it ended (business clock)';

-- `occurrences` is the judge: UNIQUE (workflow_id, scheduled_time) decides who runs a time that a
-- schedule owed. The two tables name each other without foreign keys, because they are pruned apart.
CREATE TABLE occurrences (
    id             UUID        PRIMARY KEY,
    workflow_id    BIGINT      NOT NULL CONSTRAINT occurrences_workflow_id_fkey REFERENCES workflows (id) ON DELETE CASCADE,
    scheduled_time timestamptz NOT NULL,
    decision       TEXT        NOT NULL CONSTRAINT occurrences_decision CHECK (decision IN
                       ('fired', 'caught_up', 'backfilled', 'skipped_overlap', 'skipped_paused', 'missed', 'abandoned')),
    reason         TEXT        NULL,
    revision       BIGINT      NULL,
    run_id         UUID        NULL,
    raw_time       TEXT        NULL,
    execution_id   TEXT        NULL,
    attempt        INTEGER     NULL,
    lateness_s     BIGINT      NOT NULL,
    decided_on     timestamptz NOT NULL,
    created_on     timestamptz NOT NULL,
    updated_on     timestamptz NOT NULL,
    CONSTRAINT occurrences_workflow_id_scheduled_time_key UNIQUE (workflow_id, scheduled_time),
    CONSTRAINT occurrences_minute CHECK (date_trunc('minute', scheduled_time, 'UTC') = scheduled_time)
);

CREATE INDEX idx_occurrences_scheduled_time ON occurrences (workflow_id, scheduled_time DESC);
CREATE INDEX idx_occurrences_run_id ON occurrences (run_id) WHERE run_id IS NOT NULL;
CREATE INDEX idx_occurrences_decided_on ON occurrences (decided_on DESC);

COMMENT ON TABLE  occurrences                IS 'One time that a schedule owed, with its one decision';
COMMENT ON COLUMN occurrences.id             IS 'Identity (uuid v7)';
COMMENT ON COLUMN occurrences.workflow_id    IS 'The workflow; a hard delete erases its occurrences';
COMMENT ON COLUMN occurrences.scheduled_time IS 'The nominal time, floored to the minute';
COMMENT ON COLUMN occurrences.decision       IS 'What was decided; only missed may still become fired, caught_up or backfilled';
COMMENT ON COLUMN occurrences.reason         IS 'Why, in a word or a sentence';
COMMENT ON COLUMN occurrences.revision       IS 'The schedule version that owed this time';
COMMENT ON COLUMN occurrences.run_id         IS 'The first run of this time, NULL = none';
COMMENT ON COLUMN occurrences.raw_time       IS 'The time as the fire spelled it';
COMMENT ON COLUMN occurrences.execution_id   IS 'EventBridge''s id of the delivery; changes per attempt, never a key';
COMMENT ON COLUMN occurrences.attempt        IS 'EventBridge''s attempt number of the delivery';
COMMENT ON COLUMN occurrences.lateness_s     IS 'Seconds from the nominal time to the decision';
COMMENT ON COLUMN occurrences.decided_on     IS 'When it was decided (business clock)';
COMMENT ON COLUMN occurrences.created_on     IS 'When the row was made (business clock)';
COMMENT ON COLUMN occurrences.updated_on     IS 'When the row last changed (business clock)';

CREATE TABLE runs (
    id                  UUID        PRIMARY KEY,
    workflow_id         BIGINT      NOT NULL CONSTRAINT runs_workflow_id_fkey REFERENCES workflows (id) ON DELETE CASCADE,
    occurrence_id       UUID        NULL,
    trigger             TEXT        NOT NULL CONSTRAINT runs_trigger CHECK (trigger IN ('schedule', 'manual', 'catch_up', 'backfill', 'retry')),
    state               TEXT        NOT NULL CONSTRAINT runs_state CHECK (state IN
                            ('accepted', 'queued', 'running', 'succeeded', 'failed', 'timed_out', 'cancelled', 'abandoned')),
    scheduled_time      timestamptz NULL,
    run_after           timestamptz NOT NULL,
    attempt             INTEGER     NOT NULL DEFAULT 0,
    created_on          timestamptz NOT NULL,
    started_on          timestamptz NULL,
    finished_on         timestamptz NULL,
    locked_by           UUID        NULL,
    locked_at           timestamptz NULL,
    cancel_requested_on timestamptz NULL,
    result              JSONB       NULL,
    error               TEXT        NULL,
    duration_ms         BIGINT      NULL,
    CONSTRAINT runs_lock CHECK ((locked_by IS NULL) = (locked_at IS NULL)),
    CONSTRAINT runs_finished CHECK ((state IN ('succeeded', 'failed', 'timed_out', 'cancelled', 'abandoned')) = (finished_on IS NOT NULL))
);

CREATE INDEX idx_runs_workflow_id ON runs (workflow_id, id DESC);
CREATE INDEX idx_runs_accepted ON runs (run_after) WHERE state = 'accepted';
CREATE INDEX idx_runs_running ON runs (locked_at) WHERE state = 'running';
CREATE INDEX idx_runs_occurrence_id ON runs (occurrence_id) WHERE occurrence_id IS NOT NULL;

COMMENT ON TABLE  runs                     IS 'One execution of a workflow';
COMMENT ON COLUMN runs.id                  IS 'Identity (uuid v7), handed to the action so that a receiver can deduplicate';
COMMENT ON COLUMN runs.workflow_id         IS 'The workflow; a hard delete erases its runs';
COMMENT ON COLUMN runs.occurrence_id       IS 'The occurrence that it runs, NULL = started by hand';
COMMENT ON COLUMN runs.trigger             IS 'What started it';
COMMENT ON COLUMN runs.state               IS 'accepted -> running -> a terminal state, which never changes';
COMMENT ON COLUMN runs.scheduled_time      IS 'The nominal time that it runs, NULL = started by hand';
COMMENT ON COLUMN runs.run_after           IS 'Not to be started before (business clock)';
COMMENT ON COLUMN runs.attempt             IS 'Claims so far; the fence of every later update';
COMMENT ON COLUMN runs.created_on          IS 'When it was accepted (business clock)';
COMMENT ON COLUMN runs.started_on          IS 'When this attempt started (business clock)';
COMMENT ON COLUMN runs.finished_on         IS 'When it came to a terminal state (business clock)';
COMMENT ON COLUMN runs.locked_by           IS 'The app instance that executes it';
COMMENT ON COLUMN runs.locked_at           IS 'That instance''s last sign of life (cronbox_now)';
COMMENT ON COLUMN runs.cancel_requested_on IS 'When somebody asked to cancel it';
COMMENT ON COLUMN runs.result              IS 'What the action answered';
COMMENT ON COLUMN runs.error               IS 'Why it failed, in a sentence';
COMMENT ON COLUMN runs.duration_ms         IS 'Milliseconds from started_on to finished_on';

-- A late answer of a lost attempt must never turn a finished run into another one.
CREATE FUNCTION runs_guard_terminal() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF OLD.finished_on IS NOT NULL
       AND (OLD.state, OLD.result, OLD.error, OLD.finished_on) IS DISTINCT FROM (NEW.state, NEW.result, NEW.error, NEW.finished_on) THEN
        RAISE EXCEPTION 'run %: % is final', OLD.id, OLD.state
            USING ERRCODE = 'check_violation', CONSTRAINT = 'runs_guard_terminal';
    END IF;
    RETURN NEW;
END
$$;

CREATE TRIGGER runs_guard_terminal
    BEFORE UPDATE ON runs
    FOR EACH ROW EXECUTE FUNCTION runs_guard_terminal();

COMMENT ON FUNCTION runs_guard_terminal() IS 'Refuses a change of a terminal state or its result';

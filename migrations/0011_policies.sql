-- What a schedule does with times that were missed, runs that overlap, and runs that are lost; and
-- how far the ledger has accounted for the times that it owed.
ALTER TABLE workflows
    ADD COLUMN overlap_policy        TEXT        NOT NULL DEFAULT 'skip' CONSTRAINT workflows_overlap_policy
        CHECK (overlap_policy IN ('skip', 'queue', 'queue_one', 'replace', 'concurrent')),
    ADD COLUMN max_concurrent        INTEGER     NOT NULL DEFAULT 10 CONSTRAINT workflows_max_concurrent CHECK (max_concurrent BETWEEN 1 AND 100),
    ADD COLUMN catch_up_policy       TEXT        NOT NULL DEFAULT 'skip' CONSTRAINT workflows_catch_up_policy
        CHECK (catch_up_policy IN ('none', 'skip', 'run_all')),
    ADD COLUMN catch_up_window_secs  INTEGER     NOT NULL DEFAULT 86400 CONSTRAINT workflows_catch_up_window_secs CHECK (catch_up_window_secs BETWEEN 60 AND 2592000),
    ADD COLUMN spread_secs           INTEGER     NOT NULL DEFAULT 0 CONSTRAINT workflows_spread_secs CHECK (spread_secs BETWEEN 0 AND 3600),
    ADD COLUMN timeout_secs          INTEGER     NOT NULL DEFAULT 300 CONSTRAINT workflows_timeout_secs CHECK (timeout_secs BETWEEN 1 AND 86400),
    ADD COLUMN max_attempts          INTEGER     NOT NULL DEFAULT 1 CONSTRAINT workflows_max_attempts CHECK (max_attempts BETWEEN 1 AND 20),
    ADD COLUMN on_lost               TEXT        NOT NULL DEFAULT 'retry' CONSTRAINT workflows_on_lost CHECK (on_lost IN ('retry', 'abandon')),
    ADD COLUMN pause_after_failures  INTEGER     NULL CONSTRAINT workflows_pause_after_failures CHECK (pause_after_failures BETWEEN 1 AND 1000),
    ADD COLUMN pause_until           timestamptz NULL,
    ADD COLUMN schedule_activated_at timestamptz NULL,
    ADD COLUMN ledger_cursor         timestamptz NULL,
    ADD COLUMN watch_at              timestamptz NULL,
    ADD COLUMN managed_by            TEXT        NULL,
    ADD CONSTRAINT workflows_pause_until CHECK (pause_until IS NULL OR state = 'paused');

CREATE INDEX idx_workflows_watch_at ON workflows (watch_at) WHERE watch_at IS NOT NULL;

COMMENT ON COLUMN workflows.overlap_policy        IS 'What a fire does while a run before it has not ended: skip, queue, queue_one, replace, concurrent';
COMMENT ON COLUMN workflows.max_concurrent        IS 'Runs at once under concurrent';
COMMENT ON COLUMN workflows.catch_up_policy       IS 'Which missed times run late: none, skip (the newest alone), run_all';
COMMENT ON COLUMN workflows.catch_up_window_secs  IS 'A missed time older than this does not run any more';
COMMENT ON COLUMN workflows.spread_secs           IS 'Execution waits a fixed share of these seconds, by the id, so that a full hour is no burst';
COMMENT ON COLUMN workflows.timeout_secs          IS 'How long one attempt of a run may take before it is cancelled';
COMMENT ON COLUMN workflows.max_attempts          IS 'Answers that may fail before a run has failed';
COMMENT ON COLUMN workflows.on_lost               IS 'What becomes of a run whose instance died: retry (the same run goes on) or abandon';
COMMENT ON COLUMN workflows.pause_after_failures  IS 'Failed runs in a row that pause the workflow; NULL = never';
COMMENT ON COLUMN workflows.pause_until           IS 'When the pause ends by itself; NULL = when resumed';
COMMENT ON COLUMN workflows.schedule_activated_at IS 'Since when the timing stands (create, cron or timezone change, resume); nothing earlier is caught up';
COMMENT ON COLUMN workflows.ledger_cursor         IS 'Every time owed up to here has its row in occurrences';
COMMENT ON COLUMN workflows.watch_at              IS 'The earliest time that the watchdog may have to account for; NULL = owes nothing';
COMMENT ON COLUMN workflows.managed_by            IS 'The file that owns the workflow (app serve --schedules); NULL = the API';

-- The ledger begins with this migration: what lies before it is nobody's debt.
UPDATE workflows w
   SET ledger_cursor = clock_timestamp(),
       watch_at = clock_timestamp(),
       schedule_activated_at = (SELECT max(valid_from) FROM schedule_versions v WHERE v.workflow_id = w.id)
 WHERE w.revision > 0;

CREATE OR REPLACE FUNCTION workflows_guard_revision() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'INSERT' THEN
        IF NEW.revision <> (CASE WHEN NEW.cron_schedule IS NULL THEN 0 ELSE 1 END) THEN
            RAISE EXCEPTION 'workflow %: a new workflow has revision 1 with a cron, 0 without', NEW.id
                USING ERRCODE = 'check_violation', CONSTRAINT = 'workflows_guard_revision';
        END IF;
    ELSIF (OLD.cron_schedule, OLD.timezone, OLD.state, OLD.starts_at, OLD.ends_at, OLD.pause_until)
          IS DISTINCT FROM (NEW.cron_schedule, NEW.timezone, NEW.state, NEW.starts_at, NEW.ends_at, NEW.pause_until)
          AND NEW.revision <= OLD.revision
          AND NOT (OLD.revision = 0 AND NEW.cron_schedule IS NULL) THEN
        RAISE EXCEPTION 'workflow %: a change of timing or state needs a higher revision', NEW.id
            USING ERRCODE = 'check_violation', CONSTRAINT = 'workflows_guard_revision';
    END IF;
    RETURN NULL;
END
$$;

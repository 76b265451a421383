-- The progress of the ledger, apart from the wide row of the workflow. A workflow whose times are decided as usual follows its
-- shard: one watermark for all of them, so that a pass of the watchdog without an undecided time writes no row per workflow.
-- Only a workflow that needs a check of its own (an edit, a backlog, an unknown timezone) has a `watch_at`.
CREATE TABLE watchdog_shards (
    shard           SMALLINT    PRIMARY KEY CONSTRAINT watchdog_shards_shard CHECK (shard BETWEEN 0 AND 7),
    decided_through timestamptz NOT NULL,
    epoch           BIGINT      NOT NULL DEFAULT 0,
    lease_until     timestamptz NULL
);

-- No workflow follows yet. The epoch is no time that a clock of a test may precede.
INSERT INTO watchdog_shards (shard, decided_through) SELECT shard, 'epoch' FROM generate_series(0, 7) AS shard;

COMMENT ON TABLE  watchdog_shards IS 'The shares of the watchdog: workflow_id % 8. Instances lease them separately';
COMMENT ON COLUMN watchdog_shards.shard IS 'workflow_id % 8';
COMMENT ON COLUMN watchdog_shards.decided_through IS 'Every due time up to here of the workflows that follow the shard has its row in occurrences';
COMMENT ON COLUMN watchdog_shards.epoch IS '+1 with each lease: a pass whose lease another one has taken changes nothing here';
COMMENT ON COLUMN watchdog_shards.lease_until IS 'When the lease of the pass that processes it ends (cronbox_now); NULL = not leased';

-- fillfactor: a row changes in place when its workflow begins or ceases to follow.
CREATE TABLE ledger (
    workflow_id  BIGINT      PRIMARY KEY CONSTRAINT ledger_workflow_id_fkey REFERENCES workflows (id) ON DELETE CASCADE,
    shard        SMALLINT    NOT NULL GENERATED ALWAYS AS ((workflow_id % 8)::smallint) STORED,
    cursor       timestamptz NOT NULL,
    watch_at     timestamptz NULL,
    activated_on timestamptz NULL,
    cron         TEXT        NULL,
    timezone     TEXT        NOT NULL DEFAULT '',
    starts_at    timestamptz NULL,
    ends_at      timestamptz NULL
) WITH (fillfactor = 70);

-- Neither index has a column that a quiet pass changes.
CREATE INDEX idx_ledger_watched ON ledger (shard, watch_at, workflow_id) WHERE watch_at IS NOT NULL;
CREATE INDEX idx_ledger_following ON ledger (shard, cron, timezone, workflow_id) WHERE watch_at IS NULL AND cron IS NOT NULL;

COMMENT ON TABLE  ledger IS 'How far the due times of a workflow are decided; no row = it never had a cron';
COMMENT ON COLUMN ledger.workflow_id IS 'The workflow; a hard delete erases its row';
COMMENT ON COLUMN ledger.shard IS 'The row of watchdog_shards that it may follow';
COMMENT ON COLUMN ledger.cursor IS 'Every due time up to here has its row in occurrences; a workflow that follows is decided through the end of its shard, if that is later';
COMMENT ON COLUMN ledger.watch_at IS 'The earliest time that may have to be decided for this workflow only; NULL = it follows its shard';
COMMENT ON COLUMN ledger.activated_on IS 'Since when the current timing is in force (create, cron or timezone change, resume); nothing earlier is caught up';
COMMENT ON COLUMN ledger.cron IS 'The cron by which it follows its shard; NULL = no time is due while it follows';
COMMENT ON COLUMN ledger.timezone IS 'The timezone of this cron; empty = UTC';
COMMENT ON COLUMN ledger.starts_at IS 'No time before this is due; NULL = no start';
COMMENT ON COLUMN ledger.ends_at IS 'No time from this on is due; NULL = no end';

CREATE FUNCTION ledger_decided_through(cursor timestamptz, watch_at timestamptz, shard_through timestamptz)
RETURNS timestamptz LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT CASE WHEN watch_at IS NULL THEN GREATEST(cursor, shard_through) ELSE cursor END
$$;

COMMENT ON FUNCTION ledger_decided_through(timestamptz, timestamptz, timestamptz) IS 'Up to when the due times of a workflow are decided: by itself, or by the shard that it follows';

-- The version before writes these columns of workflows; this version does not, so its statements do not fire the trigger.
CREATE FUNCTION workflows_write_ledger() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    at timestamptz := COALESCE(NEW.ledger_cursor, NEW.watch_at - INTERVAL '1 microsecond');
BEGIN
    IF at IS NULL THEN
        RETURN NULL;
    END IF;
    IF TG_OP = 'UPDATE' AND NEW.revision = OLD.revision AND NEW.schedule_activated_at IS NOT DISTINCT FROM OLD.schedule_activated_at
       AND NEW.pause_until IS NOT DISTINCT FROM OLD.pause_until
       AND (NEW.watch_at IS NULL OR NEW.watch_at >= OLD.watch_at) THEN
        -- Its watchdog has moved on; ours checks the same times once more.
        RETURN NULL;
    END IF;
    INSERT INTO ledger AS l (workflow_id, cursor, watch_at, activated_on)
    VALUES (NEW.id, at, COALESCE(NEW.watch_at, at + INTERVAL '1 microsecond'), NEW.schedule_activated_at)
    ON CONFLICT (workflow_id) DO UPDATE
       SET cursor = ledger_decided_through(l.cursor, l.watch_at, (SELECT decided_through FROM watchdog_shards s WHERE s.shard = l.shard)),
           watch_at = LEAST(l.watch_at, excluded.watch_at,
                            INTERVAL '1 microsecond'
                            + ledger_decided_through(l.cursor, l.watch_at, (SELECT decided_through FROM watchdog_shards s WHERE s.shard = l.shard))),
           activated_on = COALESCE(excluded.activated_on, l.activated_on);
    RETURN NULL;
END
$$;

COMMENT ON FUNCTION workflows_write_ledger() IS 'Writes what the version before stores in workflows into the table ledger';

CREATE TRIGGER workflows_write_ledger
    AFTER INSERT OR UPDATE OF ledger_cursor, watch_at, schedule_activated_at ON workflows
    FOR EACH ROW EXECUTE FUNCTION workflows_write_ledger();

COMMENT ON COLUMN workflows.ledger_cursor         IS 'Written by the version before only: see ledger.cursor';
COMMENT ON COLUMN workflows.watch_at              IS 'Written by the version before only: see ledger.watch_at';
COMMENT ON COLUMN workflows.schedule_activated_at IS 'Written by the version before only: see ledger.activated_on';

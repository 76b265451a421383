-- Runs that have not ended are a small table that is updated. Runs that have ended are a history by day that is written once
-- (docs/adr/0020-a-queue-and-a-history-of-runs.md). Both are partitions of `runs`, so a reader names one table, and Postgres reads only the
-- partitions that its condition on `state` and `id` permits.
--
-- Runs that have ended are not copied: their table becomes the partition of all days up to tomorrow. The transaction reads it twice
-- (NOT NULL and the bounds), about 5 s per million rows on a slow disk; until then fires wait, and EventBridge repeats them.
--
-- The version before continues beside this schema: its UPDATE of a state to a terminal one moves the row. A transaction that waits for
-- such a row fails with 40001. This version deletes and inserts instead, so its own waiters find no row, as before.

-- An id of the app is a uuid v7: its first 48 bits are the milliseconds since 1970.
CREATE FUNCTION uuid_v7_floor(at timestamptz) RETURNS uuid LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
    AS $$ SELECT (lpad(to_hex((EXTRACT(EPOCH FROM at) * 1000)::bigint), 12, '0') || repeat('0', 20))::uuid $$;

COMMENT ON FUNCTION uuid_v7_floor(timestamptz) IS 'The least uuid v7 of a time: a bound of ids by the time at which they were made';

-- The partitions of a table have no gap: the one before the days, the days, and the one after them. So none is a default partition, with
-- which Postgres could not read them one after the other in the order of their keys, and would begin to read all of them for each list.
CREATE TABLE partition_bounds (
    parent    TEXT        PRIMARY KEY,
    first_day timestamptz NOT NULL,
    next_day  timestamptz NOT NULL,
    unit      TEXT        NOT NULL DEFAULT 'day',
    locked_on timestamptz NULL,
    CONSTRAINT partition_bounds_days CHECK (first_day <= next_day),
    CONSTRAINT partition_bounds_unit CHECK (unit IN ('day', 'month'))
);

COMMENT ON TABLE  partition_bounds           IS 'Which days of a table have partitions of their own; written only by make_day_partitions and drop_oldest_partition';
COMMENT ON COLUMN partition_bounds.parent    IS 'The partitioned table, for example occurrences';
COMMENT ON COLUMN partition_bounds.first_day IS 'The bound between the partition before the days and the first day';
COMMENT ON COLUMN partition_bounds.next_day  IS 'The bound between the last day and the partition after the days';
COMMENT ON COLUMN partition_bounds.unit      IS 'What one partition has: a day, or a month of a table that is small or kept for long (UTC)';
COMMENT ON COLUMN partition_bounds.locked_on IS 'When the job prune last found the table locked (cronbox_now), and tries again a minute later; NULL = it did what was due';

LOCK TABLE runs IN ACCESS EXCLUSIVE MODE;

DROP TRIGGER runs_guard_terminal ON runs;
DROP TRIGGER runs_lease_of_old_app ON runs;
DROP TRIGGER runs_set_team ON runs;
DROP TRIGGER runs_count_end ON runs;
DROP TRIGGER runs_count_ended ON runs;
DROP INDEX idx_runs_automatic, idx_runs_claim, idx_runs_live, idx_runs_queued, idx_runs_running, idx_runs_workflow_id;
ALTER TABLE runs
    -- The partitions permit no other state.
    DROP CONSTRAINT runs_state,
    ALTER COLUMN team_id SET NOT NULL;
ALTER TABLE runs ADD COLUMN token_hash bytea NULL, ADD COLUMN token_expires_on timestamptz NULL;

COMMENT ON COLUMN runs.token_hash       IS 'SHA-256 of the token by which a caller completes a run that waits (state waiting); NULL = it does not wait';
COMMENT ON COLUMN runs.token_expires_on IS 'Until when that token is accepted (cronbox_now); NULL = it does not wait';
COMMENT ON COLUMN runs.occurrence_id    IS 'The occurrence that it runs, NULL = manual; one automatic run (schedule, catch_up) per occurrence';
COMMENT ON COLUMN runs.team_id          IS 'The team of its workflow, for claims and lists';
COMMENT ON COLUMN runs.state            IS 'queued -> accepted -> running -> a terminal state, which never changes; waiting: until a caller completes it';
COMMENT ON COLUMN runs.result           IS 'What the action answered; NULL if it is in run_results, because it is longer than 1 KiB';

ALTER TABLE runs RENAME TO runs_ended_before;
ALTER INDEX runs_pkey RENAME TO runs_ended_before_pkey;
ALTER INDEX idx_runs_workflow_key RENAME TO idx_runs_ended_before_workflow_id;
ALTER INDEX idx_runs_team RENAME TO idx_runs_ended_before_team;
ALTER INDEX idx_runs_team_failed RENAME TO idx_runs_ended_before_team_failed;
ALTER INDEX idx_runs_scheduled_time RENAME TO idx_runs_ended_before_scheduled_time;
ALTER INDEX idx_runs_backfill_id RENAME TO idx_runs_ended_before_backfill_id;
ALTER INDEX idx_runs_finished_on RENAME TO idx_runs_ended_before_finished_on;
ALTER INDEX idx_runs_abandoned RENAME TO idx_runs_ended_before_abandoned;

CREATE TABLE runs (
    LIKE runs_ended_before INCLUDING DEFAULTS INCLUDING CONSTRAINTS INCLUDING COMMENTS
) PARTITION BY LIST (state);

CREATE TABLE runs_live (
    LIKE runs INCLUDING DEFAULTS INCLUDING CONSTRAINTS INCLUDING COMMENTS,
    CONSTRAINT runs_live_pkey PRIMARY KEY (id),
    CONSTRAINT runs_waiting CHECK ((state = 'waiting') = (token_hash IS NOT NULL) AND (state = 'waiting') = (token_expires_on IS NOT NULL))
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 10000);

-- A renewal of a lease changes no column of an index, and its page has room: so it is HOT.
CREATE UNIQUE INDEX idx_runs_automatic ON runs_live (workflow_id, (CASE WHEN trigger IN ('schedule', 'catch_up') THEN scheduled_time END));
CREATE INDEX idx_runs_claim ON runs_live (team_id, run_after) WHERE state = 'accepted';
CREATE INDEX idx_runs_running ON runs_live (started_on) WHERE state = 'running';
CREATE INDEX idx_runs_live_team ON runs_live (team_id, id);
CREATE INDEX idx_runs_live_backfill_id ON runs_live (backfill_id) WHERE backfill_id IS NOT NULL;

COMMENT ON TABLE  runs               IS 'One execution of a workflow: a run that has not ended is in runs_live, one that has ended in runs_ended';
COMMENT ON TABLE  runs_live          IS 'Runs that have not ended: the queue of the executors, and the leases of what they execute';
COMMENT ON INDEX  idx_runs_automatic IS 'One automatic run of a time (schedule, catch_up) among those that have not ended; other runs have NULL. Also finds the live runs of a workflow';
COMMENT ON INDEX  idx_runs_claim     IS 'A claim reads the accepted runs of a team, the oldest first';
COMMENT ON INDEX  idx_runs_live_team IS 'The list of a team, the newest first; also counts its live runs';
COMMENT ON INDEX  idx_runs_running   IS 'Recovery and timeouts read the runs with a lease; a renewal changes no column of it';

ALTER TABLE runs ATTACH PARTITION runs_live FOR VALUES IN ('accepted', 'queued', 'running', 'waiting');

CREATE TABLE runs_ended (
    LIKE runs INCLUDING DEFAULTS INCLUDING CONSTRAINTS INCLUDING COMMENTS,
    CONSTRAINT runs_ended_pkey PRIMARY KEY (id)
) PARTITION BY RANGE (id);

COMMENT ON TABLE  runs_ended IS 'Runs that have ended, by the day of their ids: each is written once, at its end';

CREATE INDEX idx_runs_workflow_id ON runs_ended (workflow_id, id);
CREATE INDEX idx_runs_team ON runs_ended (team_id, id);
CREATE INDEX idx_runs_team_failed ON runs_ended (team_id, state, id) WHERE state IN ('failed', 'timed_out', 'abandoned');
CREATE INDEX idx_runs_scheduled_time ON runs_ended (workflow_id, scheduled_time) WHERE scheduled_time IS NOT NULL;
CREATE INDEX idx_runs_backfill_id ON runs_ended (backfill_id) WHERE backfill_id IS NOT NULL;
CREATE INDEX idx_runs_finished_on ON runs_ended USING brin (finished_on) WITH (autosummarize = on);
CREATE INDEX idx_runs_abandoned ON runs_ended (finished_on) WHERE state = 'abandoned';

COMMENT ON INDEX idx_runs_workflow_id    IS 'The list of a workflow, the newest first: read backward, by comparisons of rows that only it serves';
COMMENT ON INDEX idx_runs_team           IS 'The list of a team, the newest first: as idx_runs_workflow_id';
COMMENT ON INDEX idx_runs_team_failed    IS 'The list of the failures of a team by state';
COMMENT ON INDEX idx_runs_scheduled_time IS 'verify reads the runs of a span; a backfill finds the last run of an occurrence';
COMMENT ON INDEX idx_runs_backfill_id    IS 'Counts the runs of a backfill';
COMMENT ON INDEX idx_runs_finished_on    IS 'Statistics and alarms read the runs of an hour or a day; BRIN, because runs are inserted in the order of their ends';
COMMENT ON INDEX idx_runs_abandoned      IS 'The gauges count the abandoned runs of the last hour at each tick and each scrape';

CREATE TABLE runs_ended_later (
    LIKE runs INCLUDING DEFAULTS INCLUDING CONSTRAINTS INCLUDING COMMENTS
);

COMMENT ON TABLE  runs_ended_before IS 'Runs whose ids are older than all partitions by day; the job prune removes its rows';
COMMENT ON TABLE  runs_ended_later  IS 'Runs of a day that has no partition yet: none is lost if the job prune made none, and they move when it makes one';
COMMENT ON INDEX  idx_runs_ended_before_finished_on IS 'The job prune removes single rows by it';

-- The days that have partitions of their own begin the day after tomorrow.
DO $$
DECLARE
    first_day  timestamptz := date_trunc('day', cronbox_now(), 'UTC') + INTERVAL '48 hours';
    days_begin uuid := uuid_v7_floor(first_day);
BEGIN
    INSERT INTO partition_bounds (parent, first_day, next_day) VALUES ('runs_ended', first_day, first_day);
    INSERT INTO runs_live SELECT * FROM runs_ended_before WHERE state IN ('accepted', 'queued', 'running');
    -- Normally none: ids of another kind than uuid v7.
    INSERT INTO runs_ended_later SELECT * FROM runs_ended_before WHERE finished_on IS NOT NULL AND id >= days_begin;
    DELETE FROM runs_ended_before WHERE finished_on IS NULL OR id >= days_begin;
    EXECUTE format('ALTER TABLE runs_ended ATTACH PARTITION runs_ended_later FOR VALUES FROM (%L) TO (MAXVALUE)', days_begin);
    EXECUTE format('ALTER TABLE runs_ended ATTACH PARTITION runs_ended_before FOR VALUES FROM (MINVALUE) TO (%L)', days_begin);
END
$$;
ALTER TABLE runs ATTACH PARTITION runs_ended
    FOR VALUES IN ('succeeded', 'failed', 'timed_out', 'cancelled', 'abandoned');

-- Only a run that has ended is final.
CREATE TRIGGER runs_guard_terminal
    BEFORE UPDATE ON runs_ended
    FOR EACH ROW EXECUTE FUNCTION runs_guard_terminal();

CREATE TRIGGER runs_lease_of_old_app
    BEFORE UPDATE OF locked_at ON runs_live
    FOR EACH ROW
    WHEN (NEW.locked_at IS DISTINCT FROM OLD.locked_at AND NEW.lease_until IS NOT DISTINCT FROM OLD.lease_until)
    EXECUTE FUNCTION runs_lease_of_old_app();

CREATE TRIGGER runs_set_team
    BEFORE INSERT ON runs
    FOR EACH ROW WHEN (NEW.team_id IS NULL) EXECUTE FUNCTION runs_set_team();

-- Of runs_ended, into which a statement writes the runs that it ends (migration 48). Those that the version before ends move there by its
-- UPDATE of `runs`, and are not counted.
CREATE TRIGGER runs_count_ended
    AFTER INSERT ON runs_ended REFERENCING NEW TABLE AS inserted
    FOR EACH STATEMENT EXECUTE FUNCTION count_ended_runs();

CREATE TRIGGER runs_count_end
    AFTER UPDATE ON runs_ended
    FOR EACH ROW WHEN ((OLD.finished_on, OLD.handed_over, OLD.recoveries) IS DISTINCT FROM (NEW.finished_on, NEW.handed_over, NEW.recoveries))
    EXECUTE FUNCTION count_run_end();

-- The one place that says what the history keeps of a run. A statement that ends runs deletes them from runs_live and inserts these rows.
CREATE FUNCTION ended_run(
    run runs_live, end_state text, ended_on timestamptz, why text, result jsonb DEFAULT NULL, failed_tries integer DEFAULT 0,
    took_ms bigint DEFAULT NULL, stop_reason text DEFAULT NULL, more_handed_over integer DEFAULT 0
) RETURNS SETOF runs_ended LANGUAGE sql STABLE AS $$
    SELECT run.id, run.workflow_id, run.occurrence_id, run.trigger, end_state, run.scheduled_time, run.run_after, run.attempt, run.created_on,
           run.started_on, ended_on, NULL::uuid, NULL::timestamptz,
           CASE WHEN end_state = 'cancelled' THEN COALESCE(run.cancel_requested_on, ended_on) ELSE run.cancel_requested_on END,
           result, why, took_ms, run.tries + failed_tries, run.recoveries, run.late_result, run.inputs, run.backfill_id, NULL::timestamptz,
           run.handed_over + more_handed_over, run.cut_off, COALESCE(run.cancel_reason, stop_reason), run.retry_of, run.team_id,
           run.handed_over_until, NULL::bytea, NULL::timestamptz
$$;

COMMENT ON FUNCTION ended_run(runs_live, text, timestamptz, text, jsonb, integer, bigint, text, integer) IS
    'The row of a run that has ended: without lease and token; a cancelled one has a time at which its cancellation was requested';

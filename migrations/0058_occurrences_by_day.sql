-- Decisions by day of their time, so that retention drops a table instead of deleting rows. The table of before becomes the partition of
-- all days up to tomorrow; the transaction reads it once, for the bounds.
LOCK TABLE occurrences IN ACCESS EXCLUSIVE MODE;

DROP TRIGGER occurrences_count_decisions ON occurrences;
DROP TRIGGER occurrences_count_changes ON occurrences;

-- The UNIQUE index serves their readers: a run names its workflow and time, and a time has one decision.
DROP INDEX idx_occurrences_run_id;
ALTER TABLE occurrences
    DROP CONSTRAINT occurrences_pkey;
ALTER TABLE occurrences RENAME TO occurrences_before;
ALTER TABLE occurrences_before RENAME CONSTRAINT occurrences_workflow_id_scheduled_time_key TO occurrences_before_key;
ALTER INDEX idx_occurrences_decided_on RENAME TO idx_occurrences_before_decided_on;
ALTER INDEX idx_occurrences_run_time RENAME TO idx_occurrences_before_run_time;
ALTER INDEX idx_occurrences_exceptional RENAME TO idx_occurrences_before_exceptional;

CREATE TABLE occurrences (
    LIKE occurrences_before INCLUDING DEFAULTS INCLUDING COMMENTS,
    CONSTRAINT occurrences_decision CHECK (decision IN
        ('fired', 'caught_up', 'backfilled', 'skipped_overlap', 'skipped_paused', 'missed', 'abandoned')),
    CONSTRAINT occurrences_minute CHECK (date_trunc('minute', scheduled_time, 'UTC') = scheduled_time),
    CONSTRAINT occurrences_workflow_id_scheduled_time_key UNIQUE (workflow_id, scheduled_time)
) PARTITION BY RANGE (scheduled_time);

COMMENT ON TABLE  occurrences             IS 'One due time of a schedule, with its one decision; by the day of the time';
COMMENT ON COLUMN occurrences.id          IS 'Identity (uuid v7), which runs name; not unique by itself';

CREATE INDEX idx_occurrences_decided_on ON occurrences USING brin (decided_on) WITH (autosummarize = on);
COMMENT ON INDEX idx_occurrences_decided_on IS 'Statistics and alarms read the decisions of an hour or a day; BRIN, because decisions are inserted in their order';

CREATE INDEX idx_occurrences_run_time ON occurrences (workflow_id, scheduled_time DESC) WHERE run_id IS NOT NULL;
COMMENT ON INDEX idx_occurrences_run_time IS 'A claim finds the last time that ran, however many times were skipped since';

CREATE INDEX idx_occurrences_exceptional ON occurrences (decided_on) WHERE decision IN ('missed', 'caught_up', 'abandoned');
COMMENT ON INDEX idx_occurrences_exceptional IS 'The gauges count the exceptions of the last hour at each tick and each scrape';

-- occurrences_run is a constraint of each partition: that of before cannot validate it (migration 26).
CREATE TABLE occurrences_later (
    LIKE occurrences INCLUDING DEFAULTS INCLUDING CONSTRAINTS INCLUDING COMMENTS,
    CONSTRAINT occurrences_run CHECK (decision NOT IN ('fired', 'caught_up', 'backfilled') OR run_id IS NOT NULL)
);

COMMENT ON TABLE  occurrences_before IS 'Decisions of times older than all partitions by day, for example backfilled ones; the job prune removes its rows';
COMMENT ON TABLE  occurrences_later  IS 'Decisions of a day that has no partition yet: no fire is lost if the job prune made none, and they move when it makes one';
COMMENT ON INDEX  idx_occurrences_before_decided_on IS 'The job prune removes single rows by it';

DO $$
DECLARE
    days_begin timestamptz := date_trunc('day', cronbox_now(), 'UTC') + INTERVAL '48 hours';
BEGIN
    INSERT INTO partition_bounds (parent, first_day, next_day) VALUES ('occurrences', days_begin, days_begin);
    -- Normally none: decisions of the future.
    INSERT INTO occurrences_later SELECT * FROM occurrences_before WHERE scheduled_time >= days_begin;
    DELETE FROM occurrences_before WHERE scheduled_time >= days_begin;
    EXECUTE format('ALTER TABLE occurrences ATTACH PARTITION occurrences_later FOR VALUES FROM (%L) TO (MAXVALUE)', days_begin);
    EXECUTE format('ALTER TABLE occurrences ATTACH PARTITION occurrences_before FOR VALUES FROM (MINVALUE) TO (%L)', days_begin);
END
$$;

-- As on the table of before (migration 48).
CREATE TRIGGER occurrences_count_decisions
    AFTER INSERT ON occurrences REFERENCING NEW TABLE AS decided
    FOR EACH STATEMENT EXECUTE FUNCTION count_decisions();

CREATE TRIGGER occurrences_count_changes
    AFTER UPDATE ON occurrences
    FOR EACH ROW WHEN ((OLD.decision, OLD.decided_on, OLD.lateness_s) IS DISTINCT FROM (NEW.decision, NEW.decided_on, NEW.lateness_s))
    EXECUTE FUNCTION count_changed_decision();

-- A time has at most one automatic run: a decision names a run once, and idx_runs_automatic permits one that has not ended.
CREATE FUNCTION occurrences_run_once() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    -- A time that was missed or skipped for a pause may still run; a run that a newer fire replaced leaves no name.
    IF NEW.run_id IS NOT NULL AND (OLD.run_id IS NOT NULL OR OLD.decision NOT IN ('missed', 'skipped_paused')) THEN
        RAISE EXCEPTION 'workflow %: % has its run already', OLD.workflow_id, OLD.scheduled_time
            USING ERRCODE = 'check_violation', CONSTRAINT = 'occurrences_run_once';
    END IF;
    RETURN NEW;
END
$$;

COMMENT ON FUNCTION occurrences_run_once() IS 'Refuses a second run of a decision';

CREATE TRIGGER occurrences_run_once
    BEFORE UPDATE OF run_id ON occurrences
    FOR EACH ROW WHEN (OLD.run_id IS DISTINCT FROM NEW.run_id) EXECUTE FUNCTION occurrences_run_once();

-- The audit log by month of its entries, so that a retention drops a table: the log stays append-only for every role of the application. The
-- table of before becomes the partition of all entries up to tomorrow; the transaction reads it three times, for the bounds and two
-- indexes, and edits wait meanwhile.
LOCK TABLE audit_log IN ACCESS EXCLUSIVE MODE;

DROP TRIGGER audit_log_append_only ON audit_log;
ALTER TABLE audit_log DROP CONSTRAINT audit_log_pkey;
ALTER TABLE audit_log RENAME TO audit_log_before;
ALTER INDEX idx_audit_log_subject RENAME TO idx_audit_log_before_subject;

CREATE TABLE audit_log (
    LIKE audit_log_before INCLUDING COMMENTS,
    CONSTRAINT audit_log_pkey PRIMARY KEY (id, at)
) PARTITION BY RANGE (at);

COMMENT ON TABLE  audit_log IS 'Who changed what; append-only, outlives the objects that it names; by the month of the entry';

CREATE INDEX idx_audit_log_subject ON audit_log (subject, id);
CREATE INDEX idx_audit_log_deletions ON audit_log (id) WHERE verb = 'delete' AND subject LIKE 'workflow:%';

COMMENT ON INDEX idx_audit_log_subject   IS 'The history of one object, in its order';
COMMENT ON INDEX idx_audit_log_deletions IS 'Each instance reads every 5 s which workflows were deleted, however many other edits there were';

CREATE TABLE audit_log_later (
    LIKE audit_log INCLUDING COMMENTS
);

COMMENT ON TABLE  audit_log_before IS 'Entries older than all partitions by month; emptied when the oldest month is dropped';
COMMENT ON TABLE  audit_log_later  IS 'Entries of a month that has no partition yet: no edit fails if the job prune made none, and they move when it makes one';

DO $$
DECLARE
    months_begin timestamptz := date_trunc('day', cronbox_now(), 'UTC') + INTERVAL '48 hours';
    next_id      bigint := nextval(pg_get_serial_sequence('audit_log_before', 'id'));
BEGIN
    ALTER TABLE audit_log_before ALTER COLUMN id DROP IDENTITY;
    EXECUTE format('ALTER TABLE audit_log ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (START WITH %s)', next_id);
    INSERT INTO partition_bounds (parent, first_day, next_day, unit) VALUES ('audit_log', months_begin, months_begin, 'month');
    -- Normally none: entries of the future.
    INSERT INTO audit_log_later SELECT * FROM audit_log_before WHERE at >= months_begin;
    DELETE FROM audit_log_before WHERE at >= months_begin;
    EXECUTE format('ALTER TABLE audit_log ATTACH PARTITION audit_log_later FOR VALUES FROM (%L) TO (MAXVALUE)', months_begin);
    EXECUTE format('ALTER TABLE audit_log ATTACH PARTITION audit_log_before FOR VALUES FROM (MINVALUE) TO (%L)', months_begin);
    PERFORM close_table(partition) FROM unnest(ARRAY['audit_log_before', 'audit_log_later']::regclass[]) AS partition;
END
$$;

-- Of the table, as before, and of each row, so of each partition, too.
CREATE TRIGGER audit_log_append_only
    BEFORE UPDATE OR DELETE OR TRUNCATE ON audit_log
    FOR EACH STATEMENT EXECUTE FUNCTION audit_log_append_only();

CREATE TRIGGER audit_log_keep_rows
    BEFORE UPDATE OR DELETE ON audit_log
    FOR EACH ROW EXECUTE FUNCTION audit_log_append_only();

SELECT make_day_partitions('audit_log', cronbox_now(), 8);

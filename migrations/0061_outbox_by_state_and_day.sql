-- Rows of the outbox that are open or have failed are a small table, those that are processed are a history by day
-- (docs/adr/0023-the-outbox-is-a-queue-and-a-history.md). Both are partitions of `outbox_events`. An edit inserts into the small table, and
-- the claims, settles and gauges read only it: their condition `processed_on IS NULL` is the key. A settle, which sets `processed_on`, moves
-- the row. So a day never has an open or a failed row, and is dropped as a whole.
--
-- Processed rows are not copied: their table becomes the partition of all days up to tomorrow. The transaction reads it, for the bounds, and
-- makes one index, about 2 s per million rows on a slow disk; until then edits and the publisher wait.
--
-- The version before continues beside this schema: its UPDATE moves the row, too. It locks the publication of a row before the row, so no
-- transaction waits for a row that is moved.
LOCK TABLE outbox_events IN ACCESS EXCLUSIVE MODE;

DROP FUNCTION outbox_status(outbox_events);
DROP TRIGGER outbox_events_note_removal ON outbox_events;
DROP INDEX idx_outbox_unprocessed, idx_outbox_aggregate_unprocessed;

ALTER TABLE outbox_events RENAME TO outbox_processed_before;
ALTER TABLE outbox_processed_before
    DROP CONSTRAINT outbox_events_pkey,
    RESET (autovacuum_vacuum_scale_factor, autovacuum_vacuum_threshold);
ALTER INDEX idx_outbox_created_on RENAME TO idx_outbox_processed_before_created_on;
ALTER INDEX idx_outbox_failed RENAME TO idx_outbox_processed_before_failed;

CREATE TABLE outbox_events (
    LIKE outbox_processed_before INCLUDING DEFAULTS INCLUDING CONSTRAINTS INCLUDING COMMENTS
) PARTITION BY LIST ((processed_on IS NULL));

COMMENT ON TABLE  outbox_events              IS 'Check this workflow; written in the transaction of the edit, drained by the publisher. Open and failed rows are in outbox_open, others in outbox_closed';
COMMENT ON COLUMN outbox_events.processed_on IS 'When a publisher settled it, or an operator discarded it (cronbox_now), which moves it out of outbox_open; NULL = open or failed';

-- The numbers continue, because a claim covers the rows up to a number.
DO $$
DECLARE
    next_id bigint;
BEGIN
    SELECT CASE WHEN is_called THEN last_value + 1 ELSE last_value END INTO next_id FROM outbox_events_id_seq;
    ALTER TABLE outbox_processed_before ALTER COLUMN id DROP IDENTITY;
    ALTER TABLE outbox_events ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY;
    PERFORM setval(pg_get_serial_sequence('outbox_events', 'id'), next_id, FALSE);
END
$$;

-- It is small except during a backlog. Vacuum must not give back its pages: that would lock out edits, and a plan that is made while the
-- file is empty reads the complete table.
CREATE TABLE outbox_open (
    LIKE outbox_events INCLUDING DEFAULTS INCLUDING CONSTRAINTS INCLUDING COMMENTS,
    CONSTRAINT outbox_open_pkey PRIMARY KEY (id)
) WITH (vacuum_truncate = FALSE, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 10000);

CREATE INDEX idx_outbox_unprocessed ON outbox_open (id) WHERE failed_on IS NULL;
CREATE INDEX idx_outbox_aggregate_unprocessed ON outbox_open (aggregate_id, id) WHERE failed_on IS NULL;

COMMENT ON TABLE  outbox_open                     IS 'Rows of the outbox to be published, and those that failed until an edit or an operator';
COMMENT ON INDEX idx_outbox_unprocessed           IS 'The oldest open row, and the list of open rows; failed ones may be many and old';
COMMENT ON INDEX idx_outbox_aggregate_unprocessed IS 'Claims and settles find the open rows of a workflow';

CREATE TABLE outbox_closed (
    LIKE outbox_events INCLUDING DEFAULTS INCLUDING CONSTRAINTS INCLUDING COMMENTS
) PARTITION BY LIST ((failed_on IS NULL));

CREATE INDEX idx_outbox_closed_id ON outbox_closed (id);

COMMENT ON TABLE  outbox_closed       IS 'Rows of the outbox on which nothing remains to be done';
COMMENT ON INDEX idx_outbox_closed_id IS 'The list of rows, the newest first, and the row that an operator names';

-- Apart from the processed ones, because they are kept for longer, like failed rows.
CREATE TABLE outbox_discarded (
    LIKE outbox_closed INCLUDING DEFAULTS INCLUDING CONSTRAINTS INCLUDING COMMENTS
);

COMMENT ON TABLE  outbox_discarded IS 'Rows that failed and that an operator discarded; the job prune removes its rows';

CREATE TABLE outbox_processed (
    LIKE outbox_closed INCLUDING DEFAULTS INCLUDING CONSTRAINTS INCLUDING COMMENTS
) PARTITION BY RANGE (processed_on);

CREATE TABLE outbox_processed_later (
    LIKE outbox_processed INCLUDING DEFAULTS INCLUDING CONSTRAINTS INCLUDING COMMENTS
);

COMMENT ON TABLE  outbox_processed                      IS 'Rows that a publisher settled, by the day on which it did: a row is written here once, by its settle';
COMMENT ON TABLE  outbox_processed_before               IS 'Rows that were settled before all partitions by day; the job prune removes its rows';
COMMENT ON TABLE  outbox_processed_later                IS 'Rows that were settled on a day that has no partition yet: no settle fails if the job prune made none, and they move when it makes one';
COMMENT ON INDEX idx_outbox_processed_before_created_on IS 'The job prune removes single rows by it';

-- While they are empty, so that the table of before is read once.
ALTER TABLE outbox_events ATTACH PARTITION outbox_open FOR VALUES IN (TRUE);
ALTER TABLE outbox_events ATTACH PARTITION outbox_closed FOR VALUES IN (FALSE);
ALTER TABLE outbox_closed ATTACH PARTITION outbox_discarded FOR VALUES IN (FALSE);
ALTER TABLE outbox_closed ATTACH PARTITION outbox_processed FOR VALUES IN (TRUE);

-- The days that have partitions of their own begin the day after tomorrow.
DO $$
DECLARE
    days_begin timestamptz := date_trunc('day', cronbox_now(), 'UTC') + INTERVAL '48 hours';
BEGIN
    INSERT INTO partition_bounds (parent, first_day, next_day) VALUES ('outbox_processed', days_begin, days_begin);
    INSERT INTO outbox_open SELECT * FROM outbox_processed_before WHERE processed_on IS NULL;
    INSERT INTO outbox_discarded SELECT * FROM outbox_processed_before WHERE processed_on IS NOT NULL AND failed_on IS NOT NULL;
    -- Normally none: rows that a clock ahead of this one settled.
    INSERT INTO outbox_processed_later SELECT * FROM outbox_processed_before WHERE processed_on >= days_begin AND failed_on IS NULL;
    DELETE FROM outbox_processed_before WHERE processed_on IS NULL OR failed_on IS NOT NULL OR processed_on >= days_begin;
    DROP INDEX idx_outbox_processed_before_failed;
    EXECUTE format('ALTER TABLE outbox_processed ATTACH PARTITION outbox_processed_later FOR VALUES FROM (%L) TO (MAXVALUE)', days_begin);
    EXECUTE format('ALTER TABLE outbox_processed ATTACH PARTITION outbox_processed_before FOR VALUES FROM (MINVALUE) TO (%L)', days_begin);
END
$$;

CREATE INDEX idx_outbox_failed ON outbox_open (aggregate_id) WHERE failed_on IS NOT NULL;
CREATE INDEX idx_outbox_discarded_aggregate_id ON outbox_discarded (aggregate_id);

COMMENT ON INDEX idx_outbox_failed                 IS 'The gauges count the failed rows each minute; the job prune removes old ones by it';
COMMENT ON INDEX idx_outbox_discarded_aggregate_id IS 'A revival passes over the workflows whose failure was discarded';

-- Who could use the table of before may use this one at once: a publisher does not wait for the end of `migrate`, which states all grants.
DO $$
DECLARE
    granted text;
BEGIN
    FOR granted IN
        SELECT format('GRANT %s ON outbox_events TO %s', a.privilege_type, CASE a.grantee WHEN 0 THEN 'PUBLIC' ELSE a.grantee::regrole::text END)
          FROM pg_class c, aclexplode(c.relacl) a
         WHERE c.oid = 'outbox_processed_before'::regclass AND a.grantee <> c.relowner
    LOOP
        EXECUTE granted;
    END LOOP;
END
$$;

-- As on the table of before (migration 27). Only where edits insert: a settle that moves the row of a delete event is no new one.
CREATE TRIGGER outbox_events_note_removal
    AFTER INSERT ON outbox_open
    FOR EACH ROW WHEN (NEW.op = 'delete') EXECUTE FUNCTION note_removal();

-- As before (migration 10), of the new table's type.
CREATE FUNCTION outbox_status(o outbox_events) RETURNS text LANGUAGE sql IMMUTABLE AS $$
    SELECT CASE
        WHEN o.processed_on IS NULL AND o.failed_on IS NULL THEN 'pending'
        WHEN o.processed_on IS NULL                         THEN 'failed'
        WHEN o.failed_on IS NULL                            THEN 'processed'
        ELSE 'discarded'
    END
$$;

COMMENT ON FUNCTION outbox_status(outbox_events) IS 'pending, failed, processed, or discarded by an operator after it had failed';

-- A week ahead, as of the other tables; from here on the job prune makes them.
SELECT make_day_partitions('outbox_processed', cronbox_now(), 8);

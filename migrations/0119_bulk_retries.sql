-- no-transaction
-- A bulk operation asks of each run that failed whether a retry has succeeded since. idx_runs_scheduled_time finds the retries of a due
-- time, and nothing found those of a manual run. Only retries have an entry, so no fire writes one.
--
-- Each partition gets its index in a transaction of its own, so only the writes of one day wait at a time. The index of the parent takes
-- them over. The block can be repeated: an index that exists is left as it is.
DO $$
DECLARE
    leaf text;
BEGIN
    IF to_regclass('idx_runs_retry_of') IS NULL THEN
        FOR leaf IN
            SELECT c.relname::text FROM pg_partition_tree('runs_ended') t JOIN pg_class c ON c.oid = t.relid WHERE t.isleaf ORDER BY 1
        LOOP
            -- The job prune may have dropped the day since.
            IF to_regclass(leaf) IS NOT NULL THEN
                EXECUTE format('CREATE INDEX IF NOT EXISTS %I ON %I (retry_of) WHERE retry_of IS NOT NULL', 'idx_' || leaf || '_retry_of', leaf);
            END IF;
            COMMIT;
        END LOOP;
        CREATE INDEX idx_runs_retry_of ON runs_ended (retry_of) WHERE retry_of IS NOT NULL;
        COMMENT ON INDEX idx_runs_retry_of IS 'A bulk retry finds the retries of a manual run';
    END IF;
    ALTER TABLE bulk_operations ADD COLUMN IF NOT EXISTS replaces_pause boolean NOT NULL DEFAULT FALSE;
    COMMENT ON COLUMN bulk_operations.replaces_pause IS 'Whether a pause replaces the reason and the end of workflows that are paused already';
END
$$

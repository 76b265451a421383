-- A bulk operation asks of each run that failed whether a retry has succeeded since. idx_runs_scheduled_time finds the retries of a due
-- time, and nothing found those of a manual run. Only retries have an entry, so no fire writes one.
--
-- It takes over the indexes of the partitions, which were built while runs ended: that of the runs before the days by migration 119, and those of
-- the days by `migrate` before its first migration (db/src/migrate/partition_indexes.rs). Only days that were made since lack one, and have no rows.
CREATE INDEX idx_runs_retry_of ON runs_ended (retry_of) WHERE retry_of IS NOT NULL;

COMMENT ON INDEX idx_runs_retry_of IS 'A bulk retry finds the retries of a manual run';

-- no-transaction
-- The occurrences of before the days may be many, so their part of idx_occurrences_other is built while times are decided.
CREATE INDEX CONCURRENTLY IF NOT EXISTS idx_occurrences_before_other ON occurrences_before (scheduled_time, workflow_id) WHERE decision <> 'fired';

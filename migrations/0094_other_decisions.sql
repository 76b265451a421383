-- A list of the decisions of all workflows reads it: what did not run on time is rare among the fires. A fire writes no entry of it.
CREATE INDEX idx_occurrences_other ON occurrences (scheduled_time, workflow_id) WHERE decision <> 'fired';

COMMENT ON INDEX idx_occurrences_other IS 'The list of the decisions of all workflows, without ordinary fires';

-- idx_runs_workflow_key has the same columns and is read in both directions.
DROP INDEX idx_runs_workflow_id;

-- A schedule of this database with an id that no workflow of it ever had shows that the database was restored. The sequence of the ids does not say
-- which it has given: Postgres writes it ahead to the log, so after a recovery it is up to 32 above. The rows say it, and after a deletion the tombstone
-- until the job prune removes it.
ALTER TABLE database_identity
    ADD COLUMN pruned_workflow_id BIGINT NOT NULL DEFAULT 0;

-- Of the tombstones that were removed before, only the sequence is left.
UPDATE database_identity SET pruned_workflow_id = (SELECT CASE WHEN is_called THEN last_value ELSE 0 END FROM workflows_id_seq);

COMMENT ON COLUMN database_identity.pruned_workflow_id IS 'The highest id of a workflow whose tombstone the job prune has removed; 0 = it has removed none. No workflow had an id above it, above those of workflows, and above those of deleted_workflows';

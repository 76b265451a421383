-- A fire locks its workflow and then writes its decision. Without this lock the foreign keys would take the same locks in the other order,
-- and one of both would fail.
LOCK TABLE workflows, occurrences, runs IN ACCESS EXCLUSIVE MODE;

-- A hard delete leaves the runs and the occurrences to the job `prune`, which removes them in batches: a cascade of a million rows
-- exceeds the timeout of a statement each time. The trigger also leaves a tombstone if the version before deletes a workflow.
CREATE TABLE deleted_workflows (
    workflow_id BIGINT      PRIMARY KEY,
    deleted_on  timestamptz NOT NULL
);

COMMENT ON TABLE  deleted_workflows IS 'Tombstones: workflows whose runs and occurrences are still to be removed';
COMMENT ON COLUMN deleted_workflows.workflow_id IS 'The workflow; its id is never used again';
COMMENT ON COLUMN deleted_workflows.deleted_on IS 'When it was deleted (cronbox_now)';

CREATE FUNCTION workflows_leave_tombstone() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO deleted_workflows (workflow_id, deleted_on) VALUES (OLD.id, cronbox_now()) ON CONFLICT DO NOTHING;
    RETURN NULL;
END
$$;

COMMENT ON FUNCTION workflows_leave_tombstone() IS 'Leaves a tombstone of a deleted workflow';

CREATE TRIGGER workflows_leave_tombstone AFTER DELETE ON workflows FOR EACH ROW EXECUTE FUNCTION workflows_leave_tombstone();

ALTER TABLE occurrences DROP CONSTRAINT occurrences_workflow_id_fkey;
ALTER TABLE runs DROP CONSTRAINT runs_workflow_id_fkey;

COMMENT ON COLUMN occurrences.workflow_id IS 'The workflow; after a hard delete the job prune removes its occurrences';
COMMENT ON COLUMN runs.workflow_id IS 'The workflow; after a hard delete the job prune removes its runs';

-- Long results apart from the history, so that lists and statistics do not read them.
CREATE TABLE run_results (
    run_id UUID  NOT NULL CONSTRAINT run_results_pkey PRIMARY KEY,
    result JSONB NOT NULL
) PARTITION BY RANGE (run_id);

COMMENT ON TABLE  run_results        IS 'Results longer than 1 KiB, by the day of their runs'' ids';
COMMENT ON COLUMN run_results.run_id IS 'The run that has ended';
COMMENT ON COLUMN run_results.result IS 'What the action answered';

CREATE TABLE run_results_rest (
    LIKE run_results INCLUDING COMMENTS
);
COMMENT ON TABLE  run_results_rest IS 'Results of runs whose day has no partition';
ALTER TABLE run_results ATTACH PARTITION run_results_rest DEFAULT;

-- A hard delete is a row here; the runs and occurrences of the workflow go in the background.
CREATE TABLE erased_workflows (
    workflow_id BIGINT      PRIMARY KEY,
    erased_on   timestamptz NOT NULL
);

COMMENT ON TABLE  erased_workflows             IS 'Workflows that were hard-deleted, until the job prune has removed their runs and occurrences';
COMMENT ON COLUMN erased_workflows.workflow_id IS 'The workflow that was';
COMMENT ON COLUMN erased_workflows.erased_on   IS 'When it was deleted (cronbox_now)';

CREATE FUNCTION workflows_erase() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    -- At once, so that no executor claims a run of a workflow that does not exist.
    DELETE FROM runs_live WHERE workflow_id = OLD.id;
    INSERT INTO erased_workflows (workflow_id, erased_on) VALUES (OLD.id, cronbox_now()) ON CONFLICT DO NOTHING;
    RETURN NULL;
END
$$;

COMMENT ON FUNCTION workflows_erase() IS 'Ends the live runs of a deleted workflow, and requests that the job prune removes the others';

CREATE TRIGGER workflows_erase
    AFTER DELETE ON workflows
    FOR EACH ROW EXECUTE FUNCTION workflows_erase();

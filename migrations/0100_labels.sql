-- Labels of a workflow, by which callers group and select workflows: an owner, an application, an environment.
ALTER TABLE workflows
    ADD COLUMN labels jsonb NOT NULL DEFAULT '{}' CONSTRAINT workflows_labels CHECK (jsonb_typeof(labels) = 'object');

COMMENT ON COLUMN workflows.labels IS 'Labels, for selection: an object of texts';

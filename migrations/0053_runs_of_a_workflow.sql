-- no-transaction
-- The list of a workflow's runs reads it backward: ids ascend with time (uuid v7), so it also serves `from` and `to`. Both columns ascend,
-- because a comparison of rows, `(workflow_id, id) < ($1, $2)`, reads only such an index; in idx_runs_workflow_id the id descends. Built
-- before the swap of migration 57, so that the swap builds no large index.
CREATE INDEX CONCURRENTLY IF NOT EXISTS idx_runs_workflow_key ON runs (workflow_id, id);

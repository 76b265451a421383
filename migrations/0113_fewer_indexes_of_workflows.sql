-- Each edit locks and opens every index of workflows, so an index needs a reader of its own: the workflows that cronbox paused are entries of
-- idx_workflows_inactive now.
DROP INDEX idx_workflows_paused_by_cronbox, idx_workflows_inactive;
ALTER INDEX idx_workflows_stopped RENAME TO idx_workflows_inactive;

COMMENT ON INDEX idx_workflows_inactive IS 'The lists of paused and of archived workflows, and the number of the paused ones by who paused them';

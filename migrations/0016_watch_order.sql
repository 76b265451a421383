-- The watchdog takes those that are due by (watch_at, id), some hundreds at a time. At midnight a whole fleet is due at one
-- instant: by an index on watch_at alone each batch sorted all of them anew.
CREATE INDEX idx_workflows_watch_order ON workflows (watch_at, id) WHERE watch_at IS NOT NULL;
DROP INDEX idx_workflows_watch_at;

-- no-transaction
-- Each open stream passed over the events of all teams. By this index it reads those of its team. A change opens it only while a client follows.
CREATE INDEX CONCURRENTLY IF NOT EXISTS idx_events_team ON events (team_id, transaction, nth);

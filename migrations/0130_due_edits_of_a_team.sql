-- no-transaction
-- The oldest due edits of a team (ADR 30). An edit writes one entry, a repair none. It begins empty, because no publication has a team yet.
CREATE INDEX CONCURRENTLY IF NOT EXISTS idx_publications_due_of_a_team ON publications (team_id, due_at) WHERE team_id IS NOT NULL AND due_at IS NOT NULL AND NOT is_repair;

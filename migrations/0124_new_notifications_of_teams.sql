-- no-transaction
-- The job notifications routes some of each team. The version before reads idx_notifications_new, which a later version drops.
CREATE INDEX CONCURRENTLY IF NOT EXISTS idx_notifications_new_of_team ON notifications (team_id, id) WHERE state = 'new';

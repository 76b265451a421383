-- no-transaction
-- The messages that wait for a channel, by event: before a further one is made, they are counted, and a channel that is deleted fails its own. Only pending messages have an entry.
CREATE INDEX CONCURRENTLY IF NOT EXISTS idx_notification_messages_pending ON notification_messages (channel_id, event) WHERE state = 'pending';

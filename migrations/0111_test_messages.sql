-- A channel of AWS is tested by a message of its own, which the Lambda notifier sends. A second request while one waits makes no other one.
CREATE UNIQUE INDEX idx_notification_messages_test ON notification_messages (channel_id) WHERE event = 'test' AND state = 'pending';

COMMENT ON INDEX  idx_notification_messages_test IS 'At most one test of a channel waits';
COMMENT ON COLUMN notification_messages.event    IS 'As in notification_rules.event; test = an editor tests the channel';

-- Messages of notifications that failed: the publisher counts those of the last hour for an alarm, and a list of a team's reads only them.
CREATE INDEX idx_notification_messages_failed_on ON notification_messages (failed_on) WHERE state = 'failed';
CREATE INDEX idx_notification_messages_failed ON notification_messages (team_id, id) WHERE state = 'failed';

COMMENT ON INDEX idx_notification_messages_failed_on IS 'The number of messages that failed in the last hour, for the alarm';
COMMENT ON INDEX idx_notification_messages_failed    IS 'The list of the failed messages of a team, the newest first';

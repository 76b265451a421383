-- Channels of the kind aws name what the Lambda notifier sends to.
--
-- A channel that was made before has none: its messages wait until it gets one.
ALTER TABLE notification_channels ADD COLUMN target_arn TEXT NULL,
    ADD CONSTRAINT notification_channels_target CHECK (target_arn IS NULL OR kind = 'aws');

COMMENT ON COLUMN notification_channels.target_arn IS 'Of AWS: the ARN of an event bus or an SNS topic; NULL = the messages wait';

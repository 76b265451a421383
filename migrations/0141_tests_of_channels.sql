-- A test of a channel counted the tests among all entries of the audit log about the channel, while the row of its team was locked: an editor who had edited
-- the channel often delayed all edits. Now the channel has its tests. A channel has none at first, so that for an hour it may be tested once more as often;
-- the limit of its team stays. The default is constant, so no row is rewritten, and the version before does not name the column.
ALTER TABLE notification_channels ADD COLUMN tested_on timestamptz[] NOT NULL DEFAULT '{}';

COMMENT ON COLUMN notification_channels.tested_on IS 'When it was tested: the tests that counted when the last one was sent, at most max_per_hour, within an hour';

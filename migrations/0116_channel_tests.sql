-- Tests of channels were limited by channel: an editor who deleted the channel and created another one had no limit. Now a team has one, whatever
-- channels it has and had. The audit log has each test, but no index by team, which each edit would have to open.
ALTER TABLE teams
    ADD COLUMN channel_tests_until timestamptz NULL;

COMMENT ON COLUMN teams.channel_tests_until IS 'How much of an hour the tests of its channels have used: each takes a minute, from now or from here on, and is sent if this is then at most an hour ahead (business clock); NULL = none was sent';
COMMENT ON COLUMN failed_logins.failures IS 'How many requests had a key that is unknown, revoked or expired, or that is not permitted from their address, a token that was refused, a session that has ended or never was one, or a link or a code of the provider that does not sign in';

-- A team sends a limited number of e-mails in an hour, also by channels that it has deleted since. Of a deleted channel nothing says whether it was one of
-- e-mail, so the messages of a deleted webhook took the place of e-mails.
ALTER TABLE notification_messages ADD COLUMN is_mail BOOLEAN NULL;

COMMENT ON COLUMN notification_messages.is_mail IS 'Whether it is an e-mail; NULL = an earlier version has made it: then it is one if its channel exists and is one of e-mail';
COMMENT ON COLUMN teams.channel_tests_until IS 'How much of an hour the tests of its channels have used: each takes two minutes, from now or from here on, and is sent if this is then at most an hour ahead (business clock); NULL = none was sent';
COMMENT ON COLUMN failed_logins.failures IS 'How many requests had a key that is unknown, revoked or expired, or that is not permitted from their address, a token that was refused, a session that never was one or that its holder did not end, or a link or a code of the provider that does not sign in';

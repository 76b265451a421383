-- A key could begin any number of sessions, all of which each instance reads into memory while an address invents cookies. A sign-in ends the oldest ones of
-- its holder now. It finds those that are open by these indexes, however many have ended. The table is small, so sign-ins wait for a moment.
CREATE INDEX idx_console_sessions_open_of_key ON console_sessions (key_id, created_on) WHERE ended_on IS NULL AND key_id IS NOT NULL;
CREATE INDEX idx_console_sessions_open_of_person ON console_sessions (issuer, subject, created_on) WHERE ended_on IS NULL AND issuer IS NOT NULL;

COMMENT ON INDEX idx_console_sessions_open_of_key    IS 'A sign-in ends the oldest sessions of a key that has too many';
COMMENT ON INDEX idx_console_sessions_open_of_person IS 'The same of a person';

-- An attempt goes only to the recipients that the mail server refused for now, so that those without a mailbox were forgotten when it was accepted.
ALTER TABLE notification_messages ADD COLUMN recipients_refused TEXT[] NULL;

COMMENT ON COLUMN notification_messages.recipients_refused IS 'Of an e-mail that is tried again: the recipients that get nothing, each with the reason; last_error names them when it is sent. NULL = none';

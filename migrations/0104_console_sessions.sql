-- The sessions of the console. A browser has a random text in a cookie; the database has its digest, as with keys.
--
-- A session has no rights of its own: each request reads the key, or the groups of the person, again. So a key that is revoked ends its
-- sessions, and a role that is taken away is gone with the next request.

CREATE TABLE console_sessions (
    id             UUID        PRIMARY KEY,
    digest         BYTEA       NOT NULL CONSTRAINT console_sessions_digest UNIQUE,
    key_id         UUID        NULL REFERENCES api_keys (id) ON DELETE CASCADE,
    issuer         TEXT        NULL,
    subject        TEXT        NULL,
    email          TEXT        NULL,
    username       TEXT        NULL,
    groups         TEXT[]      NOT NULL DEFAULT '{}',
    source_address INET        NULL,
    created_on     timestamptz NOT NULL,
    expires_on     timestamptz NOT NULL,
    ended_on       timestamptz NULL,
    ended_by       TEXT        NULL,
    CONSTRAINT console_sessions_holder CHECK (CASE WHEN key_id IS NULL THEN num_nulls(issuer, subject) = 0 ELSE num_nonnulls(issuer, subject) = 0 END),
    CONSTRAINT console_sessions_end CHECK (num_nulls(ended_on, ended_by) IN (0, 2))
);

CREATE INDEX idx_console_sessions_key ON console_sessions (key_id) WHERE key_id IS NOT NULL;
CREATE INDEX idx_console_sessions_expires_on ON console_sessions (expires_on);

COMMENT ON TABLE  console_sessions                IS 'Who is signed in to the console';
COMMENT ON COLUMN console_sessions.id             IS 'Identity, which may be shown';
COMMENT ON COLUMN console_sessions.digest         IS 'SHA-256 of the text in the cookie';
COMMENT ON COLUMN console_sessions.key_id         IS 'The key that signed in; NULL = a person';
COMMENT ON COLUMN console_sessions.issuer         IS 'The provider of the person';
COMMENT ON COLUMN console_sessions.subject        IS 'The person, as the provider names it';
COMMENT ON COLUMN console_sessions.email          IS 'The address of the person, if the provider said it';
COMMENT ON COLUMN console_sessions.username       IS 'The name of the person, if the provider said it';
COMMENT ON COLUMN console_sessions.groups         IS 'The groups of the person at sign-in; the file of groups says what they permit now';
COMMENT ON COLUMN console_sessions.source_address IS 'The address of the client that signed in';
COMMENT ON COLUMN console_sessions.created_on     IS 'When it began';
COMMENT ON COLUMN console_sessions.expires_on     IS 'When it ends by itself';
COMMENT ON COLUMN console_sessions.ended_on       IS 'When it was ended before; NULL = it was not';
COMMENT ON COLUMN console_sessions.ended_by       IS 'Who ended it, as the audit log names it';
COMMENT ON INDEX  idx_console_sessions_key        IS 'The deletion of a key removes its sessions';
COMMENT ON INDEX  idx_console_sessions_expires_on IS 'The list of sessions, and the removal of old ones';

-- A link signs in once: it is for the person who started the local stack, and for a caller who makes one with its key.
CREATE TABLE sign_in_links (
    digest     BYTEA       PRIMARY KEY,
    key_id     UUID        NOT NULL REFERENCES api_keys (id) ON DELETE CASCADE,
    expires_on timestamptz NOT NULL
);

CREATE INDEX idx_sign_in_links_key ON sign_in_links (key_id);

COMMENT ON TABLE  sign_in_links            IS 'Links that sign in to the console once; a used one is deleted';
COMMENT ON COLUMN sign_in_links.digest     IS 'SHA-256 of the text in the link';
COMMENT ON COLUMN sign_in_links.key_id     IS 'The key that the session gets';
COMMENT ON COLUMN sign_in_links.expires_on IS 'When it stops to work';
COMMENT ON INDEX  idx_sign_in_links_key    IS 'The deletion of a key removes its links';

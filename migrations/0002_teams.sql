CREATE TABLE teams (
    id             BIGINT      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name           TEXT        NOT NULL CONSTRAINT teams_name_key UNIQUE,
    signing_secret TEXT        NOT NULL,
    created_on     timestamptz NOT NULL
);

COMMENT ON TABLE  teams                IS 'Who owns workflows; the wall between tenants';
COMMENT ON COLUMN teams.id             IS 'Identity of the team';
COMMENT ON COLUMN teams.name           IS 'Unique name, for people';
COMMENT ON COLUMN teams.signing_secret IS 'Standard Webhooks secret (whsec_..) that signs the team''s http actions';
COMMENT ON COLUMN teams.created_on     IS 'When the team was made (business clock)';

CREATE TABLE api_keys (
    id           UUID        PRIMARY KEY,
    prefix       TEXT        NOT NULL CONSTRAINT api_keys_prefix_key UNIQUE,
    hash         BYTEA       NOT NULL CONSTRAINT api_keys_hash_is_sha256 CHECK (octet_length(hash) = 32),
    kind         TEXT        NOT NULL CONSTRAINT api_keys_kind CHECK (kind IN ('admin', 'team', 'scheduler')),
    team_id      BIGINT      NULL CONSTRAINT api_keys_team_id_fkey REFERENCES teams (id),
    role         TEXT        NULL CONSTRAINT api_keys_role CHECK (role IN ('viewer', 'editor')),
    name         TEXT        NOT NULL,
    created_on   timestamptz NOT NULL,
    last_used_on timestamptz NULL,
    revoked_on   timestamptz NULL,
    CONSTRAINT api_keys_team_has_role CHECK ((kind = 'team') = (team_id IS NOT NULL) AND (kind = 'team') = (role IS NOT NULL))
);

COMMENT ON TABLE  api_keys              IS 'Keys for X-API-Key; they do not expire, they are revoked';
COMMENT ON COLUMN api_keys.id           IS 'Identity of the key, safe to show';
COMMENT ON COLUMN api_keys.prefix       IS 'The key''s public part, by which it is found';
COMMENT ON COLUMN api_keys.hash         IS 'SHA-256 of the whole key; the key itself is shown once and never stored';
COMMENT ON COLUMN api_keys.kind         IS 'admin: all teams; team: one team, by role; scheduler: :invoke alone';
COMMENT ON COLUMN api_keys.team_id      IS 'The team of a team key, else NULL';
COMMENT ON COLUMN api_keys.role         IS 'What a team key may do: viewer reads, editor writes';
COMMENT ON COLUMN api_keys.name         IS 'What the key is for, for people';
COMMENT ON COLUMN api_keys.created_on   IS 'When the key was made (business clock)';
COMMENT ON COLUMN api_keys.last_used_on IS 'When the key was last looked up; lags by the few seconds that a key is cached';
COMMENT ON COLUMN api_keys.revoked_on   IS 'Since when the key opens nothing; NULL = alive';

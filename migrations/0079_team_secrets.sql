-- Secrets that a team names, so that actions refer to them as ${secret:name} and a new value reaches all of them.
CREATE TABLE team_secrets (
    team_id         BIGINT      NOT NULL CONSTRAINT team_secrets_team_id_fkey REFERENCES teams (id),
    name            TEXT        NOT NULL,
    ciphertext      TEXT        NOT NULL,
    allowed_origins TEXT[]      NULL,
    version         INTEGER     NOT NULL,
    created_on      timestamptz NOT NULL,
    updated_on      timestamptz NOT NULL,
    PRIMARY KEY (team_id, name)
);

COMMENT ON TABLE  team_secrets                 IS 'Named secrets of teams, which header values and bodies of actions refer to';
COMMENT ON COLUMN team_secrets.team_id         IS 'The team';
COMMENT ON COLUMN team_secrets.name            IS 'Unique in its team';
COMMENT ON COLUMN team_secrets.ciphertext      IS 'The encrypted value: the version of the team''s data key, a colon, and base64';
COMMENT ON COLUMN team_secrets.allowed_origins IS 'The only origins of URLs that it is sent to; NULL = every one';
COMMENT ON COLUMN team_secrets.version         IS 'Raised by each new value';
COMMENT ON COLUMN team_secrets.created_on      IS 'When it was created (business clock)';
COMMENT ON COLUMN team_secrets.updated_on      IS 'When its value or its origins last changed (business clock)';

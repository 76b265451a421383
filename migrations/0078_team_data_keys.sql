-- Encryption at rest: each team has a data key, which is stored only as a ciphertext of a key that the database never has. The values
-- that it encrypts stay where they are: `teams.signing_secret` as `sealed:..`, a header of `workflows.action` as {"sealed": ".."}.
CREATE TABLE team_data_keys (
    team_id      BIGINT      NOT NULL CONSTRAINT team_data_keys_team_id_fkey REFERENCES teams (id),
    version      INTEGER     NOT NULL,
    wrapping_key TEXT        NOT NULL,
    wrapped      BYTEA       NOT NULL,
    created_on   timestamptz NOT NULL,
    PRIMARY KEY (team_id, version)
);

COMMENT ON TABLE  team_data_keys              IS 'The keys that encrypt the secrets of teams, each encrypted with a key of CRONBOX_SECRETS_KEY';
COMMENT ON COLUMN team_data_keys.team_id      IS 'The team';
COMMENT ON COLUMN team_data_keys.version      IS 'Counts the data keys of the team from 1; each ciphertext names its version';
COMMENT ON COLUMN team_data_keys.wrapping_key IS 'The id of the key of CRONBOX_SECRETS_KEY that encrypts this one';
COMMENT ON COLUMN team_data_keys.wrapped      IS 'The encrypted key: a nonce of 12 bytes, then the ciphertext and its tag (AES-256-GCM)';
COMMENT ON COLUMN team_data_keys.created_on   IS 'When the key was made (business clock)';
COMMENT ON COLUMN teams.signing_secret        IS 'Standard Webhooks secret (whsec_..) that signs the team''s http actions, or sealed:<version>:<base64> of it';

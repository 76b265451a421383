-- A key may have less than its kind and role permit: fewer scopes, an end, the addresses of its owner. Instances of the version before
-- refuse every key that this version creates, so none of them overlooks a restriction.
ALTER TABLE api_keys
    ADD COLUMN scopes         TEXT[]      NULL,
    ADD COLUMN expires_on     timestamptz NULL,
    ADD COLUMN allowed_cidrs  CIDR[]      NULL CONSTRAINT api_keys_allowed_cidrs CHECK (cardinality(allowed_cidrs) > 0),
    ADD COLUMN last_used_from INET        NULL,
    ADD COLUMN rotated_into   UUID        NULL CONSTRAINT api_keys_rotated_into_fkey REFERENCES api_keys (id),
    ADD CONSTRAINT api_keys_scopes CHECK (
        cardinality(scopes) > 0
        AND scopes <@ CASE kind WHEN 'team' THEN ARRAY['read', 'edit']
                                WHEN 'scheduler' THEN ARRAY['invoke']
                                ELSE ARRAY['read', 'edit', 'auditor', 'operate', 'admin'] END);

COMMENT ON TABLE  api_keys                IS 'Keys for X-API-Key';
COMMENT ON COLUMN api_keys.prefix         IS 'The key''s public part, by which it is found: cba_, cbt_ or cbs_ with 12 characters; of a key of version 0.1 only 12 characters';
COMMENT ON COLUMN api_keys.kind           IS 'admin: all teams; team: one team, by role; scheduler: only :invoke';
COMMENT ON COLUMN api_keys.scopes         IS 'What the key permits of what its kind and role permit; NULL = all of it';
COMMENT ON COLUMN api_keys.expires_on     IS 'Since when the key is refused, as if it were revoked; NULL = never';
COMMENT ON COLUMN api_keys.allowed_cidrs  IS 'The networks from which the key is accepted; NULL = all';
COMMENT ON COLUMN api_keys.last_used_on   IS 'When the key was last used, to the minute; each instance writes it once a minute';
COMMENT ON COLUMN api_keys.last_used_from IS 'The address of the client at last_used_on';
COMMENT ON COLUMN api_keys.rotated_into   IS 'The key that its owner has got in its place; NULL = not rotated';

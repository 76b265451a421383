-- A client that lost the answer to a POST repeats it with the same Idempotency-Key, and gets what the first request has created. The row is
-- written in the transaction that creates it.
CREATE TABLE idempotency_keys (
    actor        TEXT        NOT NULL,
    key_hash     bytea       NOT NULL,
    request_hash bytea       NOT NULL,
    answer       jsonb,
    created_on   timestamptz NOT NULL,
    CONSTRAINT idempotency_keys_pkey PRIMARY KEY (actor, key_hash)
);

CREATE INDEX idx_idempotency_keys_created_on ON idempotency_keys (created_on);

COMMENT ON TABLE  idempotency_keys              IS 'What requests with an Idempotency-Key have created, for a day: a repeat gets the same answer';
COMMENT ON COLUMN idempotency_keys.actor        IS 'Who sent it, as in the audit log: the key of one client means nothing to another one';
COMMENT ON COLUMN idempotency_keys.key_hash     IS 'SHA-256 of the Idempotency-Key';
COMMENT ON COLUMN idempotency_keys.request_hash IS 'HMAC-SHA256 of path and body with the Idempotency-Key, which is not stored: no reader of the table can guess a secret of the body from it';
COMMENT ON COLUMN idempotency_keys.answer       IS 'What the request has created, by its id and without secrets; NULL: it was refused';
COMMENT ON COLUMN idempotency_keys.created_on   IS 'When it was first sent; the row ends a day later';
COMMENT ON INDEX  idx_idempotency_keys_created_on IS 'The job prune removes the rows of past days';

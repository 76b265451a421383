-- What an acceptance of the ledger leaves to the sweeps. EventBridge still has schedules of the gap between the backup and the loss, with
-- revisions above the database's. One that changes later, for example because a person disables it, is no sign of another restore.
ALTER TABLE publications
    ADD COLUMN ahead_revision BIGINT NULL;

COMMENT ON COLUMN publications.ahead_revision IS 'The highest revision above the workflow''s that a sweep has seen in EventBridge and that was older than the last acceptance: it never makes the database wait; NULL = none';

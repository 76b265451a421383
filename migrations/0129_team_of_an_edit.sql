-- While more edits are due than a batch of the publisher, every other claim takes them team by team (ADR 30). No row is rewritten: an edit writes
-- its team here, and until then a claim takes the publication by age only, as with the version before.
ALTER TABLE publications ADD COLUMN team_id BIGINT NULL;

COMMENT ON COLUMN publications.team_id IS 'The team of the newest edit, for its share of the claims; NULL = no edit since migration 129, or the version before has enqueued it: claimed by age only';

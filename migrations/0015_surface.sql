-- What operators ask of the ledger: proof, figures, backfills.
ALTER TABLE workflows ADD COLUMN ledger_since timestamptz NULL;

COMMENT ON COLUMN workflows.ledger_since IS 'Before this nobody kept its ledger, so no proof asks for it; NULL = since it was made';

-- Of workflows that are older than the ledger.
UPDATE workflows SET ledger_since = ledger_cursor;

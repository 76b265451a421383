-- It is apart from the index of migration 131: while it waits for a bulk operation, runs end.
ALTER TABLE bulk_operations
    ADD COLUMN replaces_pause boolean NOT NULL DEFAULT FALSE;

COMMENT ON COLUMN bulk_operations.replaces_pause IS 'Whether a pause replaces the reason and the end of workflows that are paused already';

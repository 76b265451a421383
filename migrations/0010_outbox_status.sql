-- One judgement of where an outbox row stands, for lists and filters.
CREATE FUNCTION outbox_status(o outbox_events) RETURNS text LANGUAGE sql IMMUTABLE AS $$
    SELECT CASE
        WHEN o.processed_on IS NULL AND o.failed_on IS NULL THEN 'pending'
        WHEN o.processed_on IS NULL                         THEN 'failed'
        WHEN o.failed_on IS NULL                            THEN 'processed'
        ELSE 'discarded'
    END
$$;

COMMENT ON FUNCTION outbox_status(outbox_events) IS 'pending, failed, processed, or discarded by an operator after it had failed';

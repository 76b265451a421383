-- What the publisher's metrics count each minute, whatever the size of the tables.
CREATE INDEX idx_outbox_failed ON outbox_events (aggregate_id) WHERE failed_on IS NOT NULL;
CREATE INDEX idx_publications_drift ON publications (drift) WHERE drift IS NOT NULL;

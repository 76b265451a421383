-- What a publisher must know of a workflow that another process has seen: how often it failed in a
-- row, whether a repair was requested during a call, and what EventBridge refused.
ALTER TABLE publications
    ADD COLUMN failures     INTEGER NOT NULL DEFAULT 0,
    ADD COLUMN repairs      BIGINT  NOT NULL DEFAULT 0,
    ADD COLUMN refused_hash TEXT    NULL;

COMMENT ON COLUMN publications.failures     IS 'Failures in a row, which decide the next backoff; 0 after a success, an edit or a repair';
COMMENT ON COLUMN publications.repairs      IS '+1 when a repair is requested that a call in flight must not hide; a settle compares it with the claim';
COMMENT ON COLUMN publications.refused_hash IS 'Hash of what failed permanently; if another one is wanted, the publisher tries again; NULL = not known';

-- Few rows: what a publisher looks through when it starts, and every 15 minutes.
CREATE INDEX idx_publications_failed ON publications (workflow_id) WHERE error_class = 'permanent';

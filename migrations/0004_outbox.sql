-- The outbox contract. The app writes here in the transaction of the edit; the publisher drains.
--
--   outbox_events  says "look at this workflow". Never replayed: order and repeats do no harm.
--   publications   what we believe stands in EventBridge, and who works on it. Authoritative.
--
-- A workflow's events are inserted under the lock of its publication, so that `seen`, the highest
-- unprocessed id read under that lock, covers every event that the reader's state includes.
CREATE TABLE publications (
    workflow_id      BIGINT      PRIMARY KEY,
    desired_revision BIGINT      NOT NULL,
    applied_revision BIGINT      NULL,
    due_at           timestamptz NULL,
    epoch            BIGINT      NOT NULL DEFAULT 0,
    lease_owner      TEXT        NULL,
    lease_until      timestamptz NULL,
    attempt_count    INTEGER     NOT NULL DEFAULT 0,
    error_class      TEXT        NULL CONSTRAINT publications_error_class CHECK (error_class IN ('transient', 'environment', 'unclassified', 'permanent')),
    last_error       TEXT        NULL,
    verify_at        timestamptz NULL,
    schedule_name    TEXT        NULL,
    spec_hash        TEXT        NULL,
    template         INTEGER     NULL,
    applied_on       timestamptz NULL,
    seen_modified_at timestamptz NULL,
    drift            TEXT        NULL,
    CONSTRAINT publications_lease CHECK ((lease_owner IS NULL) = (lease_until IS NULL))
);

CREATE INDEX idx_publications_due_at ON publications (due_at) WHERE due_at IS NOT NULL;

COMMENT ON TABLE  publications                  IS 'What we believe stands in EventBridge for a workflow; no foreign key, because a delete outlives its workflow';
COMMENT ON COLUMN publications.workflow_id      IS 'The workflow, or one that was deleted (a tombstone)';
COMMENT ON COLUMN publications.desired_revision IS 'The newest revision asked for; with no workflow row: no schedule, since this revision';
COMMENT ON COLUMN publications.applied_revision IS 'The revision that EventBridge has acknowledged';
COMMENT ON COLUMN publications.due_at           IS 'When the publisher is to look again; stays set while leased; NULL = nothing to do';
COMMENT ON COLUMN publications.epoch            IS '+1 at each claim, never restarts; settles are fenced by it';
COMMENT ON COLUMN publications.lease_owner      IS 'The publisher that works on it, NULL = none';
COMMENT ON COLUMN publications.lease_until      IS 'When that publisher''s claim lapses (cronbox_now)';
COMMENT ON COLUMN publications.attempt_count    IS 'Claims since the last success or edit; a claim counts, so that a crash counts';
COMMENT ON COLUMN publications.error_class      IS 'Of the last error: transient and environment are backed off, unclassified counts attempts, permanent = failed until the next edit';
COMMENT ON COLUMN publications.last_error       IS 'The last error in a sentence for the workflow''s owner; NULL after a success';
COMMENT ON COLUMN publications.verify_at        IS 'When to read the schedule back, because a request may still have been on its way';
COMMENT ON COLUMN publications.schedule_name    IS 'The schedule that we believe exists, NULL = none';
COMMENT ON COLUMN publications.spec_hash        IS 'Hash of what was last put there, or "none"; NULL = unknown, so always call';
COMMENT ON COLUMN publications.template         IS 'The template number of the published schedule';
COMMENT ON COLUMN publications.applied_on       IS 'When EventBridge last acknowledged (cronbox_now)';
COMMENT ON COLUMN publications.seen_modified_at IS 'AWS''s LastModificationDate when last read by a sweep';
COMMENT ON COLUMN publications.drift            IS 'The class of drift that the last sweep found, NULL = none';

-- One judgement of "is EventBridge in step?" for reads and filters.
CREATE FUNCTION sync_status(p publications) RETURNS text LANGUAGE sql IMMUTABLE AS $$
    SELECT CASE
        WHEN p.workflow_id IS NULL              THEN 'none'
        WHEN p.error_class = 'permanent'        THEN 'failed'
        WHEN p.drift IS NOT NULL                THEN 'drifted'
        WHEN p.spec_hash IS NOT NULL
             AND p.applied_revision >= p.desired_revision THEN 'synced'
        ELSE 'pending'
    END
$$;

COMMENT ON FUNCTION sync_status(publications) IS 'pending, synced, failed, drifted, or none for a workflow that never had a schedule';

CREATE TABLE outbox_events (
    id             BIGINT      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    aggregate_type TEXT        NOT NULL DEFAULT 'workflow' CONSTRAINT outbox_events_aggregate_type CHECK (aggregate_type = 'workflow'),
    aggregate_id   BIGINT      NOT NULL,
    op             TEXT        NOT NULL CONSTRAINT outbox_events_op CHECK (op IN ('upsert', 'delete')),
    payload        JSONB       NOT NULL DEFAULT '{}',
    created_on     timestamptz NOT NULL,
    processed_on   timestamptz NULL,
    attempt_count  INTEGER     NOT NULL DEFAULT 0,
    error_message  TEXT        NULL,
    failed_on      timestamptz NULL
);

CREATE INDEX idx_outbox_unprocessed ON outbox_events (id) WHERE processed_on IS NULL AND failed_on IS NULL;
CREATE INDEX idx_outbox_created_on ON outbox_events (created_on);
CREATE INDEX idx_outbox_aggregate_unprocessed ON outbox_events (aggregate_id, id) WHERE processed_on IS NULL AND failed_on IS NULL;

COMMENT ON TABLE  outbox_events                IS 'Look at this workflow; written in the transaction of the edit, drained by the publisher';
COMMENT ON COLUMN outbox_events.id             IS 'Identity; not an order between workflows';
COMMENT ON COLUMN outbox_events.aggregate_type IS 'Always workflow';
COMMENT ON COLUMN outbox_events.aggregate_id   IS 'The workflow; no foreign key, because a delete outlives its workflow';
COMMENT ON COLUMN outbox_events.op             IS 'What the edit asked for; for audit, the publisher reads the workflow as it stands';
COMMENT ON COLUMN outbox_events.payload        IS 'cron_schedule, timezone, is_api, team_id, revision, traceparent; for audit, never replayed';
COMMENT ON COLUMN outbox_events.created_on     IS 'When the edit was made (business clock)';
COMMENT ON COLUMN outbox_events.processed_on   IS 'When a publisher settled it (cronbox_now); NULL = open';
COMMENT ON COLUMN outbox_events.attempt_count  IS 'A mirror of the publication''s, written at settle';
COMMENT ON COLUMN outbox_events.error_message  IS 'A mirror of the publication''s last error, written at settle';
COMMENT ON COLUMN outbox_events.failed_on      IS 'When the publisher gave up (cronbox_now); the next edit revives the workflow';

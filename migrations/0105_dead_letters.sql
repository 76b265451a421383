-- The messages of the dead-letter queues, as the publisher last saw them. The app lists them and requests what is to be done with one; the
-- publisher, which has an AWS client, does it. SQS stays the owner of the messages: a row whose message is gone is only history.

CREATE TABLE dead_letters (
    id             BIGINT      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    queue          TEXT        NOT NULL CONSTRAINT dead_letters_queue CHECK (queue IN ('schedules', 'runner', 'publisher')),
    message_id     TEXT        NOT NULL,
    kind           TEXT        NOT NULL CONSTRAINT dead_letters_kind CHECK (kind IN ('fire', 'tick', 'unreadable')),
    team_id        BIGINT      NULL,
    workflow_id    BIGINT      NULL,
    scheduled_time timestamptz NULL,
    error          TEXT        NOT NULL,
    tries          BIGINT      NULL,
    attributes     JSONB       NOT NULL,
    body           TEXT        NOT NULL CONSTRAINT dead_letters_body CHECK (octet_length(body) <= 16384),
    body_bytes     BIGINT      NOT NULL,
    sent_on        timestamptz NULL,
    first_seen     timestamptz NOT NULL,
    last_seen      timestamptz NOT NULL,
    state          TEXT        NOT NULL DEFAULT 'present' CONSTRAINT dead_letters_state CHECK (state IN
        ('present', 'redrive_requested', 'redriving', 'redriven', 'redrive_failed', 'discard_requested', 'discarded', 'gone')),
    requested_by   TEXT        NULL,
    requested_on   timestamptz NULL,
    attempt_count  INTEGER     NOT NULL DEFAULT 0,
    lease_owner    TEXT        NULL,
    lease_until    timestamptz NULL,
    result         TEXT        NULL,
    run_id         UUID        NULL,
    settled_on     timestamptz NULL,
    CONSTRAINT dead_letters_message UNIQUE (queue, message_id),
    CONSTRAINT dead_letters_fire CHECK ((kind = 'fire') = (workflow_id IS NOT NULL) AND (kind = 'fire') = (scheduled_time IS NOT NULL)),
    CONSTRAINT dead_letters_lease CHECK ((state = 'redriving') = (lease_owner IS NOT NULL) AND (lease_owner IS NULL) = (lease_until IS NULL)),
    CONSTRAINT dead_letters_settled CHECK ((state IN ('redriven', 'discarded', 'gone')) = (settled_on IS NOT NULL))
);

CREATE INDEX idx_dead_letters_team     ON dead_letters (team_id, id);
CREATE INDEX idx_dead_letters_workflow ON dead_letters (workflow_id, id);
CREATE INDEX idx_dead_letters_open     ON dead_letters (queue, last_seen) WHERE settled_on IS NULL;
CREATE INDEX idx_dead_letters_settled  ON dead_letters (settled_on) WHERE settled_on IS NOT NULL;

COMMENT ON TABLE  dead_letters                IS 'The messages of the dead-letter queues, mirrored by the publisher, and what operators request for them';
COMMENT ON COLUMN dead_letters.id             IS 'Identity';
COMMENT ON COLUMN dead_letters.queue          IS 'schedules: EventBridge could not invoke the runner; runner: the runner did not deliver; publisher: a tick failed';
COMMENT ON COLUMN dead_letters.message_id     IS 'SQS''s id of the message, unique in its queue';
COMMENT ON COLUMN dead_letters.kind           IS 'fire, tick, or unreadable; only a fire can be redriven';
COMMENT ON COLUMN dead_letters.team_id        IS 'The team of the workflow when the message was first seen; NULL = the workflow is not known';
COMMENT ON COLUMN dead_letters.workflow_id    IS 'The workflow that the fire names, which may be deleted by now; NULL = it is no fire';
COMMENT ON COLUMN dead_letters.scheduled_time IS 'The scheduled time that the fire names';
COMMENT ON COLUMN dead_letters.error          IS 'The error of the service that gave up, or why the message cannot be read; cut to 1,000 characters';
COMMENT ON COLUMN dead_letters.tries          IS 'How often that service tried; NULL = the message does not say';
COMMENT ON COLUMN dead_letters.attributes     IS 'The attributes of the message, each cut to 1,000 characters';
COMMENT ON COLUMN dead_letters.body           IS 'The first 16 KiB of the body';
COMMENT ON COLUMN dead_letters.body_bytes     IS 'Bytes of the complete body';
COMMENT ON COLUMN dead_letters.sent_on        IS 'When it was sent to the queue, by SQS';
COMMENT ON COLUMN dead_letters.first_seen     IS 'When the publisher first received it';
COMMENT ON COLUMN dead_letters.last_seen      IS 'When the publisher last received it';
COMMENT ON COLUMN dead_letters.state          IS 'present; *_requested by an operator; redriving under a lease; redriven, discarded or gone = settled; redrive_failed = it stays in its queue';
COMMENT ON COLUMN dead_letters.requested_by   IS 'Who requested the last redrive or discard, as in audit_log.actor';
COMMENT ON COLUMN dead_letters.requested_on   IS 'When that was (business time)';
COMMENT ON COLUMN dead_letters.attempt_count  IS 'How often a publisher claimed it for a redrive';
COMMENT ON COLUMN dead_letters.lease_owner    IS 'The publisher that posts it now';
COMMENT ON COLUMN dead_letters.lease_until    IS 'Until when no other publisher posts it';
COMMENT ON COLUMN dead_letters.result         IS 'The app''s answer to the last redrive, or why there was none';
COMMENT ON COLUMN dead_letters.run_id         IS 'The run that the redrive started';
COMMENT ON COLUMN dead_letters.settled_on     IS 'Since when nothing more is to be done; the row is deleted 30 days later';
COMMENT ON INDEX  idx_dead_letters_team       IS 'The list of a team';
COMMENT ON INDEX  idx_dead_letters_workflow   IS 'The list of a workflow';
COMMENT ON INDEX  idx_dead_letters_open       IS 'The publisher finds rows whose message it no longer sees, and counts the others for the metrics';
COMMENT ON INDEX  idx_dead_letters_settled    IS 'The publisher deletes old rows';

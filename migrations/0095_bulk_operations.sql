-- One request that applies a verb to many workflows or runs. Its items are chosen when it is created, and the job `bulk` applies one after the
-- other, each in a transaction that also counts it: a process that is killed repeats none and skips none.
CREATE TABLE bulk_operations (
    id          uuid        PRIMARY KEY,
    team_id     bigint      NOT NULL REFERENCES teams (id),
    verb        text        NOT NULL CONSTRAINT bulk_operations_verb CHECK (verb IN ('pause', 'resume', 'archive', 'fire', 'retry', 'cancel')),
    reason      text,
    until       timestamptz,
    state       text        NOT NULL DEFAULT 'running' CONSTRAINT bulk_operations_state CHECK (state IN ('running', 'finished', 'cancelled')),
    total       integer     NOT NULL,
    processed   integer     NOT NULL DEFAULT 0,
    refused     integer     NOT NULL DEFAULT 0,
    actor       text        NOT NULL,
    actor_name  text,
    traceparent text,
    created_on  timestamptz NOT NULL,
    finished_on timestamptz,
    CONSTRAINT bulk_operations_processed CHECK (processed BETWEEN 0 AND total AND refused BETWEEN 0 AND processed),
    CONSTRAINT bulk_operations_finished CHECK ((state = 'running') = (finished_on IS NULL))
);

CREATE INDEX idx_bulk_operations_running ON bulk_operations (team_id, id) WHERE state = 'running';
CREATE INDEX idx_bulk_operations_team ON bulk_operations (team_id, id);

CREATE TABLE bulk_items (
    operation_id uuid    NOT NULL REFERENCES bulk_operations (id) ON DELETE CASCADE,
    nth          integer NOT NULL,
    workflow_id  bigint  NOT NULL,
    run_id       uuid,
    outcome      text    CONSTRAINT bulk_items_outcome CHECK (outcome IN ('done', 'unchanged', 'refused')),
    code         text,
    new_run_id   uuid,
    CONSTRAINT bulk_items_pkey PRIMARY KEY (operation_id, nth),
    CONSTRAINT bulk_items_code CHECK ((code IS NOT NULL) = (outcome IS NOT DISTINCT FROM 'refused'))
);

COMMENT ON TABLE  bulk_operations             IS 'Verbs that a caller applies to many workflows or runs of a team';
COMMENT ON COLUMN bulk_operations.id          IS 'UUID v7: later operations have higher ones';
COMMENT ON COLUMN bulk_operations.team_id     IS 'The team of all its items';
COMMENT ON COLUMN bulk_operations.state       IS 'running, or final';
COMMENT ON COLUMN bulk_operations.created_on  IS 'When it was requested';
COMMENT ON COLUMN bulk_operations.finished_on IS 'When its last item was processed, or when it was cancelled; NULL while it is running';
COMMENT ON COLUMN bulk_items.operation_id     IS 'The operation; its removal erases the row';
COMMENT ON COLUMN bulk_items.workflow_id      IS 'The workflow, or that of the run';
COMMENT ON COLUMN bulk_operations.verb        IS 'What is done with each item; retry and cancel have runs, the others workflows';
COMMENT ON COLUMN bulk_operations.reason      IS 'Why the workflows are paused';
COMMENT ON COLUMN bulk_operations.until       IS 'When the pause of the workflows ends';
COMMENT ON COLUMN bulk_operations.total       IS 'How many items were selected';
COMMENT ON COLUMN bulk_operations.processed   IS 'How many are processed: those up to this number';
COMMENT ON COLUMN bulk_operations.refused     IS 'How many of these were refused';
COMMENT ON COLUMN bulk_operations.actor       IS 'Who requested it, as in the audit log';
COMMENT ON COLUMN bulk_operations.actor_name  IS 'The name of the key';
COMMENT ON COLUMN bulk_operations.traceparent IS 'W3C trace context of the request';
COMMENT ON TABLE  bulk_items                  IS 'The workflows or runs of a bulk operation, and what became of each';
COMMENT ON COLUMN bulk_items.nth              IS 'Its place in the operation, from 1 on';
COMMENT ON COLUMN bulk_items.run_id           IS 'The run, of retry and cancel';
COMMENT ON COLUMN bulk_items.outcome          IS 'NULL: it is not processed yet';
COMMENT ON COLUMN bulk_items.code             IS 'Why it was refused';
COMMENT ON COLUMN bulk_items.new_run_id       IS 'The run that fire or retry has created';
COMMENT ON INDEX  idx_bulk_operations_running IS 'The job bulk reads it';
COMMENT ON INDEX  idx_bulk_operations_team    IS 'The list of the operations of a team';

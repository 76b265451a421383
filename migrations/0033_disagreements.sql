-- Fires that the published expression does not name by our zone data: EventBridge's zone data or a clock differ.
CREATE TABLE fire_disagreements (
    workflow_id bigint NOT NULL REFERENCES workflows (id) ON DELETE CASCADE,
    scheduled_time timestamptz NOT NULL,
    revision bigint NOT NULL,
    seen_on timestamptz NOT NULL,
    PRIMARY KEY (workflow_id, scheduled_time)
);
CREATE INDEX idx_fire_disagreements_seen_on ON fire_disagreements (seen_on);
COMMENT ON TABLE  fire_disagreements IS 'Fires of EventBridge at times that the published expression does not name by our zone data';
COMMENT ON COLUMN fire_disagreements.workflow_id IS 'The workflow that fired';
COMMENT ON COLUMN fire_disagreements.scheduled_time IS 'The time that EventBridge named';
COMMENT ON COLUMN fire_disagreements.revision IS 'The revision that the fire named';
COMMENT ON COLUMN fire_disagreements.seen_on IS 'When the app refused it last';

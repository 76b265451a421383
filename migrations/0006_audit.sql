CREATE TABLE audit_log (
    id      BIGINT      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at      timestamptz NOT NULL,
    actor   TEXT        NOT NULL,
    verb    TEXT        NOT NULL,
    subject TEXT        NOT NULL,
    before  JSONB       NULL,
    after   JSONB       NULL
);

CREATE INDEX idx_audit_log_subject ON audit_log (subject, id);

COMMENT ON TABLE  audit_log         IS 'Who changed what; append-only, outlives what it speaks of';
COMMENT ON COLUMN audit_log.id      IS 'Identity';
COMMENT ON COLUMN audit_log.at      IS 'When (business clock)';
COMMENT ON COLUMN audit_log.actor   IS 'The key that did it (its public prefix), or the command line';
COMMENT ON COLUMN audit_log.verb    IS 'What was done: create, update, pause, ..';
COMMENT ON COLUMN audit_log.subject IS 'To what: workflow:12, team:3, key:<uuid>';
COMMENT ON COLUMN audit_log.before  IS 'What stood before; secrets redacted; NULL at a create';
COMMENT ON COLUMN audit_log.after   IS 'What stands now; secrets redacted; NULL at a delete';

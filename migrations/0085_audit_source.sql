-- Who changed something, from where and in which request. The columns have no defaults that rewrite the table, and the version before goes on
-- to write entries without them. The statements wait for the locks of the audit log; none reads a row.
ALTER TABLE audit_log
    ADD COLUMN team_id        bigint NULL,
    ADD COLUMN actor_name     TEXT   NULL,
    ADD COLUMN source_address TEXT   NULL,
    ADD COLUMN trace_id       TEXT   NULL;

COMMENT ON COLUMN audit_log.actor          IS 'Who did it: key:<public prefix>, cli:<user of the operating system>, file:<name> or cronbox';
COMMENT ON COLUMN audit_log.team_id        IS 'The team of the object, whose members may read the entry; NULL: admins only, and entries of earlier versions';
COMMENT ON COLUMN audit_log.actor_name     IS 'The name of the key, as it was then';
COMMENT ON COLUMN audit_log.source_address IS 'The address from which the request came; NULL: it was no request';
COMMENT ON COLUMN audit_log.trace_id       IS 'The trace of the request (W3C trace context, 32 hex digits)';

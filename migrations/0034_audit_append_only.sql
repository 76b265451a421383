-- The audit log is evidence: no role of the application changes or removes an entry.
CREATE FUNCTION audit_log_append_only() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'audit_log is append-only: % is refused', TG_OP
        USING ERRCODE = 'insufficient_privilege', CONSTRAINT = 'audit_log_append_only';
END
$$;

COMMENT ON FUNCTION audit_log_append_only() IS 'Refuses UPDATE, DELETE and TRUNCATE of the audit log';

-- By statement: a statement that would change no row is refused, too.
CREATE TRIGGER audit_log_append_only
    BEFORE UPDATE OR DELETE OR TRUNCATE ON audit_log
    FOR EACH STATEMENT EXECUTE FUNCTION audit_log_append_only();

-- After an outage each unanswered call may need a verify pass. Each of them reads a schedule, so they must not all be due in one minute.
-- A signature is valid for 15 minutes. Workflows of consecutive numbers are due a second apart.
CREATE FUNCTION verify_wait(workflow_id bigint) RETURNS interval LANGUAGE sql IMMUTABLE PARALLEL SAFE
    AS $$ SELECT INTERVAL '16 minutes' + workflow_id % 840 * INTERVAL '1 second' $$;

COMMENT ON FUNCTION verify_wait(bigint) IS 'How long the verify pass of a workflow waits for requests that may still arrive: 16 to 30 minutes';
COMMENT ON COLUMN publications.verify_at IS 'When to read the schedule back, because a request may still have been on its way: verify_wait() later; NULL = none is in doubt';

-- The clock of coordination: leases, due times, heartbeats. Business time is never read here,
-- it comes as a parameter. A test replaces this function in its own database.
--
-- STABLE, so that `due_at <= cronbox_now()` can use an index: one statement sees one "now",
-- and a transaction sees time pass between its statements.
CREATE FUNCTION cronbox_now() RETURNS timestamptz
    LANGUAGE sql STABLE PARALLEL SAFE
    AS 'SELECT clock_timestamp()';

COMMENT ON FUNCTION cronbox_now() IS 'The clock of coordination (leases, due times); replaced by tests in their own database';

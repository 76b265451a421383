-- Bounds of partitions by day that Postgres computes when it plans: `time - INTERVAL '7 days'` depends on the session's timezone, so it plans
-- and locks all days first.
CREATE FUNCTION hours_before(at timestamptz, hours integer) RETURNS timestamptz LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
    AS $$ SELECT at - make_interval(hours => hours) $$;

COMMENT ON FUNCTION hours_before(timestamptz, integer) IS 'So many hours earlier: hours do not depend on the timezone, so this is a constant of a plan';

-- Its statement is planned, and the partitions of all days are locked, only if it is called.
CREATE FUNCTION last_run_before(of_workflow bigint, before timestamptz) RETURNS timestamptz LANGUAGE plpgsql STABLE AS $$
BEGIN
    -- Without a row it never had a cron.
    IF NOT EXISTS (SELECT FROM ledger WHERE workflow_id = of_workflow) THEN
        RETURN NULL;
    END IF;
    RETURN (SELECT max(scheduled_time) FROM occurrences
             WHERE workflow_id = of_workflow AND scheduled_time < before AND run_id IS NOT NULL);
END
$$;

COMMENT ON FUNCTION last_run_before(bigint, timestamptz) IS 'The last time of a workflow before this one that has run, however long ago it was';

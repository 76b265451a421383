-- Bounds of partitions by day that Postgres computes when it plans: `time - INTERVAL '7 days'` depends on the session's timezone, so it plans
-- and locks all days first.
CREATE FUNCTION hours_before(at timestamptz, hours integer) RETURNS timestamptz LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
    AS $$ SELECT at - make_interval(hours => hours) $$;

COMMENT ON FUNCTION hours_before(timestamptz, integer) IS 'So many hours earlier: hours do not depend on the timezone, so this is a constant of a plan';

-- What outlives the day of a decision: the context of a run names the time of the run before it, which may be a year old.
ALTER TABLE ledger
    ADD COLUMN last_ran timestamptz NULL;

COMMENT ON COLUMN ledger.last_ran IS 'The newest time with a run, if the job prune dropped its day; NULL = a newer one is in occurrences, or none ran';

-- It reads the days after the dropped one for 50,000 workflows at most (3 s), so that a day on which more have stopped is dropped, too.
CREATE FUNCTION remember_last_runs(dropped text, upto timestamptz) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    EXECUTE format($last$
        WITH ran AS MATERIALIZED (
            SELECT workflow_id, max(scheduled_time) AS last FROM %I WHERE run_id IS NOT NULL GROUP BY workflow_id
        ), stopped AS MATERIALIZED (
            -- Nearly all workflows run on the next day again.
            SELECT ran.workflow_id, ran.last
              FROM ran
             WHERE NOT EXISTS (SELECT FROM occurrences next
                                WHERE next.workflow_id = ran.workflow_id AND next.run_id IS NOT NULL
                                  AND next.scheduled_time >= $1 AND next.scheduled_time < $2)
        ), living AS MATERIALIZED (
            SELECT s.workflow_id, s.last
              FROM stopped s
             WHERE (SELECT w.state FROM workflows w WHERE w.id = s.workflow_id) <> 'archived'
             LIMIT 50000
        )
        UPDATE ledger l
           SET last_ran = GREATEST(l.last_ran, living.last)
          FROM living
         WHERE l.workflow_id = living.workflow_id
           AND (SELECT TRUE FROM occurrences later
                 WHERE later.workflow_id = living.workflow_id AND later.run_id IS NOT NULL AND later.scheduled_time >= $2
                 LIMIT 1) IS NULL$last$, dropped) USING upto, upto + INTERVAL '24 hours';
END
$$;

COMMENT ON FUNCTION remember_last_runs(text, timestamptz) IS 'Stores the newest run of each workflow that has none after a day of occurrences, before this day is dropped';

-- Its statement is planned, and the partitions of all days are locked, only if it is called.
CREATE FUNCTION last_run_before(of_workflow bigint, before timestamptz) RETURNS timestamptz LANGUAGE plpgsql STABLE AS $$
BEGIN
    -- Without a row it never had a cron.
    IF NOT EXISTS (SELECT FROM ledger WHERE workflow_id = of_workflow) THEN
        RETURN NULL;
    END IF;
    RETURN COALESCE((SELECT max(scheduled_time) FROM occurrences
                      WHERE workflow_id = of_workflow AND scheduled_time < before AND run_id IS NOT NULL),
                    (SELECT last_ran FROM ledger WHERE workflow_id = of_workflow AND last_ran < before));
END
$$;

COMMENT ON FUNCTION last_run_before(bigint, timestamptz) IS 'The last time of a workflow before this one that has run, however long ago it was';

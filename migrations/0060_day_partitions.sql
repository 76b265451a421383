-- The application makes and drops partitions only by these functions: they run as their owner, and take no name of a table.

CREATE FUNCTION make_day_partitions(first_day timestamptz, days integer) RETURNS integer
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp SET lock_timeout = '100ms' AS $$
DECLARE
    parent text;
    key    text;
    name   text;
    low    text;
    high   text;
    day    timestamptz;
    made   integer := 0;
BEGIN
    FOREACH parent IN ARRAY ARRAY['occurrences', 'runs_ended', 'run_results'] LOOP
        key := CASE parent WHEN 'occurrences' THEN 'scheduled_time' WHEN 'runs_ended' THEN 'id' ELSE 'run_id' END;
        FOR nth IN 0 .. days - 1 LOOP
            day := date_trunc('day', first_day, 'UTC') + nth * INTERVAL '24 hours';
            name := parent || '_' || to_char(day AT TIME ZONE 'UTC', 'YYYYMMDD');
            CONTINUE WHEN to_regclass(name) IS NOT NULL;
            IF parent = 'occurrences' THEN
                low := day::text;
                high := (day + INTERVAL '24 hours')::text;
            ELSE
                low := uuid_v7_floor(day)::text;
                high := uuid_v7_floor(day + INTERVAL '24 hours')::text;
            END IF;
            -- ATTACH locks the parent only against other DDL, where CREATE .. PARTITION OF would lock it against all.
            BEGIN
                EXECUTE format('CREATE TABLE %I (LIKE %I INCLUDING DEFAULTS INCLUDING CONSTRAINTS)', name, parent);
                IF parent = 'occurrences' THEN
                    EXECUTE format('ALTER TABLE %I ADD CONSTRAINT occurrences_run CHECK (decision NOT IN (''fired'', ''caught_up'', '
                                   '''backfilled'') OR run_id IS NOT NULL)', name);
                END IF;
                -- Rows that came before their partition; the lock keeps out those that would come now.
                EXECUTE format('LOCK TABLE %I IN SHARE ROW EXCLUSIVE MODE', parent || '_rest');
                EXECUTE format('WITH moved AS (DELETE FROM %I WHERE %I >= %L AND %2$I < %4$L RETURNING *) INSERT INTO %5$I SELECT * FROM moved',
                               parent || '_rest', key, low, high, name);
                EXECUTE format('ALTER TABLE %I ATTACH PARTITION %I FOR VALUES FROM (%L) TO (%L)', parent, name, low, high);
                made := made + 1;
            EXCEPTION
                -- The partition of the time before partitions has this day; or a reader has a lock, and the next turn tries again.
                WHEN invalid_object_definition OR lock_not_available THEN NULL;
            END;
        END LOOP;
    END LOOP;
    RETURN made;
END
$$;

COMMENT ON FUNCTION make_day_partitions(timestamptz, integer) IS
    'Makes the partitions of these days that do not exist, and returns how many; waits 100 ms for a lock, and leaves a day that is locked to the next call';

CREATE FUNCTION drop_oldest_partition(parent text, before timestamptz, at timestamptz) RETURNS text
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp SET lock_timeout = '100ms' AS $$
DECLARE
    most CONSTANT integer := 1000;
    oldest text;
    upto   timestamptz;
    kept   tid[];
BEGIN
    IF parent NOT IN ('occurrences', 'runs_ended', 'run_results') THEN
        RAISE EXCEPTION '% has no partitions by day', parent USING ERRCODE = 'invalid_parameter_value';
    END IF;
    -- The day is in the name, which make_day_partitions gave it.
    SELECT c.relname, to_date(right(c.relname, 8), 'YYYYMMDD')::timestamp AT TIME ZONE 'UTC' + INTERVAL '24 hours' INTO oldest, upto
      FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
     WHERE i.inhparent = parent::regclass AND c.relname ~ ('^' || parent || '_[0-9]{8}$')
     ORDER BY c.relname
     LIMIT 1;
    IF oldest IS NULL OR upto > before THEN
        RETURN 'none';
    END IF;
    -- No write comes in between; reads continue.
    EXECUTE format('LOCK TABLE %I IN SHARE ROW EXCLUSIVE MODE', oldest);
    IF parent = 'occurrences' THEN
        -- A decision that a late fire may need, or whose time the watchdog has not passed, goes on in the rest. First the few workflows
        -- that may have one, then their rows by the UNIQUE index.
        EXECUTE format('SELECT array_agg(ctid) FROM (
            SELECT o.ctid FROM workflows w JOIN %I o ON o.workflow_id = w.id
             WHERE (w.ledger_cursor IS NULL OR w.ledger_cursor < $1 OR $2 - make_interval(secs => w.catch_up_window_secs) - INTERVAL ''1 day'' < $1)
               AND (w.ledger_cursor IS NULL OR o.scheduled_time > w.ledger_cursor
                    OR o.scheduled_time >= $2 - make_interval(secs => w.catch_up_window_secs) - INTERVAL ''1 day'')
             UNION
            SELECT o.ctid FROM %1$I o WHERE o.decided_on >= $3
             LIMIT $4) AS needed', oldest) INTO kept USING upto, at, before, most + 1;
    ELSIF parent = 'runs_ended' THEN
        -- A run that ended later than its day, for example after a long pause.
        EXECUTE format('SELECT array_agg(ctid) FROM (SELECT ctid FROM %I WHERE finished_on >= $1 LIMIT $2) AS needed', oldest)
           INTO kept USING before, most + 1;
    ELSE
        EXECUTE format('SELECT array_agg(ctid) FROM (
            SELECT x.ctid FROM %I x WHERE EXISTS (SELECT FROM runs_ended r WHERE r.id = x.run_id) LIMIT $1) AS needed', oldest)
           INTO kept USING most + 1;
    END IF;
    IF cardinality(kept) > most THEN
        RETURN 'needed';
    END IF;
    IF parent = 'runs_ended' THEN
        EXECUTE format('UPDATE backfills b
                           SET pruned_succeeded = b.pruned_succeeded + s.succeeded
                          FROM (SELECT backfill_id, count(*) AS succeeded FROM %I
                                 WHERE backfill_id IS NOT NULL AND state = ''succeeded'' AND ctid <> ALL(COALESCE($1, ''{}''))
                                 GROUP BY backfill_id) s
                         WHERE b.id = s.backfill_id', oldest) USING kept;
    END IF;
    -- From here on all statements on the parent wait: for the lock 100 ms at most, then for a catalog change and 1,000 rows at most.
    EXECUTE format('ALTER TABLE %I DETACH PARTITION %I', parent, oldest);
    EXECUTE format('INSERT INTO %I SELECT * FROM %I WHERE ctid = ANY($1)', parent, oldest) USING COALESCE(kept, '{}');
    EXECUTE format('DROP TABLE %I', oldest);
    RETURN 'dropped';
EXCEPTION
    WHEN lock_not_available THEN RETURN 'locked';
END
$$;

COMMENT ON FUNCTION drop_oldest_partition(text, timestamptz, timestamptz) IS
    'Drops the oldest partition by day of occurrences, runs_ended or run_results that ends before a time: dropped, none (it is not old), locked (try again), needed (more than 1,000 of its rows must stay)';

-- Today and the week after it; from here on the job prune makes them.
SELECT make_day_partitions(cronbox_now(), 8);

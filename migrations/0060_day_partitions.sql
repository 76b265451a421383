-- The application makes and drops partitions only by these functions: they run as their owner, and take no name of a partition.

CREATE FUNCTION day_bound(parent text, day timestamptz) RETURNS text LANGUAGE sql STABLE
    AS $$ SELECT CASE parent WHEN 'occurrences' THEN day::text ELSE public.uuid_v7_floor(day)::text END $$;

COMMENT ON FUNCTION day_bound(text, timestamptz) IS 'The beginning of a day as a bound of a partition of this table';

CREATE FUNCTION make_day_partitions(of_table text, from_day timestamptz, days integer) RETURNS integer
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp SET lock_timeout = '100ms' AS $$
DECLARE
    first_new timestamptz := date_trunc('day', from_day, 'UTC');
    last_new  timestamptz := first_new + days * INTERVAL '24 hours';
    later     text := of_table || '_later';
    key       text := CASE of_table WHEN 'occurrences' THEN 'scheduled_time' WHEN 'runs_ended' THEN 'id' ELSE 'run_id' END;
    low       timestamptz;
    high      timestamptz;
    name      text;
    made      integer := 0;
BEGIN
    SELECT next_day INTO low FROM partition_bounds WHERE parent = of_table FOR UPDATE;
    IF NOT FOUND THEN
        RAISE EXCEPTION '% has no partitions by day', of_table USING ERRCODE = 'invalid_parameter_value';
    END IF;
    IF low >= last_new THEN
        RETURN 0;
    END IF;
    -- Statements on the table wait from here on: for the lock 100 ms at most, then for changes of the catalog.
    EXECUTE format('ALTER TABLE %I DETACH PARTITION %I', of_table, later);
    WHILE low < last_new LOOP
        -- After a pause of the job the days that have passed share one partition. A partition is named after its last day.
        high := CASE WHEN low < first_new THEN first_new ELSE low + INTERVAL '24 hours' END;
        name := of_table || '_' || to_char((high - INTERVAL '24 hours') AT TIME ZONE 'UTC', 'YYYYMMDD');
        EXECUTE format('CREATE TABLE %I (LIKE %I INCLUDING DEFAULTS INCLUDING CONSTRAINTS)', name, of_table);
        IF of_table = 'occurrences' THEN
            EXECUTE format($check$
                ALTER TABLE %I ADD CONSTRAINT occurrences_run
                    CHECK (decision NOT IN ('fired', 'caught_up', 'backfilled') OR run_id IS NOT NULL)$check$, name);
        END IF;
        -- Rows that came before their partition.
        EXECUTE format('WITH moved AS (DELETE FROM %I WHERE %I < %L RETURNING *) INSERT INTO %I SELECT * FROM moved',
                       later, key, day_bound(of_table, high), name);
        EXECUTE format('ALTER TABLE %I ATTACH PARTITION %I FOR VALUES FROM (%L) TO (%L)', of_table, name,
                       day_bound(of_table, low), day_bound(of_table, high));
        low := high;
        made := made + 1;
    END LOOP;
    EXECUTE format('ALTER TABLE %I ATTACH PARTITION %I FOR VALUES FROM (%L) TO (MAXVALUE)', of_table, later, day_bound(of_table, low));
    UPDATE partition_bounds SET next_day = low WHERE parent = of_table;
    RETURN made;
EXCEPTION
    -- A reader has a lock; a later call makes the days, long before they begin.
    WHEN lock_not_available THEN RETURN 0;
END
$$;

COMMENT ON FUNCTION make_day_partitions(text, timestamptz, integer) IS
    'Makes the partitions of these days that a table lacks, and returns how many; waits 100 ms for a lock, and leaves a locked table to the next call';

CREATE FUNCTION drop_oldest_partition(of_table text, before timestamptz, at timestamptz) RETURNS text
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp SET lock_timeout = '100ms' AS $$
DECLARE
    most CONSTANT integer := 1000;
    older    text := of_table || '_before';
    oldest   text;
    upto     timestamptz;
    kept     tid[];
    is_empty boolean;
BEGIN
    PERFORM FROM partition_bounds WHERE parent = of_table FOR UPDATE;
    IF NOT FOUND THEN
        RAISE EXCEPTION '% has no partitions by day', of_table USING ERRCODE = 'invalid_parameter_value';
    END IF;
    -- The last day of a partition is in its name, which make_day_partitions gave it.
    SELECT c.relname, to_date(right(c.relname, 8), 'YYYYMMDD')::timestamp AT TIME ZONE 'UTC' + INTERVAL '24 hours' INTO oldest, upto
      FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
     WHERE i.inhparent = of_table::regclass AND c.relname ~ ('^' || of_table || '_[0-9]{8}$')
     ORDER BY c.relname
     LIMIT 1;
    IF oldest IS NULL OR upto > before THEN
        RETURN 'none';
    END IF;
    -- No write comes in between; reads continue.
    EXECUTE format('LOCK TABLE %I IN SHARE ROW EXCLUSIVE MODE', oldest);
    -- The partition before the days takes over the days that are dropped, and Postgres reads it for its new bound. A large one is the
    -- table of before the partitions, from which rows are still being deleted.
    EXECUTE format('SELECT NOT EXISTS (SELECT FROM %I)', older) INTO is_empty;
    IF NOT is_empty AND pg_relation_size(older::regclass) > 256 * 1024 * 1024 THEN
        RETURN 'needed';
    END IF;
    IF of_table = 'occurrences' THEN
        -- A decision that a late fire may need, or whose time the watchdog has not passed, moves to the partition before. First the few
        -- workflows that may have one, then their rows by the UNIQUE index.
        EXECUTE format($needed$
            SELECT array_agg(ctid)
              FROM (SELECT o.ctid
                      FROM workflows w JOIN %1$I o ON o.workflow_id = w.id
                      LEFT JOIN ledger l ON l.workflow_id = w.id
                      LEFT JOIN watchdog_shards s ON s.shard = l.shard
                     CROSS JOIN LATERAL (SELECT ledger_decided_through(l.cursor, l.watch_at, s.decided_through) AS through) decided
                     CROSS JOIN LATERAL (SELECT $2 - make_interval(secs => w.catch_up_window_secs) - INTERVAL '1 day' AS repeats) late
                     WHERE (decided.through IS NULL OR decided.through < $1 OR late.repeats < $1)
                       AND (decided.through IS NULL OR o.scheduled_time > decided.through OR o.scheduled_time >= late.repeats)
                     UNION
                    SELECT o.ctid FROM %1$I o WHERE o.decided_on >= $3
                     LIMIT $4) AS needed$needed$, oldest)
           INTO kept USING upto, at, before, most + 1;
    ELSIF of_table = 'runs_ended' THEN
        -- A run that ended later than its day, for example after a long pause.
        EXECUTE format('SELECT array_agg(ctid) FROM (SELECT ctid FROM %I WHERE finished_on >= $1 LIMIT $2) AS needed', oldest)
           INTO kept USING before, most + 1;
    ELSE
        EXECUTE format($needed$
            SELECT array_agg(ctid)
              FROM (SELECT x.ctid FROM %I x WHERE EXISTS (SELECT FROM runs_ended r WHERE r.id = x.run_id) LIMIT $1) AS needed$needed$, oldest)
           INTO kept USING most + 1;
    END IF;
    IF cardinality(kept) > most THEN
        RETURN 'needed';
    END IF;
    kept := COALESCE(kept, '{}');
    IF of_table = 'runs_ended' THEN
        EXECUTE format($counted$
            UPDATE backfills b
               SET pruned_succeeded = b.pruned_succeeded + s.succeeded
              FROM (SELECT backfill_id, count(*) AS succeeded FROM %I
                     WHERE backfill_id IS NOT NULL AND state = 'succeeded' AND ctid <> ALL($1)
                     GROUP BY backfill_id) s
             WHERE b.id = s.backfill_id$counted$, oldest) USING kept;
    END IF;
    -- Statements on the table wait from here on: for the lock 100 ms at most, then for changes of the catalog and 1,000 rows at most.
    EXECUTE format('ALTER TABLE %I DETACH PARTITION %I', of_table, oldest);
    EXECUTE format('ALTER TABLE %I DETACH PARTITION %I', of_table, older);
    IF is_empty THEN
        EXECUTE format('TRUNCATE %I', older);
    END IF;
    EXECUTE format('ALTER TABLE %I ATTACH PARTITION %I FOR VALUES FROM (MINVALUE) TO (%L)', of_table, older, day_bound(of_table, upto));
    UPDATE partition_bounds SET first_day = upto WHERE parent = of_table;
    EXECUTE format('INSERT INTO %I SELECT * FROM %I WHERE ctid = ANY($1)', of_table, oldest) USING kept;
    EXECUTE format('DROP TABLE %I', oldest);
    RETURN 'dropped';
EXCEPTION
    WHEN lock_not_available THEN RETURN 'locked';
END
$$;

COMMENT ON FUNCTION drop_oldest_partition(text, timestamptz, timestamptz) IS
    'Drops the oldest partition by day of occurrences, runs_ended or run_results that ends before a time: dropped, none (it is not old), locked (try again), needed (more than 1,000 of its rows must stay, or the partition before the days is large)';

-- A week ahead; from here on the job prune makes them.
SELECT make_day_partitions(parent, cronbox_now(), 8) FROM partition_bounds ORDER BY parent;

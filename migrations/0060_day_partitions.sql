-- The application makes and drops partitions only by these functions: they run as their owner, and take no name of a partition.

-- Whatever the key of a table is. Its unit is a day, unless its row in partition_bounds says that it is a month.
CREATE FUNCTION day_bound(parent text, day timestamptz) RETURNS text LANGUAGE sql STABLE AS $$
    SELECT CASE WHEN a.atttypid = 'uuid'::regtype THEN public.uuid_v7_floor(day)::text ELSE day::text END
      FROM pg_partitioned_table p JOIN pg_attribute a ON a.attrelid = p.partrelid AND a.attnum = p.partattrs[0]
     WHERE p.partrelid = parent::regclass
$$;

COMMENT ON FUNCTION day_bound(text, timestamptz) IS 'The beginning of a day as a bound of a partition of this table';

CREATE FUNCTION partition_end(unit text, beginning timestamptz) RETURNS timestamptz LANGUAGE sql STABLE AS $$
    SELECT date_trunc(unit, date_trunc(unit, beginning, 'UTC') + CASE unit WHEN 'day' THEN INTERVAL '24 hours' ELSE INTERVAL '768 hours' END, 'UTC')
$$;

COMMENT ON FUNCTION partition_end(text, timestamptz) IS 'The end of the day or month that has begun: 32 days after its first day is the next month';

-- A role that may write a table writes its partitions through it. A right on a partition itself would be another way to its rows.
CREATE FUNCTION close_table(closed regclass) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    named text;
BEGIN
    FOR named IN
        SELECT DISTINCT CASE a.grantee WHEN 0 THEN 'PUBLIC' ELSE a.grantee::regrole::text END
          FROM pg_class c, aclexplode(c.relacl) a
         WHERE c.oid = closed AND a.grantee <> c.relowner
    LOOP
        EXECUTE format('REVOKE ALL ON %s FROM %s', closed, named);
    END LOOP;
END
$$;

COMMENT ON FUNCTION close_table(regclass) IS 'Takes all rights on a table from all roles except its owner';

CREATE FUNCTION make_day_partitions(of_table text, from_day timestamptz, days integer) RETURNS integer
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp SET lock_timeout = '100ms' AS $$
DECLARE
    most CONSTANT integer := 10000;
    last_new  timestamptz := date_trunc('day', from_day, 'UTC') + days * INTERVAL '24 hours';
    later     text := of_table || '_later';
    first_new timestamptz;
    unit      text;
    key       text;
    low       timestamptz;
    high      timestamptz;
    name      text;
    is_large  boolean;
    made      integer := 0;
BEGIN
    SELECT b.next_day, b.unit INTO low, unit FROM partition_bounds b WHERE b.parent = of_table FOR UPDATE;
    IF NOT FOUND THEN
        RAISE EXCEPTION '% has no partitions by day', of_table USING ERRCODE = 'invalid_parameter_value';
    END IF;
    UPDATE partition_bounds SET locked_on = NULL WHERE parent = of_table AND locked_on IS NOT NULL;
    IF low >= last_new THEN
        RETURN 0;
    END IF;
    first_new := date_trunc(unit, from_day, 'UTC');
    SELECT a.attname INTO STRICT key
      FROM pg_partitioned_table p JOIN pg_attribute a ON a.attrelid = p.partrelid AND a.attnum = p.partattrs[0]
     WHERE p.partrelid = of_table::regclass;
    EXECUTE format('SELECT count(*) > $1 FROM (SELECT FROM %I LIMIT $1 + 1) AS first_rows', later) INTO is_large USING most;
    -- Statements on the table wait from here on: for the lock 100 ms at most, then for changes of the catalog and 10,000 rows at most, or
    -- until a larger partition is read.
    EXECUTE format('ALTER TABLE %I DETACH PARTITION %I', of_table, later);
    WHILE low < last_new LOOP
        -- After a pause of the job the days that have passed share one partition. A partition is named after its last day.
        high := CASE WHEN is_large THEN GREATEST(partition_end(unit, from_day + INTERVAL '24 hours'), partition_end(unit, low))
                     WHEN low < first_new THEN first_new
                     ELSE partition_end(unit, low) END;
        name := of_table || '_' || to_char((high - INTERVAL '24 hours') AT TIME ZONE 'UTC', 'YYYYMMDD');
        IF is_large THEN
            -- To move so many rows takes longer than a statement may. So their partition becomes that of the days up to tomorrow.
            EXECUTE format('ALTER TABLE %I RENAME TO %I', later, name);
            EXECUTE format('COMMENT ON TABLE %I IS NULL', name);
            EXECUTE format('CREATE TABLE %I (LIKE %I INCLUDING DEFAULTS INCLUDING CONSTRAINTS)', later, name);
            EXECUTE format('COMMENT ON TABLE %I IS %L', later, 'Rows of a day that has no partition yet: they move when one is made');
            EXECUTE format('WITH moved AS (DELETE FROM %I WHERE %I >= %L RETURNING *) INSERT INTO %I SELECT * FROM moved',
                           name, key, day_bound(of_table, high), later);
            is_large := FALSE;
        ELSE
            EXECUTE format('CREATE TABLE %I (LIKE %I INCLUDING DEFAULTS INCLUDING CONSTRAINTS)', name, later);
            -- Rows that came before their partition.
            EXECUTE format('WITH moved AS (DELETE FROM %I WHERE %I < %L RETURNING *) INSERT INTO %I SELECT * FROM moved',
                           later, key, day_bound(of_table, high), name);
        END IF;
        IF of_table = 'audit_log' THEN
            PERFORM close_table(closed::regclass) FROM unnest(ARRAY[name, later]) AS closed;
        END IF;
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
    WHEN lock_not_available THEN
        UPDATE partition_bounds SET locked_on = cronbox_now() WHERE parent = of_table;
        RETURN 0;
END
$$;

COMMENT ON FUNCTION make_day_partitions(text, timestamptz, integer) IS
    'Makes the partitions by day or month up to these days that a table lacks, and returns how many; waits 100 ms for a lock, and leaves a locked table to the next call';

CREATE FUNCTION drop_oldest_partition(of_table text, before timestamptz, at timestamptz) RETURNS text
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp SET lock_timeout = '100ms' AS $$
DECLARE
    most CONSTANT integer := 10000;
    older    text := of_table || '_before';
    key      text := CASE of_table WHEN 'occurrences' THEN 'workflow_id, scheduled_time' WHEN 'run_results' THEN 'run_id' ELSE 'id' END;
    oldest   text;
    upto     timestamptz;
    few      tid[];
    kept     tid[];
    is_empty boolean;
BEGIN
    PERFORM FROM partition_bounds WHERE parent = of_table FOR UPDATE;
    IF NOT FOUND THEN
        RAISE EXCEPTION '% has no partitions by day', of_table USING ERRCODE = 'invalid_parameter_value';
    END IF;
    IF of_table = 'audit_log' THEN
        -- Whatever its caller says, so that a login of the app cannot remove what it has just done.
        before := LEAST(before, cronbox_now() - INTERVAL '720 hours');
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
    -- No write comes in between, into either of them; reads continue.
    EXECUTE format('LOCK TABLE %I, %I IN SHARE ROW EXCLUSIVE MODE', oldest, older);
    -- The partition before the days takes over the days that are dropped, and Postgres reads it for its new bound. A large one is the
    -- table of before the partitions. While many of its rows are still to be deleted, no day is dropped; the last few are written anew.
    EXECUTE format('SELECT NOT EXISTS (SELECT FROM %I)', older) INTO is_empty;
    -- An entry of the audit log is older than another if its partition is, so those before the days go with the oldest days.
    is_empty := is_empty OR of_table = 'audit_log';
    IF NOT is_empty AND pg_relation_size(older::regclass) > 256 * 1024 * 1024 THEN
        -- By the index, because the table may be a large file with hardly any rows.
        PERFORM set_config('enable_seqscan', 'off', TRUE);
        EXECUTE format('SELECT array_agg(ctid) FROM (SELECT ctid FROM %I ORDER BY %s LIMIT $1) AS few', older, key)
           INTO few USING most + 1;
        PERFORM set_config('enable_seqscan', 'on', TRUE);
        IF cardinality(few) > most THEN
            RETURN 'needed';
        END IF;
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
    ELSIF of_table = 'run_results' THEN
        -- Only runs up to this day: the results of later ones are in later partitions.
        EXECUTE format($needed$
            SELECT array_agg(ctid)
              FROM (SELECT x.ctid FROM %I x
                     WHERE EXISTS (SELECT FROM runs_ended r WHERE r.id = x.run_id AND r.id < %L)
                     LIMIT $1) AS needed$needed$, oldest, day_bound(of_table, upto))
           INTO kept USING most + 1;
    END IF;
    IF cardinality(kept) > most THEN
        RETURN 'needed';
    END IF;
    kept := COALESCE(kept, '{}');
    IF of_table = 'occurrences' THEN
        PERFORM remember_last_runs(oldest, upto);
    END IF;
    IF of_table = 'runs_ended' THEN
        EXECUTE format($counted$
            UPDATE backfills b
               SET pruned_succeeded = b.pruned_succeeded + s.succeeded
              FROM (SELECT backfill_id, count(*) AS succeeded FROM %I
                     WHERE backfill_id IS NOT NULL AND state = 'succeeded' AND ctid <> ALL($1)
                     GROUP BY backfill_id) s
             WHERE b.id = s.backfill_id$counted$, oldest) USING kept;
    END IF;
    -- Statements on the table wait from here on: for the lock 100 ms at most, then for changes of the catalog and 20,000 rows at most.
    EXECUTE format('ALTER TABLE %I DETACH PARTITION %I', of_table, oldest);
    EXECUTE format('ALTER TABLE %I DETACH PARTITION %I', of_table, older);
    -- Both have lost the triggers of the partitioned table, so the statistics count no row again.
    IF of_table = 'occurrences' THEN
        -- Rows from before migration 26 may lack their run.
        EXECUTE format('ALTER TABLE %I DROP CONSTRAINT IF EXISTS occurrences_run', oldest);
        EXECUTE format('ALTER TABLE %I DROP CONSTRAINT IF EXISTS occurrences_run', older);
    END IF;
    IF few IS NOT NULL THEN
        EXECUTE format($moved$
            WITH moved AS (INSERT INTO %I SELECT * FROM %I WHERE ctid = ANY($1) RETURNING ctid)
            SELECT $2 || array_agg(ctid) FROM moved$moved$, oldest, older) INTO kept USING few, kept;
    END IF;
    IF is_empty OR few IS NOT NULL THEN
        EXECUTE format('TRUNCATE %I', older);
    END IF;
    EXECUTE format('INSERT INTO %I SELECT * FROM %I WHERE ctid = ANY($1)', older, oldest) USING kept;
    IF of_table = 'occurrences' THEN
        EXECUTE format($check$
            ALTER TABLE %I ADD CONSTRAINT occurrences_run
                CHECK (decision NOT IN ('fired', 'caught_up', 'backfilled') OR run_id IS NOT NULL) NOT VALID$check$, older);
    END IF;
    EXECUTE format('ALTER TABLE %I ATTACH PARTITION %I FOR VALUES FROM (MINVALUE) TO (%L)', of_table, older, day_bound(of_table, upto));
    UPDATE partition_bounds SET first_day = upto WHERE parent = of_table;
    EXECUTE format('DROP TABLE %I', oldest);
    RETURN 'dropped';
EXCEPTION
    WHEN lock_not_available THEN
        UPDATE partition_bounds SET locked_on = cronbox_now() WHERE parent = of_table;
        RETURN 'locked';
END
$$;

COMMENT ON FUNCTION drop_oldest_partition(text, timestamptz, timestamptz) IS
    'Drops the oldest partition of occurrences, runs_ended, run_results or audit_log that ends before a time, of the audit log none of the last 30 days: dropped, none (it is not old), locked (try again), needed (more than 10,000 of its rows must stay, or the partition before the days is large)';

-- A week ahead; from here on the job prune makes them.
SELECT make_day_partitions(parent, cronbox_now(), 8) FROM partition_bounds ORDER BY parent;

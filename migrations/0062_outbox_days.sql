-- The job prune makes the days of the outbox by the function that makes those of the other tables. The function reads the key of a table from
-- the catalog, so that a further table needs only a row in partition_bounds and its partition after the days.
CREATE OR REPLACE FUNCTION day_bound(parent text, day timestamptz) RETURNS text LANGUAGE sql STABLE AS $$
    SELECT CASE WHEN a.atttypid = 'uuid'::regtype THEN public.uuid_v7_floor(day)::text ELSE day::text END
      FROM pg_partitioned_table p JOIN pg_attribute a ON a.attrelid = p.partrelid AND a.attnum = p.partattrs[0]
     WHERE p.partrelid = parent::regclass
$$;

CREATE OR REPLACE FUNCTION make_day_partitions(of_table text, from_day timestamptz, days integer) RETURNS integer
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp SET lock_timeout = '100ms' AS $$
DECLARE
    first_new timestamptz := date_trunc('day', from_day, 'UTC');
    last_new  timestamptz := first_new + days * INTERVAL '24 hours';
    later     text := of_table || '_later';
    key       text;
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
    SELECT a.attname INTO STRICT key
      FROM pg_partitioned_table p JOIN pg_attribute a ON a.attrelid = p.partrelid AND a.attnum = p.partattrs[0]
     WHERE p.partrelid = of_table::regclass;
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

-- Not drop_oldest_partition: no row of these days is needed, so nothing is moved.
CREATE FUNCTION drop_oldest_outbox_day(before timestamptz) RETURNS text
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp SET lock_timeout = '100ms' AS $$
DECLARE
    oldest   text;
    upto     timestamptz;
    is_empty boolean;
BEGIN
    PERFORM FROM partition_bounds WHERE parent = 'outbox_processed' FOR UPDATE;
    -- The last day of a partition is in its name, which make_day_partitions gave it.
    SELECT c.relname, to_date(right(c.relname, 8), 'YYYYMMDD')::timestamp AT TIME ZONE 'UTC' + INTERVAL '24 hours' INTO oldest, upto
      FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
     WHERE i.inhparent = 'outbox_processed'::regclass AND c.relname ~ '^outbox_processed_[0-9]{8}$'
     ORDER BY c.relname
     LIMIT 1;
    IF oldest IS NULL OR upto > before THEN
        RETURN 'none';
    END IF;
    -- The partition before the days takes over the days that are dropped, and Postgres reads it for its new bound. A large one is the
    -- table of before the partitions, from which rows are still being deleted.
    SELECT NOT EXISTS (SELECT FROM outbox_processed_before) INTO is_empty;
    IF NOT is_empty AND pg_relation_size('outbox_processed_before') > 256 * 1024 * 1024 THEN
        RETURN 'needed';
    END IF;
    -- Settles and lists wait from here on: for the lock 100 ms at most, then for changes of the catalog. No edit waits, because it
    -- names neither this table nor its partitions.
    EXECUTE format('ALTER TABLE outbox_processed DETACH PARTITION %I', oldest);
    ALTER TABLE outbox_processed DETACH PARTITION outbox_processed_before;
    IF is_empty THEN
        TRUNCATE outbox_processed_before;
    END IF;
    EXECUTE format('ALTER TABLE outbox_processed ATTACH PARTITION outbox_processed_before FOR VALUES FROM (MINVALUE) TO (%L)', upto);
    UPDATE partition_bounds SET first_day = upto WHERE parent = 'outbox_processed';
    EXECUTE format('DROP TABLE %I', oldest);
    RETURN 'dropped';
EXCEPTION
    WHEN lock_not_available THEN RETURN 'locked';
END
$$;

COMMENT ON FUNCTION drop_oldest_outbox_day(timestamptz) IS
    'Drops the oldest partition by day of outbox_processed that ends before a time: dropped, none (it is not old), locked (try again), needed (the partition before the days is large)';

-- A week ahead, as of the other tables; from here on the job prune makes them.
SELECT make_day_partitions('outbox_processed', cronbox_now(), 8);

-- The job prune makes and drops the days of the outbox only by these functions, as those of other tables (migration 60): they run as their
-- owner, wait 100 ms for a lock, and take no name. Here the partitions themselves say which days there are, and no row of a day is needed.

CREATE FUNCTION make_outbox_days(from_day timestamptz, days integer) RETURNS integer
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp SET lock_timeout = '100ms' AS $$
DECLARE
    first_new timestamptz := date_trunc('day', from_day, 'UTC');
    last_new  timestamptz := first_new + days * INTERVAL '24 hours';
    low       timestamptz;
    high      timestamptz;
    name      text;
    made      integer := 0;
BEGIN
    -- One caller at a time; settles continue.
    LOCK TABLE outbox_processed IN SHARE UPDATE EXCLUSIVE MODE;
    SELECT substring(pg_get_expr(relpartbound, oid) FROM $bound$FROM \('([^']+)'\)$bound$)::timestamptz INTO STRICT low
      FROM pg_class
     WHERE oid = 'outbox_processed_later'::regclass;
    IF low >= last_new THEN
        RETURN 0;
    END IF;
    -- Settles and lists wait from here on: for the lock 100 ms at most, then for changes of the catalog.
    ALTER TABLE outbox_processed DETACH PARTITION outbox_processed_later;
    WHILE low < last_new LOOP
        -- After a pause of the job the days that have passed share one partition. A partition is named after its last day.
        high := CASE WHEN low < first_new THEN first_new ELSE low + INTERVAL '24 hours' END;
        name := 'outbox_processed_' || to_char((high - INTERVAL '24 hours') AT TIME ZONE 'UTC', 'YYYYMMDD');
        EXECUTE format('CREATE TABLE %I (LIKE outbox_processed INCLUDING DEFAULTS INCLUDING CONSTRAINTS)', name);
        -- Rows that came before their partition.
        EXECUTE format('WITH moved AS (DELETE FROM outbox_processed_later WHERE processed_on < %L RETURNING *) INSERT INTO %I SELECT * FROM moved',
                       high, name);
        EXECUTE format('ALTER TABLE outbox_processed ATTACH PARTITION %I FOR VALUES FROM (%L) TO (%L)', name, low, high);
        low := high;
        made := made + 1;
    END LOOP;
    EXECUTE format('ALTER TABLE outbox_processed ATTACH PARTITION outbox_processed_later FOR VALUES FROM (%L) TO (MAXVALUE)', low);
    RETURN made;
EXCEPTION
    -- A reader has a lock; a later call makes the days, long before they begin.
    WHEN lock_not_available THEN RETURN 0;
END
$$;

COMMENT ON FUNCTION make_outbox_days(timestamptz, integer) IS
    'Makes the partitions of these days that outbox_processed lacks, and returns how many; waits 100 ms for a lock, and leaves a locked table to the next call';

CREATE FUNCTION drop_oldest_outbox_day(before timestamptz) RETURNS text
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp SET lock_timeout = '100ms' AS $$
DECLARE
    oldest   text;
    upto     timestamptz;
    is_empty boolean;
BEGIN
    -- One caller at a time; settles continue.
    LOCK TABLE outbox_processed IN SHARE UPDATE EXCLUSIVE MODE;
    -- The last day of a partition is in its name, which make_outbox_days gave it.
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
    EXECUTE format('DROP TABLE %I', oldest);
    RETURN 'dropped';
EXCEPTION
    WHEN lock_not_available THEN RETURN 'locked';
END
$$;

COMMENT ON FUNCTION drop_oldest_outbox_day(timestamptz) IS
    'Drops the oldest partition by day of outbox_processed that ends before a time: dropped, none (it is not old), locked (try again), needed (the partition before the days is large)';

-- A week ahead, as of the other tables; from here on the job prune makes them.
SELECT make_outbox_days(cronbox_now(), 8);

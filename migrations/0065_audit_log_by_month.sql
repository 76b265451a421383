-- The audit log by month of its entries, so that a retention drops a table: the log stays append-only for every role of the application. The
-- table of before becomes the partition of all entries up to tomorrow; the transaction reads it three times, for the bounds and two
-- indexes, and edits wait meanwhile.
LOCK TABLE audit_log IN ACCESS EXCLUSIVE MODE;

DROP TRIGGER audit_log_append_only ON audit_log;
ALTER TABLE audit_log DROP CONSTRAINT audit_log_pkey;
ALTER TABLE audit_log RENAME TO audit_log_before;
ALTER INDEX idx_audit_log_subject RENAME TO idx_audit_log_before_subject;

CREATE TABLE audit_log (
    LIKE audit_log_before INCLUDING COMMENTS,
    CONSTRAINT audit_log_pkey PRIMARY KEY (id, at)
) PARTITION BY RANGE (at);

COMMENT ON TABLE  audit_log IS 'Who changed what; append-only, outlives the objects that it names; by the month of the entry';

CREATE INDEX idx_audit_log_subject ON audit_log (subject, id);
CREATE INDEX idx_audit_log_deletions ON audit_log (id) WHERE verb = 'delete' AND subject LIKE 'workflow:%';

COMMENT ON INDEX idx_audit_log_subject   IS 'The history of one object, in its order';
COMMENT ON INDEX idx_audit_log_deletions IS 'Each instance reads every 5 s which workflows were deleted, however many other edits there were';

CREATE TABLE audit_log_later (
    LIKE audit_log INCLUDING COMMENTS
);

COMMENT ON TABLE  audit_log_before IS 'Entries older than all partitions by month; emptied when the oldest month is dropped';
COMMENT ON TABLE  audit_log_later  IS 'Entries of a month that has no partition yet: no edit fails if the job prune made none, and they move when it makes one';

ALTER TABLE partition_bounds ADD COLUMN unit TEXT NOT NULL DEFAULT 'day' CONSTRAINT partition_bounds_unit CHECK (unit IN ('day', 'month'));

COMMENT ON COLUMN partition_bounds.unit   IS 'What one partition has: a day, or a month of a table that is small or kept for long (UTC)';
COMMENT ON COLUMN partition_bounds.parent IS 'The partitioned table, for example occurrences';

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

DO $$
DECLARE
    months_begin timestamptz := date_trunc('day', cronbox_now(), 'UTC') + INTERVAL '48 hours';
    next_id      bigint := nextval(pg_get_serial_sequence('audit_log_before', 'id'));
BEGIN
    ALTER TABLE audit_log_before ALTER COLUMN id DROP IDENTITY;
    EXECUTE format('ALTER TABLE audit_log ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (START WITH %s)', next_id);
    INSERT INTO partition_bounds (parent, first_day, next_day, unit) VALUES ('audit_log', months_begin, months_begin, 'month');
    -- Normally none: entries of the future.
    INSERT INTO audit_log_later SELECT * FROM audit_log_before WHERE at >= months_begin;
    DELETE FROM audit_log_before WHERE at >= months_begin;
    EXECUTE format('ALTER TABLE audit_log ATTACH PARTITION audit_log_later FOR VALUES FROM (%L) TO (MAXVALUE)', months_begin);
    EXECUTE format('ALTER TABLE audit_log ATTACH PARTITION audit_log_before FOR VALUES FROM (MINVALUE) TO (%L)', months_begin);
    PERFORM close_table(partition) FROM unnest(ARRAY['audit_log_before', 'audit_log_later']::regclass[]) AS partition;
END
$$;

-- Of the table, as before, and of each row, so of each partition, too.
CREATE TRIGGER audit_log_append_only
    BEFORE UPDATE OR DELETE OR TRUNCATE ON audit_log
    FOR EACH STATEMENT EXECUTE FUNCTION audit_log_append_only();

CREATE TRIGGER audit_log_keep_rows
    BEFORE UPDATE OR DELETE ON audit_log
    FOR EACH ROW EXECUTE FUNCTION audit_log_append_only();

-- The functions that make and drop days now know months and the audit log. They read the key of a table from the catalog.
CREATE OR REPLACE FUNCTION day_bound(parent text, day timestamptz) RETURNS text LANGUAGE sql STABLE AS $$
    SELECT CASE WHEN a.atttypid = 'uuid'::regtype THEN public.uuid_v7_floor(day)::text ELSE day::text END
      FROM pg_partitioned_table p JOIN pg_attribute a ON a.attrelid = p.partrelid AND a.attnum = p.partattrs[0]
     WHERE p.partrelid = parent::regclass
$$;

CREATE OR REPLACE FUNCTION make_day_partitions(of_table text, from_day timestamptz, days integer) RETURNS integer
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp SET lock_timeout = '100ms' AS $$
DECLARE
    last_new  timestamptz := date_trunc('day', from_day, 'UTC') + days * INTERVAL '24 hours';
    later     text := of_table || '_later';
    key       text;
    unit      text;
    first_new timestamptz;
    low       timestamptz;
    high      timestamptz;
    name      text;
    made      integer := 0;
BEGIN
    SELECT b.next_day, b.unit INTO low, unit FROM partition_bounds b WHERE b.parent = of_table FOR UPDATE;
    IF NOT FOUND THEN
        RAISE EXCEPTION '% has no partitions by day', of_table USING ERRCODE = 'invalid_parameter_value';
    END IF;
    IF low >= last_new THEN
        RETURN 0;
    END IF;
    first_new := date_trunc(unit, from_day, 'UTC');
    SELECT a.attname INTO STRICT key
      FROM pg_partitioned_table p JOIN pg_attribute a ON a.attrelid = p.partrelid AND a.attnum = p.partattrs[0]
     WHERE p.partrelid = of_table::regclass;
    -- Statements on the table wait from here on: for the lock 100 ms at most, then for changes of the catalog.
    EXECUTE format('ALTER TABLE %I DETACH PARTITION %I', of_table, later);
    WHILE low < last_new LOOP
        -- After a pause of the job the days that have passed share one partition. A partition is named after its last day.
        high := CASE WHEN low < first_new THEN first_new ELSE partition_end(unit, low) END;
        name := of_table || '_' || to_char((high - INTERVAL '24 hours') AT TIME ZONE 'UTC', 'YYYYMMDD');
        EXECUTE format('CREATE TABLE %I (LIKE %I INCLUDING DEFAULTS INCLUDING CONSTRAINTS)', name, of_table);
        IF of_table = 'occurrences' THEN
            EXECUTE format($check$
                ALTER TABLE %I ADD CONSTRAINT occurrences_run
                    CHECK (decision NOT IN ('fired', 'caught_up', 'backfilled') OR run_id IS NOT NULL)$check$, name);
        END IF;
        IF of_table = 'audit_log' THEN
            PERFORM close_table(name::regclass);
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

CREATE OR REPLACE FUNCTION drop_oldest_partition(of_table text, before timestamptz, at timestamptz) RETURNS text
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
    -- No write comes in between; reads continue.
    EXECUTE format('LOCK TABLE %I IN SHARE ROW EXCLUSIVE MODE', oldest);
    -- The partition before the days takes over the days that are dropped, and Postgres reads it for its new bound. A large one is the
    -- table of before the partitions, from which rows are still being deleted.
    EXECUTE format('SELECT NOT EXISTS (SELECT FROM %I)', older) INTO is_empty;
    -- An entry of the audit log is older than another if its partition is, so those before the days go with the oldest days.
    is_empty := is_empty OR of_table = 'audit_log';
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
    ELSIF of_table = 'run_results' THEN
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
    IF cardinality(kept) > 0 THEN
        EXECUTE format('INSERT INTO %I SELECT * FROM %I WHERE ctid = ANY($1)', of_table, oldest) USING kept;
    END IF;
    EXECUTE format('DROP TABLE %I', oldest);
    RETURN 'dropped';
EXCEPTION
    WHEN lock_not_available THEN RETURN 'locked';
END
$$;

COMMENT ON FUNCTION drop_oldest_partition(text, timestamptz, timestamptz) IS
    'Drops the oldest partition of occurrences, runs_ended, run_results or audit_log that ends before a time, of the audit log none of the last 30 days: dropped, none (it is not old), locked (try again), needed (more than 1,000 of its rows must stay, or the partition before the days is large)';
COMMENT ON FUNCTION make_day_partitions(text, timestamptz, integer) IS
    'Makes the partitions by day or month up to these days that a table lacks, and returns how many; waits 100 ms for a lock, and leaves a locked table to the next call';

SELECT make_day_partitions('audit_log', cronbox_now(), 8);

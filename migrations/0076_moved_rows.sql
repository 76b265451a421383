-- drop_oldest_partition moves the rows of a day that must stay to the partition before the days. It inserted them through the parent, whose
-- triggers count what is decided and what ends: each of them was counted twice. Now it inserts them into the partition itself, which has no
-- such trigger. Only this word of the function changes, whatever else a migration since the 60th has changed in it.
DO $$
BEGIN
    EXECUTE replace(
        pg_get_functiondef('drop_oldest_partition(text, timestamptz, timestamptz)'::regprocedure),
        $of$'INSERT INTO %I SELECT * FROM %I WHERE ctid = ANY($1)', of_table, oldest)$of$,
        $of$'INSERT INTO %I SELECT * FROM %I WHERE ctid = ANY($1)', older, oldest)$of$);
END
$$;

-- no-transaction
-- Each run names its team, so that the lists of a team need no join. Batches of 10,000 rows, each with a commit of its own; the
-- version before sets the team of each new run, so only runs that ended before migration 21 lack it.
DO $$
DECLARE
    last uuid := '00000000-0000-0000-0000-000000000000';
    upto uuid;
BEGIN
    -- After the swap of migration 57 no run lacks its team.
    IF (SELECT relkind = 'p' FROM pg_class WHERE oid = 'runs'::regclass) THEN
        RETURN;
    END IF;
    LOOP
        SELECT id INTO upto FROM runs WHERE id > last ORDER BY id OFFSET 9999 LIMIT 1;
        -- Locked in the order of their ids, as everywhere.
        WITH stored AS MATERIALIZED (
            SELECT id FROM runs
             WHERE id > last AND id <= COALESCE(upto, 'ffffffff-ffff-ffff-ffff-ffffffffffff') AND team_id IS NULL
             ORDER BY id
               FOR UPDATE
        )
        UPDATE runs r SET team_id = w.team_id FROM stored, workflows w WHERE r.id = stored.id AND w.id = r.workflow_id;
        COMMIT;
        EXIT WHEN upto IS NULL;
        last := upto;
    END LOOP;
    -- Their workflow was deleted since migration 52; the job prune would remove them.
    DELETE FROM runs WHERE team_id IS NULL;
END
$$

-- no-transaction
-- Copies the progress of each workflow, in batches, so that no edit waits for all of them. A workflow that the version before
-- changes meanwhile has its row by the trigger. The first pass of the watchdog lets them follow their shards.
DO $$
DECLARE
    last_id BIGINT := 0;
    next_id BIGINT;
BEGIN
    LOOP
        SELECT max(id) INTO next_id FROM (SELECT id FROM workflows WHERE id > last_id ORDER BY id LIMIT 10000) AS batch;
        EXIT WHEN next_id IS NULL;
        INSERT INTO ledger (workflow_id, cursor, watch_at, activated_on)
        SELECT id, ledger_cursor, COALESCE(watch_at, ledger_cursor + INTERVAL '1 microsecond'), schedule_activated_at
          FROM workflows
         WHERE id > last_id AND id <= next_id AND ledger_cursor IS NOT NULL
           FOR KEY SHARE
        ON CONFLICT (workflow_id) DO NOTHING;
        last_id := next_id;
        COMMIT;
    END LOOP;
END
$$

-- One fire from its decision to its end, as the app's statements write it: batches of 64 decisions and claims, ends one by one.
CREATE PROCEDURE fire(first INTEGER, fires INTEGER, beats INTEGER) LANGUAGE plpgsql AS $$
DECLARE
    batch INTEGER := 64;
    at timestamptz;
    due timestamptz;
    run uuid;
    instance uuid := gen_random_uuid();
BEGIN
    FOR n IN first / batch .. (first + fires) / batch - 1 LOOP
        -- All workflows in turn; a new minute when each of them has fired, and 200 minutes to a day.
        due := '2026-01-01Z'::timestamptz + ((n * batch / 1000) / 200) * INTERVAL '1 day' + ((n * batch / 1000) % 200) * INTERVAL '1 minute';
        at := due + INTERVAL '2 seconds';
        WITH given AS MATERIALIZED (
            SELECT v7(at) AS id, v7(at) AS run_id, w.id AS workflow_id, w.team_id,
                   due + (i / 1000) * INTERVAL '1 minute' AS due_time
              FROM generate_series(n * batch % 1000, n * batch % 1000 + batch - 1) i JOIN workflows w ON w.id = i % 1000 + 1
        ), recorded AS (
            INSERT INTO occurrences (id, workflow_id, scheduled_time, decision, revision, run_id, raw_time, execution_id, attempt, lateness_s,
                                     decided_on, created_on, updated_on)
            SELECT id, workflow_id, due_time, 'fired', 1, run_id, to_char(due_time AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"'),
                   gen_random_uuid()::text, 1, 2, at, at, at
              FROM given ORDER BY workflow_id
            ON CONFLICT ON CONSTRAINT occurrences_workflow_id_scheduled_time_key DO NOTHING
            RETURNING id
        )
        INSERT INTO runs (id, workflow_id, occurrence_id, trigger, state, scheduled_time, run_after, created_on, team_id)
        SELECT given.run_id, given.workflow_id, given.id, 'schedule', 'accepted', due_time, at, at, team_id
          FROM given JOIN recorded ON recorded.id = given.id;
        COMMIT;
        UPDATE runs r SET state = 'running', attempt = attempt + 1, started_on = at, handed_over_until = NULL, locked_by = instance,
                          locked_at = at, lease_until = at + INTERVAL '120 seconds'
          FROM (SELECT id FROM runs WHERE state = 'accepted' FOR UPDATE SKIP LOCKED) AS due_runs
         WHERE r.id = due_runs.id AND r.state = 'accepted';
        COMMIT;
        FOR beat IN 1 .. beats LOOP
            UPDATE runs SET locked_at = at + beat * INTERVAL '20 seconds', lease_until = at + (beat * 20 + 120) * INTERVAL '1 second'
             WHERE state = 'running' AND locked_by = instance;
            COMMIT;
        END LOOP;
        FOR run IN SELECT id FROM runs WHERE state = 'running' LOOP
            -- One in twenty fails.
            PERFORM end_run(run, at + INTERVAL '1 second', CASE WHEN random() < 0.05 THEN 'failed' ELSE 'succeeded' END);
            COMMIT;
        END LOOP;
    END LOOP;
END
$$;

-- (a) a partition of runs that have not ended, and a history by day that is written once. One relation for readers: Postgres prunes by state.
\ir occurrences.sql
CREATE TABLE runs (LIKE run_columns INCLUDING DEFAULTS) PARTITION BY LIST (state);
CREATE TABLE runs_live PARTITION OF runs (PRIMARY KEY (id))
    FOR VALUES IN ('accepted', 'queued', 'running', 'waiting') WITH (fillfactor = 70);
-- Finds the live runs of a workflow, and permits one automatic run of a time: NULLs of other runs are distinct.
CREATE UNIQUE INDEX ON runs_live (workflow_id, (CASE WHEN trigger IN ('schedule', 'catch_up') THEN scheduled_time END));
\if :hot_claims
CREATE INDEX ON runs_live (team_id, run_after);
\else
CREATE INDEX ON runs_live (team_id, run_after) WHERE state = 'accepted';
CREATE INDEX ON runs_live (started_on) WHERE state = 'running';
\endif
CREATE TABLE runs_ended PARTITION OF runs (PRIMARY KEY (id))
    FOR VALUES IN ('succeeded', 'failed', 'timed_out', 'cancelled', 'abandoned') PARTITION BY RANGE (id);
CREATE INDEX ON runs_ended (workflow_id, id);
CREATE INDEX ON runs_ended (team_id, id);
CREATE INDEX ON runs_ended (workflow_id, scheduled_time) WHERE scheduled_time IS NOT NULL;
CREATE INDEX ON runs_ended (team_id, id) WHERE state IN ('failed', 'timed_out', 'abandoned');
CREATE INDEX ON runs_ended (backfill_id) WHERE backfill_id IS NOT NULL;
CREATE INDEX ON runs_ended USING brin (finished_on) WITH (autosummarize = on);
SELECT format('CREATE TABLE runs_%s PARTITION OF runs_ended FOR VALUES FROM (%L) TO (%L)', n,
              v7_floor('2026-01-01Z'::timestamptz + n * INTERVAL '1 day'), v7_floor('2026-01-02Z'::timestamptz + n * INTERVAL '1 day'))
  FROM generate_series(0, :days - 1) n \gexec
CREATE FUNCTION end_run(run uuid, at timestamptz, how TEXT) RETURNS void LANGUAGE sql AS $$
    WITH ended AS (DELETE FROM runs_live WHERE id = run AND state = 'running' RETURNING *)
    INSERT INTO runs_ended (id, workflow_id, occurrence_id, trigger, state, scheduled_time, run_after, attempt, created_on, started_on,
                            finished_on, result, duration_ms, tries, recoveries, inputs, backfill_id, handed_over, cut_off, retry_of, team_id)
    SELECT id, workflow_id, occurrence_id, trigger, how, scheduled_time, run_after, attempt, created_on, started_on, at,
           '{"status": 200, "body": "ok"}', (EXTRACT(EPOCH FROM at - started_on) * 1000)::bigint, tries, recoveries, inputs, backfill_id,
           handed_over, cut_off, retry_of, team_id
      FROM ended
$$;

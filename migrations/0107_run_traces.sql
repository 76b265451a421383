-- The trace of a run, while it has not ended: an attempt continues it, also on another instance than that which decided the fire.

ALTER TABLE runs ADD COLUMN traceparent TEXT NULL;

COMMENT ON COLUMN runs.traceparent       IS 'W3C trace context of the request that created the run; of a fire only while traces are on';
COMMENT ON COLUMN runs_live.traceparent  IS 'W3C trace context of the request that created the run; of a fire only while traces are on';
COMMENT ON COLUMN runs_ended.traceparent IS 'Always NULL: the trace of a run ends with it';

-- As before, with one more column.
CREATE OR REPLACE FUNCTION ended_run(
    run runs_live, end_state text, ended_on timestamptz, why text, result jsonb DEFAULT NULL, failed_tries integer DEFAULT 0,
    took_ms bigint DEFAULT NULL, stop_reason text DEFAULT NULL, more_handed_over integer DEFAULT 0
) RETURNS SETOF runs_ended LANGUAGE sql STABLE AS $$
    SELECT run.id, run.workflow_id, run.occurrence_id, run.trigger, end_state, run.scheduled_time, run.run_after, run.attempt, run.created_on,
           run.started_on, ended_on, NULL::uuid, NULL::timestamptz,
           CASE WHEN end_state = 'cancelled' THEN COALESCE(run.cancel_requested_on, ended_on) ELSE run.cancel_requested_on END,
           result, why, took_ms, run.tries + failed_tries, run.recoveries, run.late_result, run.inputs, run.backfill_id, NULL::timestamptz,
           run.handed_over + more_handed_over, run.cut_off, COALESCE(run.cancel_reason, stop_reason), run.retry_of, run.team_id,
           run.handed_over_until, NULL::bytea, NULL::timestamptz, NULL::text
$$;

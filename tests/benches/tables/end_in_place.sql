CREATE FUNCTION end_run(run uuid, at timestamptz, how TEXT) RETURNS void LANGUAGE sql AS $$
    UPDATE runs SET state = how, result = '{"status": 200, "body": "ok"}', finished_on = at,
                    duration_ms = (EXTRACT(EPOCH FROM at - started_on) * 1000)::bigint, locked_by = NULL, locked_at = NULL, lease_until = NULL
     WHERE id = run AND state = 'running'
$$;

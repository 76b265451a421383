-- The filter of lists by the last result. In a function, its statements are planned, and the partitions of all days are locked, only if it is
-- called; and the days before the last week are read only of a workflow that did not run in it.
CREATE FUNCTION last_result(of_workflow bigint) RETURNS text LANGUAGE plpgsql STABLE AS $$
DECLARE
    week   uuid := uuid_v7_floor(hours_before(cronbox_now(), 168));
    latest text;
BEGIN
    SELECT state INTO latest
      FROM runs_ended
     WHERE id >= week AND (workflow_id, id) >= (of_workflow, week)
       AND (workflow_id, id) <= (of_workflow, 'ffffffff-ffff-ffff-ffff-ffffffffffff')
     ORDER BY workflow_id DESC, id DESC
     LIMIT 1;
    IF latest IS NULL THEN
        SELECT state INTO latest
          FROM runs_ended
         WHERE (workflow_id, id) >= (of_workflow, '00000000-0000-0000-0000-000000000000')
           AND (workflow_id, id) <= (of_workflow, 'ffffffff-ffff-ffff-ffff-ffffffffffff')
         ORDER BY workflow_id DESC, id DESC
         LIMIT 1;
    END IF;
    RETURN latest;
END
$$;

COMMENT ON FUNCTION last_result(bigint) IS 'The state of the newest run of a workflow that has ended; NULL = none is kept';

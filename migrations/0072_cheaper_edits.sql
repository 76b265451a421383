-- What an edit pays for although it changes nothing of it.
--
-- The usage of a team: a trigger of the statement captured the rows and added them up for each edit. This one is skipped unless the row
-- changes what is counted. Only a job changes rows of several teams, one team in each statement, so two statements cannot block each other.
CREATE FUNCTION count_changed_usage() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM add_team_usage(team_id, sum(sign)::bigint, COALESCE(sum(sign * fires), 0)::bigint, COALESCE(sum(sign * bytes), 0)::bigint)
       FROM (VALUES (NEW.team_id, 1, NEW.state, NEW.fires_per_hour, NEW.input_bytes),
                    (OLD.team_id, -1, OLD.state, OLD.fires_per_hour, OLD.input_bytes)) AS change (team_id, sign, state, fires, bytes)
      WHERE state <> 'archived'
      GROUP BY team_id
      ORDER BY team_id;
    RETURN NULL;
END
$$;

COMMENT ON FUNCTION count_changed_usage() IS 'Counts what the change of a workflow adds to the usage of its team';

DROP TRIGGER workflows_count_changed ON workflows;
CREATE TRIGGER workflows_count_changed
    AFTER UPDATE ON workflows
    FOR EACH ROW
    WHEN ((OLD.state = 'archived', OLD.team_id, OLD.fires_per_hour, OLD.input_bytes)
          IS DISTINCT FROM (NEW.state = 'archived', NEW.team_id, NEW.fires_per_hour, NEW.input_bytes))
    EXECUTE FUNCTION count_changed_usage();

-- Its statement is planned, and the partitions of all days are locked, only if it is called.
CREATE FUNCTION last_decision_from(of_workflow bigint, since timestamptz) RETURNS timestamptz LANGUAGE plpgsql STABLE AS $$
BEGIN
    RETURN (SELECT max(scheduled_time) FROM occurrences WHERE workflow_id = of_workflow AND scheduled_time >= since);
END
$$;

COMMENT ON FUNCTION last_decision_from(bigint, timestamptz) IS 'The newest decided time of a workflow from this one on, however far it is in the future';

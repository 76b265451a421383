-- Adds a difference to what the workflows of a team add up to.
CREATE FUNCTION add_team_usage(team BIGINT, added_workflows BIGINT, added_fires BIGINT, added_bytes BIGINT)
    RETURNS void LANGUAGE sql AS $$
    INSERT INTO team_usage AS u (team_id, workflows, fires_per_hour, input_bytes)
    VALUES (team, added_workflows, added_fires, added_bytes)
    ON CONFLICT (team_id) DO UPDATE
       SET workflows = u.workflows + excluded.workflows, fires_per_hour = u.fires_per_hour + excluded.fires_per_hour,
           input_bytes = u.input_bytes + excluded.input_bytes
$$;

COMMENT ON FUNCTION add_team_usage(BIGINT, BIGINT, BIGINT, BIGINT) IS 'Adds a difference to the usage of a team';

-- One row per team and statement, in the order of the teams, so that two statements cannot block each other. A
-- statement that changes neither the number of a team's workflows nor their sums writes nothing.
CREATE FUNCTION count_team_usage() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'INSERT' THEN
        PERFORM add_team_usage(team_id, count(*), COALESCE(sum(fires_per_hour), 0), COALESCE(sum(input_bytes), 0))
           FROM added WHERE state <> 'archived' GROUP BY team_id ORDER BY team_id;
    ELSIF TG_OP = 'DELETE' THEN
        PERFORM add_team_usage(team_id, -count(*), -COALESCE(sum(fires_per_hour), 0), -COALESCE(sum(input_bytes), 0))
           FROM removed WHERE state <> 'archived' GROUP BY team_id ORDER BY team_id;
    ELSE
        PERFORM add_team_usage(team_id, workflows, fires, bytes)
           FROM (SELECT team_id, sum(sign)::bigint AS workflows,
                        COALESCE(sum(sign * fires_per_hour), 0)::bigint AS fires,
                        COALESCE(sum(sign * input_bytes), 0)::bigint AS bytes
                   FROM (SELECT team_id, 1 AS sign, state, fires_per_hour, input_bytes FROM added
                         UNION ALL
                         SELECT team_id, -1, state, fires_per_hour, input_bytes FROM removed) AS change
                  WHERE state <> 'archived'
                  GROUP BY team_id) AS changed
          WHERE (workflows, fires, bytes) <> (0, 0, 0)
          ORDER BY team_id;
    END IF;
    RETURN NULL;
END
$$;

COMMENT ON FUNCTION count_team_usage() IS 'Counts what the workflows of each team add up to';

-- Each of them locks out other writers until the rows are counted; reads and fires go on.
CREATE TRIGGER workflows_count_added AFTER INSERT ON workflows
    REFERENCING NEW TABLE AS added FOR EACH STATEMENT EXECUTE FUNCTION count_team_usage();
CREATE TRIGGER workflows_count_changed AFTER UPDATE ON workflows
    REFERENCING OLD TABLE AS removed NEW TABLE AS added FOR EACH STATEMENT EXECUTE FUNCTION count_team_usage();
CREATE TRIGGER workflows_count_removed AFTER DELETE ON workflows
    REFERENCING OLD TABLE AS removed FOR EACH STATEMENT EXECUTE FUNCTION count_team_usage();

INSERT INTO team_usage (team_id, workflows, fires_per_hour, input_bytes)
SELECT team_id, count(*), 0, 0 FROM workflows WHERE state <> 'archived' GROUP BY team_id;

-- Counts what each team has archived, and lets an admin limit it.
--
-- Edits wait until the archived workflows are counted, so that none of them is counted twice or not at all. Reads and fires go on.
LOCK TABLE workflows IN SHARE ROW EXCLUSIVE MODE;

CREATE FUNCTION add_team_usage(team BIGINT, added_workflows BIGINT, added_fires BIGINT, added_bytes BIGINT,
                               added_archived BIGINT, added_archived_bytes BIGINT)
    RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO team_usage AS u (team_id, workflows, fires_per_hour, input_bytes, archived_workflows, archived_bytes)
    VALUES (team, added_workflows, added_fires, added_bytes, added_archived, added_archived_bytes)
    ON CONFLICT (team_id) DO UPDATE
       SET workflows = u.workflows + excluded.workflows, fires_per_hour = u.fires_per_hour + excluded.fires_per_hour,
           input_bytes = u.input_bytes + excluded.input_bytes,
           archived_workflows = u.archived_workflows + excluded.archived_workflows,
           archived_bytes = u.archived_bytes + excluded.archived_bytes;
END
$$;

COMMENT ON FUNCTION add_team_usage(BIGINT, BIGINT, BIGINT, BIGINT, BIGINT, BIGINT) IS 'Adds a difference to the usage of a team';

-- Of statements that insert or delete. One row per team, in the order of the teams, so that two statements cannot block each other.
CREATE OR REPLACE FUNCTION count_team_usage() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'INSERT' THEN
        PERFORM add_team_usage(team_id, count(*) FILTER (WHERE state <> 'archived'),
                               COALESCE(sum(fires_per_hour) FILTER (WHERE state <> 'archived'), 0),
                               COALESCE(sum(input_bytes) FILTER (WHERE state <> 'archived'), 0),
                               count(*) FILTER (WHERE state = 'archived'),
                               COALESCE(sum(input_bytes) FILTER (WHERE state = 'archived'), 0))
           FROM added GROUP BY team_id ORDER BY team_id;
    ELSE
        PERFORM add_team_usage(team_id, -(count(*) FILTER (WHERE state <> 'archived')),
                               -COALESCE(sum(fires_per_hour) FILTER (WHERE state <> 'archived'), 0),
                               -COALESCE(sum(input_bytes) FILTER (WHERE state <> 'archived'), 0),
                               -(count(*) FILTER (WHERE state = 'archived')),
                               -COALESCE(sum(input_bytes) FILTER (WHERE state = 'archived'), 0))
           FROM removed GROUP BY team_id ORDER BY team_id;
    END IF;
    RETURN NULL;
END
$$;

-- What is not archived counts in the first three sums, what is archived in the last two.
CREATE OR REPLACE FUNCTION count_changed_usage() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF (OLD.state = 'archived', OLD.team_id, OLD.fires_per_hour, OLD.input_bytes)
       IS DISTINCT FROM (NEW.state = 'archived', NEW.team_id, NEW.fires_per_hour, NEW.input_bytes) THEN
        PERFORM add_team_usage(team_id, COALESCE(sum(sign) FILTER (WHERE NOT is_archived), 0)::bigint,
                               COALESCE(sum(sign * fires) FILTER (WHERE NOT is_archived), 0)::bigint,
                               COALESCE(sum(sign * bytes) FILTER (WHERE NOT is_archived), 0)::bigint,
                               COALESCE(sum(sign) FILTER (WHERE is_archived), 0)::bigint,
                               COALESCE(sum(sign * bytes) FILTER (WHERE is_archived), 0)::bigint)
           FROM (VALUES (NEW.team_id, 1, NEW.state = 'archived', NEW.fires_per_hour, NEW.input_bytes),
                        (OLD.team_id, -1, OLD.state = 'archived', OLD.fires_per_hour, OLD.input_bytes))
                AS change (team_id, sign, is_archived, fires, bytes)
          GROUP BY team_id
          ORDER BY team_id;
    END IF;
    RETURN NULL;
END
$$;

DROP FUNCTION add_team_usage(BIGINT, BIGINT, BIGINT, BIGINT);

INSERT INTO team_usage (team_id, workflows, fires_per_hour, input_bytes, archived_workflows, archived_bytes)
SELECT team_id, 0, 0, 0, count(*), COALESCE(sum(input_bytes), 0) FROM workflows WHERE state = 'archived' GROUP BY team_id
ON CONFLICT (team_id) DO UPDATE SET archived_workflows = excluded.archived_workflows, archived_bytes = excluded.archived_bytes;

-- Last, because each request reads the limits of its team.
ALTER TABLE team_limits
    ADD COLUMN archived_workflows BIGINT NULL CONSTRAINT team_limits_archived_workflows CHECK (archived_workflows >= 0),
    ADD COLUMN archived_bytes     BIGINT NULL CONSTRAINT team_limits_archived_bytes CHECK (archived_bytes >= 0);

COMMENT ON COLUMN team_limits.archived_workflows IS 'Archived workflows, from which on no workflow is created';
COMMENT ON COLUMN team_limits.archived_bytes     IS 'Bytes of inputs and actions of archived workflows, from which on no workflow is created';

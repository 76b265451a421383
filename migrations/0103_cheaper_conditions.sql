-- What an edit pays for although it changes nothing of it: the conditions of triggers.
--
-- Postgres reads the stored text of a condition anew for each statement that a trigger follows, and a condition with several comparisons costs
-- more than the call of a function that compares and returns. So a condition here is short, or its trigger does not follow edits at all.

-- The condition was one of the trigger. It is in the function now, and statements that write none of these columns do not call it.
CREATE OR REPLACE FUNCTION count_changed_usage() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF (OLD.state = 'archived', OLD.team_id, OLD.fires_per_hour, OLD.input_bytes)
       IS DISTINCT FROM (NEW.state = 'archived', NEW.team_id, NEW.fires_per_hour, NEW.input_bytes) THEN
        PERFORM add_team_usage(team_id, sum(sign)::bigint, COALESCE(sum(sign * fires), 0)::bigint, COALESCE(sum(sign * bytes), 0)::bigint)
           FROM (VALUES (NEW.team_id, 1, NEW.state, NEW.fires_per_hour, NEW.input_bytes),
                        (OLD.team_id, -1, OLD.state, OLD.fires_per_hour, OLD.input_bytes)) AS change (team_id, sign, state, fires, bytes)
          WHERE state <> 'archived'
          GROUP BY team_id
          ORDER BY team_id;
    END IF;
    RETURN NULL;
END
$$;

CREATE OR REPLACE TRIGGER workflows_count_changed
    AFTER UPDATE OF state, team_id, fires_per_hour, input_bytes ON workflows
    FOR EACH ROW EXECUTE FUNCTION count_changed_usage();

-- Only a workflow that is paused has this column, so the rest of the condition is in the function.
CREATE OR REPLACE FUNCTION notify_of_auto_pause() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NEW.state = 'paused' AND OLD.state = 'active' AND NEW.paused_by = 'cronbox' THEN
        INSERT INTO notifications (rule_id, team_id, workflow_id, event, subject, happened_on, facts)
        SELECT r.id, NEW.team_id, NEW.id, r.event, NEW.id || '/' || NEW.revision, NEW.updated_on,
               jsonb_build_object('failures', NEW.pause_after_failures)
          FROM notification_rules r
         WHERE r.team_id = NEW.team_id AND (r.workflow_id IS NULL OR r.workflow_id = NEW.id) AND r.is_enabled AND r.event = 'auto_paused'
        ON CONFLICT ON CONSTRAINT notifications_once DO NOTHING;
    END IF;
    RETURN NULL;
END
$$;

CREATE OR REPLACE TRIGGER notify_of_auto_pause AFTER UPDATE OF state ON workflows
    FOR EACH ROW WHEN (NEW.paused_by IS NOT NULL)
    EXECUTE FUNCTION notify_of_auto_pause();

-- An edit resets error_class. A failure writes its error, too.
CREATE OR REPLACE TRIGGER notify_of_failed_sync AFTER UPDATE OF last_error ON publications
    FOR EACH ROW WHEN (NEW.error_class = 'permanent' AND OLD.error_class IS DISTINCT FROM 'permanent')
    EXECUTE FUNCTION notify_of_publication('sync_failed');

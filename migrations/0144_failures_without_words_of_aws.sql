-- The facts of a failed edit go to the channels of its team and to each viewer, and the words of EventBridge name the account, its roles and its
-- quotas: only admins read them, in sync.last_error. So the facts have the class, and the error only if it is the publisher's sentence about the
-- cron or the timezone of the workflow ("the stored cron cannot be read"). Rows from before keep their words, which the app does not show:
-- to change them would lock a table that each end of a run writes.
--
-- The version before reads `error` only if it exists, and says without it that EventBridge refuses the schedule.
CREATE OR REPLACE FUNCTION notify_of_publication() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp AS $$
BEGIN
    INSERT INTO notifications (rule_id, team_id, workflow_id, event, subject, happened_on, facts)
    SELECT r.id, w.team_id, w.id, r.event,
           w.id || '/' || CASE r.event WHEN 'sync_failed' THEN NEW.desired_revision ELSE NEW.epoch END, cronbox_now(),
           CASE r.event WHEN 'sync_failed' THEN jsonb_build_object('error_class', NEW.error_class, 'revision', NEW.desired_revision)
                                             || CASE WHEN starts_with(NEW.last_error, 'the stored ')
                                                     THEN jsonb_build_object('error', left(NEW.last_error, 500)) ELSE '{}' END
                        ELSE jsonb_build_object('class', OLD.drift) END
      FROM workflows w
      JOIN notification_rules r ON r.team_id = w.team_id AND (r.workflow_id IS NULL OR r.workflow_id = w.id)
     WHERE w.id = NEW.workflow_id AND r.is_enabled AND r.event = TG_ARGV[0]
    ON CONFLICT ON CONSTRAINT notifications_once DO NOTHING;
    RETURN NULL;
END
$$;

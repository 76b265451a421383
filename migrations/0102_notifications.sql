-- Notifications: messages to people about what failed, and about what recovered.
--
-- A rule of a team names an event and channels. A trigger writes one row per event and rule, in the transaction that makes the event: so no
-- statement that ends a run or decides a time can forget it, and a crash loses or repeats none. A job collects the rows in messages later.

-- Who paused a workflow: clients look for those that cronbox paused, because no person decided it.
ALTER TABLE workflows ADD COLUMN paused_by TEXT NULL,
    ADD CONSTRAINT workflows_paused_by CHECK (paused_by IN ('client', 'cronbox'));
-- The second pattern is the sentence that version 0.1 stored.
UPDATE workflows
   SET paused_by = CASE WHEN pause_reason ~ '^(failures_in_a_row:[0-9]+$|paused by cronbox: )' THEN 'cronbox' ELSE 'client' END
 WHERE state = 'paused';
CREATE INDEX idx_workflows_paused_by_cronbox ON workflows (team_id, id) WHERE paused_by = 'cronbox';

COMMENT ON COLUMN workflows.paused_by IS 'Who paused it: client, or cronbox after pause_after_failures; NULL = it is not paused';
COMMENT ON INDEX  idx_workflows_paused_by_cronbox IS 'The list of the workflows that cronbox paused, and their number for the metrics';

CREATE TABLE notification_channels (
    id             BIGINT      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    team_id        BIGINT      NOT NULL REFERENCES teams (id) ON DELETE CASCADE,
    name           TEXT        NOT NULL,
    kind           TEXT        NOT NULL CONSTRAINT notification_channels_kind CHECK (kind IN ('webhook', 'slack', 'email', 'aws')),
    url            TEXT        NULL,
    origin         TEXT        NULL,
    recipients     TEXT[]      NOT NULL DEFAULT '{}',
    max_per_hour   INTEGER     NOT NULL,
    quiet_from     INTEGER     NULL,
    quiet_to       INTEGER     NULL,
    quiet_timezone TEXT        NULL,
    is_enabled     BOOLEAN     NOT NULL,
    version        BIGINT      NOT NULL DEFAULT 1,
    created_on     timestamptz NOT NULL,
    updated_on     timestamptz NOT NULL,
    CONSTRAINT notification_channels_name UNIQUE (team_id, name),
    CONSTRAINT notification_channels_url CHECK ((url IS NOT NULL) = (kind IN ('webhook', 'slack')) AND (url IS NULL) = (origin IS NULL)),
    CONSTRAINT notification_channels_quiet CHECK (num_nulls(quiet_from, quiet_to, quiet_timezone) IN (0, 3))
);

COMMENT ON TABLE  notification_channels                IS 'Where a team wants notifications: a webhook, a channel of Slack, addresses of e-mail, or AWS through the Lambda notifier';
COMMENT ON COLUMN notification_channels.id             IS 'Identity';
COMMENT ON COLUMN notification_channels.team_id        IS 'The owner';
COMMENT ON COLUMN notification_channels.name           IS 'Unique in its team';
COMMENT ON COLUMN notification_channels.kind           IS 'webhook, slack, email or aws';
COMMENT ON COLUMN notification_channels.url            IS 'Of a webhook or of Slack; encrypted if the app has a key, because its path is a secret';
COMMENT ON COLUMN notification_channels.origin         IS 'Scheme, host and port of the URL, which may be shown';
COMMENT ON COLUMN notification_channels.recipients     IS 'Addresses of e-mail';
COMMENT ON COLUMN notification_channels.max_per_hour   IS 'Messages in an hour at most; further notifications wait, and are collected';
COMMENT ON COLUMN notification_channels.quiet_from     IS 'The minute of the local day from which no message is sent; NULL = it has no quiet hours';
COMMENT ON COLUMN notification_channels.quiet_to       IS 'The minute of the local day from which messages are sent again';
COMMENT ON COLUMN notification_channels.quiet_timezone IS 'The timezone of the quiet hours';
COMMENT ON COLUMN notification_channels.is_enabled     IS 'Whether it gets notifications';
COMMENT ON COLUMN notification_channels.version        IS 'Raised by each change';
COMMENT ON COLUMN notification_channels.created_on     IS 'When it was created';
COMMENT ON COLUMN notification_channels.updated_on     IS 'When it last changed';

CREATE TABLE notification_rules (
    id            BIGINT      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    team_id       BIGINT      NOT NULL REFERENCES teams (id) ON DELETE CASCADE,
    workflow_id   BIGINT      NULL REFERENCES workflows (id) ON DELETE CASCADE,
    event         TEXT        NOT NULL,
    threshold     INTEGER     NULL,
    after_secs    INTEGER     NULL,
    group_secs    INTEGER     NOT NULL,
    snoozed_until timestamptz NULL,
    is_enabled    BOOLEAN     NOT NULL,
    version       BIGINT      NOT NULL DEFAULT 1,
    created_on    timestamptz NOT NULL,
    updated_on    timestamptz NOT NULL,
    CONSTRAINT notification_rules_event CHECK (event IN
        ('run_failed', 'failures_in_a_row', 'recovered', 'missed', 'abandoned', 'skipped_overlap', 'auto_paused', 'sync_failed',
         'drift_repaired', 'run_late', 'run_long', 'no_success', 'verify_difference', 'frozen_long', 'paused_long')),
    CONSTRAINT notification_rules_threshold CHECK ((threshold IS NOT NULL) = (event IN ('failures_in_a_row', 'recovered', 'skipped_overlap'))),
    CONSTRAINT notification_rules_after CHECK ((after_secs IS NOT NULL) = (event IN ('run_late', 'run_long', 'no_success', 'frozen_long', 'paused_long')))
);

CREATE INDEX idx_notification_rules_team ON notification_rules (team_id, event) WHERE is_enabled;
CREATE INDEX idx_notification_rules_workflow ON notification_rules (workflow_id) WHERE workflow_id IS NOT NULL;

COMMENT ON TABLE  notification_rules               IS 'Which events of a team, or of one of its workflows, become notifications';
COMMENT ON COLUMN notification_rules.id            IS 'Identity';
COMMENT ON COLUMN notification_rules.team_id       IS 'The owner';
COMMENT ON COLUMN notification_rules.workflow_id   IS 'Only this workflow; NULL = all of the team';
COMMENT ON COLUMN notification_rules.event         IS 'What happens';
COMMENT ON COLUMN notification_rules.threshold     IS 'How often in a row: failures, before a recovery too, or skipped times';
COMMENT ON COLUMN notification_rules.after_secs    IS 'How long a condition must hold';
COMMENT ON COLUMN notification_rules.group_secs    IS 'For how long notifications are collected in one message, from the first on';
COMMENT ON COLUMN notification_rules.snoozed_until IS 'Until then notifications are recorded and not sent; NULL = they are sent';
COMMENT ON COLUMN notification_rules.is_enabled    IS 'Whether it is in force';
COMMENT ON COLUMN notification_rules.version       IS 'Raised by each change';
COMMENT ON COLUMN notification_rules.created_on    IS 'When it was created';
COMMENT ON COLUMN notification_rules.updated_on    IS 'When it last changed';
COMMENT ON INDEX  idx_notification_rules_team      IS 'The triggers find the rules of an event';
COMMENT ON INDEX  idx_notification_rules_workflow  IS 'The deletion of a workflow removes its rules';

CREATE TABLE notification_rule_channels (
    rule_id    BIGINT NOT NULL REFERENCES notification_rules (id) ON DELETE CASCADE,
    -- A team that is deleted has its channels deleted in the same statement.
    channel_id BIGINT NOT NULL REFERENCES notification_channels (id) DEFERRABLE INITIALLY DEFERRED,
    PRIMARY KEY (rule_id, channel_id)
);

CREATE INDEX idx_notification_rule_channels_channel ON notification_rule_channels (channel_id);

COMMENT ON TABLE  notification_rule_channels            IS 'The channels of a rule';
COMMENT ON COLUMN notification_rule_channels.rule_id    IS 'The rule';
COMMENT ON COLUMN notification_rule_channels.channel_id IS 'The channel, which cannot be deleted while a rule has it';
COMMENT ON INDEX  idx_notification_rule_channels_channel IS 'The deletion of a channel looks for its rules';

CREATE TABLE notifications (
    id              BIGINT      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    rule_id         BIGINT      NOT NULL,
    team_id         BIGINT      NOT NULL,
    workflow_id     BIGINT      NULL,
    event           TEXT        NOT NULL,
    subject         TEXT        NOT NULL,
    happened_on     timestamptz NOT NULL,
    run_id          UUID        NULL,
    scheduled_time  timestamptz NULL,
    facts           JSONB       NOT NULL DEFAULT '{}',
    state           TEXT        NOT NULL DEFAULT 'new',
    acknowledged_by TEXT        NULL,
    acknowledged_on timestamptz NULL,
    created_on      timestamptz NOT NULL DEFAULT cronbox_now(),
    CONSTRAINT notifications_once UNIQUE (rule_id, subject),
    CONSTRAINT notifications_state CHECK (state IN ('new', 'routed', 'snoozed', 'unsent'))
);

CREATE INDEX idx_notifications_new ON notifications (id) WHERE state = 'new';
CREATE INDEX idx_notifications_team ON notifications (team_id, id);
CREATE INDEX idx_notifications_workflow ON notifications (workflow_id, id) WHERE workflow_id IS NOT NULL;
CREATE INDEX idx_notifications_created_on ON notifications USING brin (created_on) WITH (autosummarize = on);

COMMENT ON TABLE  notifications                 IS 'One event of one rule, written in the transaction that makes the event';
COMMENT ON COLUMN notifications.id              IS 'Identity';
COMMENT ON COLUMN notifications.rule_id         IS 'The rule; it may be deleted by now';
COMMENT ON COLUMN notifications.team_id         IS 'The team';
COMMENT ON COLUMN notifications.workflow_id     IS 'The workflow; NULL = a freeze';
COMMENT ON COLUMN notifications.event           IS 'As in notification_rules.event';
COMMENT ON COLUMN notifications.subject         IS 'What the event is about: an event of a rule has one row';
COMMENT ON COLUMN notifications.happened_on     IS 'When it happened (business time)';
COMMENT ON COLUMN notifications.run_id          IS 'The run';
COMMENT ON COLUMN notifications.scheduled_time  IS 'The due time';
COMMENT ON COLUMN notifications.facts           IS 'What the sentence of the message needs: failures, error, since, times';
COMMENT ON COLUMN notifications.state           IS 'new; routed: each of its channels has an item; snoozed; unsent: the rule has no enabled channel';
COMMENT ON COLUMN notifications.acknowledged_by IS 'Who acknowledged it';
COMMENT ON COLUMN notifications.acknowledged_on IS 'When';
COMMENT ON COLUMN notifications.created_on      IS 'When it was written (cronbox_now)';
COMMENT ON INDEX  idx_notifications_new         IS 'The job notifications routes them';
COMMENT ON INDEX  idx_notifications_team        IS 'The list of a team, the newest first';
COMMENT ON INDEX  idx_notifications_workflow    IS 'The list of a workflow, the newest first';
COMMENT ON INDEX  idx_notifications_created_on  IS 'The job prune removes the oldest';

CREATE TABLE notification_messages (
    id            UUID        PRIMARY KEY,
    channel_id    BIGINT      NOT NULL,
    team_id       BIGINT      NOT NULL,
    event         TEXT        NOT NULL,
    items         INTEGER     NOT NULL,
    state         TEXT        NOT NULL DEFAULT 'pending',
    due_at        timestamptz NULL,
    attempt_count INTEGER     NOT NULL DEFAULT 0,
    lease_until   timestamptz NULL,
    last_error    TEXT        NULL,
    created_on    timestamptz NOT NULL,
    sent_on       timestamptz NULL,
    failed_on     timestamptz NULL,
    CONSTRAINT notification_messages_state CHECK (state IN ('pending', 'sent', 'failed')),
    CONSTRAINT notification_messages_due CHECK ((state = 'pending') = (due_at IS NOT NULL))
);

CREATE INDEX idx_notification_messages_due ON notification_messages (team_id, due_at) WHERE state = 'pending';
CREATE INDEX idx_notification_messages_team ON notification_messages (team_id, id);
CREATE INDEX idx_notification_messages_channel ON notification_messages (channel_id, created_on);

COMMENT ON TABLE  notification_messages               IS 'One message to one channel, about one notification or several of one event; delivered at least once under its id';
COMMENT ON COLUMN notification_messages.id            IS 'The id of every delivery (uuid v7), by which a receiver recognises a repeated one';
COMMENT ON COLUMN notification_messages.channel_id    IS 'The channel';
COMMENT ON COLUMN notification_messages.team_id       IS 'The team';
COMMENT ON COLUMN notification_messages.event         IS 'As in notification_rules.event';
COMMENT ON COLUMN notification_messages.items         IS 'How many notifications it has';
COMMENT ON COLUMN notification_messages.state         IS 'pending, sent, or failed: no further attempt unless an editor requests one';
COMMENT ON COLUMN notification_messages.due_at        IS 'When the next attempt is due (cronbox_now); NULL = none is';
COMMENT ON COLUMN notification_messages.attempt_count IS 'How often it was claimed for delivery; also the fence of a claim';
COMMENT ON COLUMN notification_messages.lease_until   IS 'Until when its claim lasts (cronbox_now)';
COMMENT ON COLUMN notification_messages.last_error    IS 'Why the last attempt failed';
COMMENT ON COLUMN notification_messages.created_on    IS 'When it was made of its notifications';
COMMENT ON COLUMN notification_messages.sent_on       IS 'When the receiver accepted it';
COMMENT ON COLUMN notification_messages.failed_on     IS 'When the last attempt failed';
COMMENT ON INDEX  idx_notification_messages_due       IS 'Deliveries claim the messages of each team';
COMMENT ON INDEX  idx_notification_messages_team      IS 'The list of a team, the newest first';
COMMENT ON INDEX  idx_notification_messages_channel   IS 'The messages of a channel in the last hour are limited';

CREATE TABLE notification_items (
    notification_id BIGINT      NOT NULL REFERENCES notifications (id) ON DELETE CASCADE,
    channel_id      BIGINT      NOT NULL,
    event           TEXT        NOT NULL,
    ready_on        timestamptz NOT NULL,
    message_id      UUID        NULL,
    PRIMARY KEY (notification_id, channel_id)
);

CREATE INDEX idx_notification_items_waiting ON notification_items (channel_id, event, ready_on) WHERE message_id IS NULL;
CREATE INDEX idx_notification_items_message ON notification_items (message_id) WHERE message_id IS NOT NULL;

COMMENT ON TABLE  notification_items                 IS 'A notification for a channel, and the message that has it';
COMMENT ON COLUMN notification_items.notification_id IS 'The notification';
COMMENT ON COLUMN notification_items.channel_id      IS 'The channel';
COMMENT ON COLUMN notification_items.event           IS 'As in notification_rules.event; a message has one event';
COMMENT ON COLUMN notification_items.ready_on        IS 'When the collection that it begins ends (cronbox_now)';
COMMENT ON COLUMN notification_items.message_id      IS 'The message; NULL = it waits for one';
COMMENT ON INDEX  idx_notification_items_waiting     IS 'The job notifications collects what waits for a channel';
COMMENT ON INDEX  idx_notification_items_message     IS 'A delivery reads the notifications of its message';

CREATE TABLE notification_conditions (
    rule_id     BIGINT      NOT NULL REFERENCES notification_rules (id) ON DELETE CASCADE,
    workflow_id BIGINT      NOT NULL,
    since       timestamptz NOT NULL,
    PRIMARY KEY (rule_id, workflow_id)
);

COMMENT ON TABLE  notification_conditions             IS 'Conditions that hold now and have their notification; the row goes when the condition ends';
COMMENT ON COLUMN notification_conditions.rule_id     IS 'The rule';
COMMENT ON COLUMN notification_conditions.workflow_id IS 'The workflow';
COMMENT ON COLUMN notification_conditions.since       IS 'When the condition was found (business time)';

CREATE TABLE failure_streaks (
    workflow_id    BIGINT      PRIMARY KEY,
    team_id        BIGINT      NOT NULL,
    failures       INTEGER     NOT NULL,
    since          timestamptz NOT NULL,
    first_run_id   UUID        NOT NULL,
    last_failed_on timestamptz NOT NULL,
    last_run_id    UUID        NOT NULL
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 200);

CREATE INDEX idx_failure_streaks_team ON failure_streaks (team_id, workflow_id);

COMMENT ON TABLE  failure_streaks                IS 'Workflows whose last run failed, and how many failed in a row; cancelled and abandoned runs do not count';
COMMENT ON COLUMN failure_streaks.workflow_id    IS 'The workflow';
COMMENT ON COLUMN failure_streaks.team_id        IS 'Its team';
COMMENT ON COLUMN failure_streaks.failures       IS 'How many runs failed or timed out since the last one that succeeded';
COMMENT ON COLUMN failure_streaks.since          IS 'When the first of them ended';
COMMENT ON COLUMN failure_streaks.first_run_id   IS 'The first of them; it names the streak';
COMMENT ON COLUMN failure_streaks.last_failed_on IS 'When the last of them ended';
COMMENT ON COLUMN failure_streaks.last_run_id    IS 'The last of them';
COMMENT ON INDEX  idx_failure_streaks_team       IS 'What fails now in a team';

-- A run that succeeds ends the streak of its workflow; normally there is no streak, and one look into an empty table is all that a success
-- costs. The rows are locked in the order of the workflows. Two batches that end runs of the same two workflows, one of them successes and
-- the other one failures, may still wait for each other: Postgres ends one of them, and its runs are written singly.
CREATE FUNCTION notify_of_ends() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF EXISTS (SELECT FROM failure_streaks) AND EXISTS (SELECT FROM ended WHERE state = 'succeeded') THEN
        WITH locked AS MATERIALIZED (
            SELECT s.workflow_id
              FROM failure_streaks s
             WHERE s.workflow_id IN (SELECT e.workflow_id FROM ended e WHERE e.state = 'succeeded')
             ORDER BY s.workflow_id
               FOR UPDATE
        ), over AS (
            DELETE FROM failure_streaks s USING locked l WHERE s.workflow_id = l.workflow_id RETURNING s.*
        )
        INSERT INTO notifications (rule_id, team_id, workflow_id, event, subject, happened_on, run_id, scheduled_time, facts)
        SELECT r.id, o.team_id, o.workflow_id, r.event, o.first_run_id::text, e.finished_on, e.id, e.scheduled_time,
               jsonb_build_object('failures', o.failures, 'since', o.since)
          FROM over o
         CROSS JOIN LATERAL (
               SELECT id, finished_on, scheduled_time FROM ended
                WHERE workflow_id = o.workflow_id AND state = 'succeeded'
                ORDER BY finished_on DESC, id DESC
                LIMIT 1) AS e
          JOIN notification_rules r ON r.team_id = o.team_id AND (r.workflow_id IS NULL OR r.workflow_id = o.workflow_id)
         WHERE r.is_enabled AND r.event = 'recovered' AND o.failures >= r.threshold
        ON CONFLICT ON CONSTRAINT notifications_once DO NOTHING;
    END IF;
    IF EXISTS (SELECT FROM ended WHERE state IN ('failed', 'timed_out', 'abandoned')) THEN
        WITH failed AS MATERIALIZED (
            SELECT e.id, e.workflow_id, e.team_id, e.finished_on
              FROM ended e
             WHERE e.state IN ('failed', 'timed_out')
               -- A success of the same batch ends what was before it.
               AND NOT EXISTS (SELECT FROM ended later
                                WHERE later.workflow_id = e.workflow_id AND later.state = 'succeeded'
                                  AND (later.finished_on, later.id) > (e.finished_on, e.id))
        ), streaks AS (
            INSERT INTO failure_streaks AS s (workflow_id, team_id, failures, since, first_run_id, last_failed_on, last_run_id)
            SELECT workflow_id, min(team_id), count(*), min(finished_on), (array_agg(id ORDER BY finished_on, id))[1],
                   max(finished_on), (array_agg(id ORDER BY finished_on DESC, id DESC))[1]
              FROM failed
             GROUP BY workflow_id
             ORDER BY workflow_id
            ON CONFLICT (workflow_id) DO UPDATE
               SET failures = s.failures + excluded.failures, last_failed_on = excluded.last_failed_on, last_run_id = excluded.last_run_id
            RETURNING s.*
        )
        INSERT INTO notifications (rule_id, team_id, workflow_id, event, subject, happened_on, run_id, scheduled_time, facts)
        SELECT r.id, e.team_id, e.workflow_id, r.event,
               CASE r.event WHEN 'failures_in_a_row' THEN s.first_run_id::text ELSE e.id::text END,
               e.finished_on, e.id, e.scheduled_time,
               jsonb_build_object('state', e.state, 'error', left(e.error, 500), 'failures', s.failures, 'since', s.since)
          FROM ended e
          JOIN notification_rules r ON r.team_id = e.team_id AND (r.workflow_id IS NULL OR r.workflow_id = e.workflow_id)
          LEFT JOIN streaks s ON s.workflow_id = e.workflow_id
         WHERE r.is_enabled
           AND (r.event = 'run_failed' AND e.state IN ('failed', 'timed_out')
                OR r.event = 'abandoned' AND e.state = 'abandoned'
                OR r.event = 'failures_in_a_row' AND s.failures >= r.threshold AND e.id = s.last_run_id)
        ON CONFLICT ON CONSTRAINT notifications_once DO NOTHING;
    END IF;
    RETURN NULL;
END
$$;

COMMENT ON FUNCTION notify_of_ends() IS 'Counts failures in a row, and writes the notifications of the runs that one statement ends';

CREATE TRIGGER notify_of_ends AFTER INSERT ON runs_ended
    REFERENCING NEW TABLE AS ended FOR EACH STATEMENT EXECUTE FUNCTION notify_of_ends();

-- A transaction decides the times of a workflow under its lock, so the decisions before can be read.
CREATE FUNCTION notify_of_decisions() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NOT EXISTS (SELECT FROM decided WHERE decision IN ('missed', 'skipped_overlap'))
       OR NOT EXISTS (SELECT FROM notification_rules WHERE event IN ('missed', 'skipped_overlap') AND is_enabled) THEN
        RETURN NULL;
    END IF;
    -- One for all times that a statement decides of a workflow: after an outage they are many.
    IF TG_OP = 'INSERT' THEN
        INSERT INTO notifications (rule_id, team_id, workflow_id, event, subject, happened_on, scheduled_time, facts)
        SELECT r.id, w.team_id, w.id, r.event, w.id || '/' || EXTRACT(EPOCH FROM d.first)::bigint, d.decided_on, d.first,
               jsonb_build_object('times', d.times, 'first', d.first, 'last', d.last, 'reason', d.reason)
          FROM (SELECT workflow_id, count(*) AS times, min(scheduled_time) AS first, max(scheduled_time) AS last,
                       max(decided_on) AS decided_on, max(reason) AS reason
                  FROM decided WHERE decision = 'missed' GROUP BY workflow_id) AS d
          JOIN workflows w ON w.id = d.workflow_id
          JOIN notification_rules r ON r.team_id = w.team_id AND (r.workflow_id IS NULL OR r.workflow_id = w.id)
         WHERE r.is_enabled AND r.event = 'missed'
        ON CONFLICT ON CONSTRAINT notifications_once DO NOTHING;
    END IF;
    INSERT INTO notifications (rule_id, team_id, workflow_id, event, subject, happened_on, scheduled_time, facts)
    SELECT r.id, w.team_id, w.id, r.event, w.id || '/' || EXTRACT(EPOCH FROM d.scheduled_time)::bigint, d.decided_on, d.scheduled_time,
           jsonb_build_object('times', r.threshold)
      FROM decided d
      JOIN workflows w ON w.id = d.workflow_id
      JOIN notification_rules r ON r.team_id = w.team_id AND (r.workflow_id IS NULL OR r.workflow_id = w.id)
     CROSS JOIN LATERAL (
           -- The last decisions, one more than the threshold: a notification is written when the number is reached, not at each further skip.
           SELECT count(*) FILTER (WHERE nth <= r.threshold AND decision = 'skipped_overlap') AS skipped,
                  COALESCE(bool_or(nth > r.threshold AND decision = 'skipped_overlap'), false) AS was_reached
             FROM (SELECT o.decision, row_number() OVER (ORDER BY o.scheduled_time DESC) AS nth
                     FROM occurrences o
                    WHERE o.workflow_id = d.workflow_id AND o.scheduled_time <= d.scheduled_time
                      AND o.scheduled_time > d.scheduled_time - INTERVAL '7 days'
                    ORDER BY o.scheduled_time DESC
                    LIMIT r.threshold + 1) AS before) AS last
     WHERE d.decision = 'skipped_overlap' AND r.is_enabled AND r.event = 'skipped_overlap'
       AND last.skipped = r.threshold AND NOT last.was_reached
    ON CONFLICT ON CONSTRAINT notifications_once DO NOTHING;
    RETURN NULL;
END
$$;

COMMENT ON FUNCTION notify_of_decisions() IS 'Writes the notifications of the times that one statement decides';

CREATE TRIGGER notify_of_decisions AFTER INSERT ON occurrences
    REFERENCING NEW TABLE AS decided FOR EACH STATEMENT EXECUTE FUNCTION notify_of_decisions();
CREATE TRIGGER notify_of_changed_decisions AFTER UPDATE ON occurrences
    REFERENCING NEW TABLE AS decided FOR EACH STATEMENT EXECUTE FUNCTION notify_of_decisions();

CREATE FUNCTION notify_of_auto_pause() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO notifications (rule_id, team_id, workflow_id, event, subject, happened_on, facts)
    SELECT r.id, NEW.team_id, NEW.id, r.event, NEW.id || '/' || NEW.revision, NEW.updated_on,
           jsonb_build_object('failures', NEW.pause_after_failures)
      FROM notification_rules r
     WHERE r.team_id = NEW.team_id AND (r.workflow_id IS NULL OR r.workflow_id = NEW.id) AND r.is_enabled AND r.event = 'auto_paused'
    ON CONFLICT ON CONSTRAINT notifications_once DO NOTHING;
    RETURN NULL;
END
$$;

COMMENT ON FUNCTION notify_of_auto_pause() IS 'Writes the notifications of a workflow that cronbox pauses';

CREATE TRIGGER notify_of_auto_pause AFTER UPDATE OF state ON workflows
    FOR EACH ROW WHEN (NEW.state = 'paused' AND OLD.state = 'active' AND NEW.paused_by = 'cronbox')
    EXECUTE FUNCTION notify_of_auto_pause();

-- The publisher writes them, which may not read the rules: so the function runs as the owner.
CREATE FUNCTION notify_of_publication() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp AS $$
BEGIN
    INSERT INTO notifications (rule_id, team_id, workflow_id, event, subject, happened_on, facts)
    SELECT r.id, w.team_id, w.id, r.event,
           w.id || '/' || CASE r.event WHEN 'sync_failed' THEN NEW.desired_revision ELSE NEW.epoch END, cronbox_now(),
           CASE r.event WHEN 'sync_failed' THEN jsonb_build_object('error', left(NEW.last_error, 500), 'revision', NEW.desired_revision)
                        ELSE jsonb_build_object('class', OLD.drift) END
      FROM workflows w
      JOIN notification_rules r ON r.team_id = w.team_id AND (r.workflow_id IS NULL OR r.workflow_id = w.id)
     WHERE w.id = NEW.workflow_id AND r.is_enabled AND r.event = TG_ARGV[0]
    ON CONFLICT ON CONSTRAINT notifications_once DO NOTHING;
    RETURN NULL;
END
$$;

COMMENT ON FUNCTION notify_of_publication() IS 'Writes the notifications of an edit that EventBridge does not get, and of a repaired schedule';

CREATE TRIGGER notify_of_failed_sync AFTER UPDATE OF error_class ON publications
    FOR EACH ROW WHEN (NEW.error_class = 'permanent' AND OLD.error_class IS DISTINCT FROM 'permanent')
    EXECUTE FUNCTION notify_of_publication('sync_failed');
CREATE TRIGGER notify_of_repaired_drift AFTER UPDATE OF drift ON publications
    FOR EACH ROW WHEN (NEW.drift IS NULL AND OLD.drift IS NOT NULL)
    EXECUTE FUNCTION notify_of_publication('drift_repaired');

CREATE TABLE daily_verifications (
    day         DATE        PRIMARY KEY,
    cursor      TEXT        NULL,
    due         BIGINT      NOT NULL DEFAULT 0,
    decided     BIGINT      NOT NULL DEFAULT 0,
    differences BIGINT      NOT NULL DEFAULT 0,
    unproven    BIGINT      NOT NULL DEFAULT 0,
    started_on  timestamptz NOT NULL,
    finished_on timestamptz NULL
);

COMMENT ON TABLE  daily_verifications             IS 'The verification of each day (UTC), which the job verify does after it';
COMMENT ON COLUMN daily_verifications.day         IS 'The day';
COMMENT ON COLUMN daily_verifications.cursor      IS 'Where it continues; NULL = at its begin, or it is finished';
COMMENT ON COLUMN daily_verifications.due         IS 'Due times compared';
COMMENT ON COLUMN daily_verifications.decided     IS 'Decisions compared';
COMMENT ON COLUMN daily_verifications.differences IS 'Times on which schedule, decision and runs disagree';
COMMENT ON COLUMN daily_verifications.unproven    IS 'Workflows that could not be verified';
COMMENT ON COLUMN daily_verifications.started_on  IS 'When it began (business time)';
COMMENT ON COLUMN daily_verifications.finished_on IS 'When it ended; NULL = it has not';

-- A decision `skipped_overlap` read the decisions before it once for each rule of its team: 128 of them in a batch, with 500 rules that wait
-- for a hundred skips, were millions of rows, and the fires of other teams in the batch waited. Now the skips in a row are counted once for
-- each decision, as far as the largest threshold of its team, and a rule is compared with that number.

-- A transaction decides the times of a workflow under its lock, so the decisions before can be read.
CREATE OR REPLACE FUNCTION notify_of_decisions() RETURNS trigger LANGUAGE plpgsql AS $$
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
    WITH skipped AS MATERIALIZED (
        SELECT d.workflow_id, d.scheduled_time, d.decided_on, w.team_id
          FROM decided d JOIN workflows w ON w.id = d.workflow_id
         WHERE d.decision = 'skipped_overlap'
    ), waiting AS MATERIALIZED (
        SELECT team_id, max(threshold) AS most
          FROM notification_rules
         WHERE is_enabled AND event = 'skipped_overlap' AND team_id IN (SELECT team_id FROM skipped)
         GROUP BY team_id
    ), counted AS MATERIALIZED (
        -- One more than the largest threshold, so that a rule is notified when its number is reached, not at each further skip.
        SELECT s.workflow_id, s.scheduled_time, s.decided_on, s.team_id, last.in_a_row
          FROM skipped s
          JOIN waiting m ON m.team_id = s.team_id
         CROSS JOIN LATERAL (
               SELECT COALESCE(min(nth) FILTER (WHERE decision <> 'skipped_overlap') - 1, count(*)) AS in_a_row
                 FROM (SELECT o.decision, row_number() OVER (ORDER BY o.scheduled_time DESC) AS nth
                         FROM occurrences o
                        WHERE o.workflow_id = s.workflow_id AND o.scheduled_time <= s.scheduled_time
                          AND o.scheduled_time > s.scheduled_time - INTERVAL '7 days'
                        ORDER BY o.scheduled_time DESC
                        LIMIT m.most + 1) AS before) AS last
    )
    INSERT INTO notifications (rule_id, team_id, workflow_id, event, subject, happened_on, scheduled_time, facts)
    SELECT r.id, c.team_id, c.workflow_id, r.event, c.workflow_id || '/' || EXTRACT(EPOCH FROM c.scheduled_time)::bigint,
           c.decided_on, c.scheduled_time, jsonb_build_object('times', r.threshold)
      FROM counted c
      JOIN notification_rules r ON r.team_id = c.team_id AND (r.workflow_id IS NULL OR r.workflow_id = c.workflow_id)
     WHERE r.is_enabled AND r.event = 'skipped_overlap' AND r.threshold = c.in_a_row
    ON CONFLICT ON CONSTRAINT notifications_once DO NOTHING;
    RETURN NULL;
END
$$;

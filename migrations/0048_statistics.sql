-- no-transaction
-- Statistics are counted when a decision or the end of a run is written, in the same transaction. Before, each read counted the rows of its
-- span: 3 s for an hour of a million runs.
--
-- Triggers count, so that each statement that decides a time or ends a run is counted, also those of the previous version of the app.
-- Each server process has rows of its own, so that no transaction waits for another one; the job `statistics` adds them up.
--
-- One statement, because only then Postgres permits COMMIT in it; it can be repeated. It locks `occurrences`, then `runs`, only to create
-- the triggers. Then it counts the last week, hour by hour.
DO $$
DECLARE
    decisions_since timestamptz;
    ends_since      timestamptz;
    hour            timestamptz;
BEGIN
    IF to_regclass('statistics_start') IS NULL THEN
CREATE TABLE decision_minutes (
    team_id    BIGINT      NOT NULL,
    minute     timestamptz NOT NULL,
    decision   TEXT        NOT NULL,
    late_s     BIGINT      NOT NULL,
    backend    INTEGER     NOT NULL,
    times      BIGINT      NOT NULL,
    late_max_s BIGINT      NOT NULL,
    PRIMARY KEY (team_id, minute, decision, late_s, backend)
) WITH (fillfactor = 60);

        COMMENT ON TABLE  decision_minutes            IS 'Decisions of the last minutes by team, counted in the transaction of each; the job statistics moves them to decision_sums';
        COMMENT ON COLUMN decision_minutes.team_id    IS 'The team of the workflows';
        COMMENT ON COLUMN decision_minutes.minute     IS 'The minute in which the times were decided (occurrences.decided_on)';
        COMMENT ON COLUMN decision_minutes.decision   IS 'As in occurrences.decision';
        COMMENT ON COLUMN decision_minutes.late_s     IS 'Seconds from the nominal time to the decision, rounded down (rounded_lateness); 0 for all decisions but fired';
        COMMENT ON COLUMN decision_minutes.backend    IS 'The server process that counted; no two sessions write the same row';
        COMMENT ON COLUMN decision_minutes.times      IS 'How many times; negative if another row counted a decision that was changed here';
        COMMENT ON COLUMN decision_minutes.late_max_s IS 'The largest number of seconds, not rounded; 0 for all decisions but fired';

CREATE TABLE decision_sums (
    team_id    BIGINT      NOT NULL,
    minute     timestamptz NOT NULL,
    decision   TEXT        NOT NULL,
    late_s     BIGINT      NOT NULL,
    times      BIGINT      NOT NULL,
    late_max_s BIGINT      NOT NULL,
    PRIMARY KEY (team_id, minute, decision, late_s)
);

        CREATE INDEX idx_decision_sums_minute ON decision_sums (minute);

        COMMENT ON INDEX  idx_decision_sums_minute IS 'The job statistics removes the oldest minutes';
        COMMENT ON TABLE  decision_sums            IS 'Decisions by minute and team, of the last eight days; the statistics read them';
        COMMENT ON COLUMN decision_sums.team_id    IS 'The team of the workflows; 0 = all teams together';
        COMMENT ON COLUMN decision_sums.minute     IS 'The minute in which the times were decided';
        COMMENT ON COLUMN decision_sums.decision   IS 'As in occurrences.decision';
        COMMENT ON COLUMN decision_sums.late_s     IS 'As in decision_minutes';
        COMMENT ON COLUMN decision_sums.times      IS 'How many times';
        COMMENT ON COLUMN decision_sums.late_max_s IS 'As in decision_minutes';

CREATE TABLE run_end_minutes (
    team_id     BIGINT      NOT NULL,
    minute      timestamptz NOT NULL,
    state       TEXT        NOT NULL,
    backend     INTEGER     NOT NULL,
    runs        BIGINT      NOT NULL,
    cut_off     BIGINT      NOT NULL,
    handed_over BIGINT      NOT NULL,
    recoveries  BIGINT      NOT NULL,
    recovered   BIGINT      NOT NULL,
    PRIMARY KEY (team_id, minute, state, backend)
) WITH (fillfactor = 60);

        COMMENT ON TABLE  run_end_minutes             IS 'Runs that ended in the last minutes by team, counted in the transaction of each end; the job statistics moves them to run_end_sums';
        COMMENT ON COLUMN run_end_minutes.team_id     IS 'The team of the workflows';
        COMMENT ON COLUMN run_end_minutes.minute      IS 'The minute in which the runs ended (runs.finished_on)';
        COMMENT ON COLUMN run_end_minutes.state       IS 'As in runs.state, a terminal one';
        COMMENT ON COLUMN run_end_minutes.backend     IS 'The server process that counted; no two sessions write the same row';
        COMMENT ON COLUMN run_end_minutes.runs        IS 'How many runs';
        COMMENT ON COLUMN run_end_minutes.cut_off     IS 'Of these, those with the error cut_off_by_shutdown';
        COMMENT ON COLUMN run_end_minutes.handed_over IS 'Handovers of these runs at a shutdown';
        COMMENT ON COLUMN run_end_minutes.recoveries  IS 'Recoveries of these runs after a crash';
        COMMENT ON COLUMN run_end_minutes.recovered   IS 'Of these, those with a recovery at least';

CREATE TABLE run_end_sums (
    team_id     BIGINT      NOT NULL,
    minute      timestamptz NOT NULL,
    state       TEXT        NOT NULL,
    runs        BIGINT      NOT NULL,
    cut_off     BIGINT      NOT NULL,
    handed_over BIGINT      NOT NULL,
    recoveries  BIGINT      NOT NULL,
    recovered   BIGINT      NOT NULL,
    PRIMARY KEY (team_id, minute, state)
);

        CREATE INDEX idx_run_end_sums_minute ON run_end_sums (minute);

        COMMENT ON INDEX  idx_run_end_sums_minute  IS 'The job statistics removes the oldest minutes';
        COMMENT ON TABLE  run_end_sums             IS 'Runs that ended, by minute and team, of the last eight days; the statistics read them';
        COMMENT ON COLUMN run_end_sums.team_id     IS 'The team of the workflows; 0 = all teams together';
        COMMENT ON COLUMN run_end_sums.minute      IS 'The minute in which the runs ended';
        COMMENT ON COLUMN run_end_sums.state       IS 'As in runs.state, a terminal one';
        COMMENT ON COLUMN run_end_sums.runs        IS 'How many runs';
        COMMENT ON COLUMN run_end_sums.cut_off     IS 'As in run_end_minutes';
        COMMENT ON COLUMN run_end_sums.handed_over IS 'As in run_end_minutes';
        COMMENT ON COLUMN run_end_sums.recoveries  IS 'As in run_end_minutes';
        COMMENT ON COLUMN run_end_sums.recovered   IS 'As in run_end_minutes';

CREATE TABLE statistics_start (
    subject       TEXT        PRIMARY KEY CONSTRAINT statistics_start_subject CHECK (subject IN ('decisions', 'run_ends')),
    counted_since timestamptz NOT NULL
);

        COMMENT ON TABLE  statistics_start               IS 'The begin of the statistics';
        COMMENT ON COLUMN statistics_start.subject       IS 'decisions or run_ends';
        COMMENT ON COLUMN statistics_start.counted_since IS 'Since then triggers count; migration 48 counted the week before (cronbox_now)';

        CREATE OR REPLACE FUNCTION rounded_lateness(lateness_s bigint) RETURNS bigint LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $round$
            SELECT CASE WHEN lateness_s < 8 THEN GREATEST(lateness_s, 0)
                        ELSE lateness_s - lateness_s % (1::bigint << (length(ltrim(lateness_s::bit(64)::text, '0')) - 3)) END
        $round$;

        COMMENT ON FUNCTION rounded_lateness(bigint) IS 'Seconds rounded down to three binary digits: exact below 8, then by a quarter at most. So a percentile needs few rows';

        CREATE OR REPLACE FUNCTION count_decisions() RETURNS trigger LANGUAGE plpgsql AS $count$
        BEGIN
            INSERT INTO decision_minutes AS d (team_id, minute, decision, late_s, backend, times, late_max_s)
            SELECT w.team_id, date_trunc('minute', o.decided_on, 'UTC'), o.decision,
                   CASE o.decision WHEN 'fired' THEN rounded_lateness(o.lateness_s) ELSE 0 END, pg_backend_pid(), count(*),
                   COALESCE(max(GREATEST(o.lateness_s, 0)) FILTER (WHERE o.decision = 'fired'), 0)
              FROM decided o JOIN workflows w ON w.id = o.workflow_id
             GROUP BY 1, 2, 3, 4
            ON CONFLICT (team_id, minute, decision, late_s, backend) DO UPDATE
               SET times = d.times + excluded.times, late_max_s = GREATEST(d.late_max_s, excluded.late_max_s);
            RETURN NULL;
        END
        $count$;

        COMMENT ON FUNCTION count_decisions() IS 'Counts the times that one statement decided, in decision_minutes';

        CREATE OR REPLACE FUNCTION count_changed_decision() RETURNS trigger LANGUAGE plpgsql AS $count$
        BEGIN
            INSERT INTO decision_minutes AS d (team_id, minute, decision, late_s, backend, times, late_max_s)
            SELECT w.team_id, date_trunc('minute', o.decided_on, 'UTC'), o.decision,
                   CASE o.decision WHEN 'fired' THEN rounded_lateness(o.lateness_s) ELSE 0 END, pg_backend_pid(), sum(o.times),
                   COALESCE(max(GREATEST(o.lateness_s, 0)) FILTER (WHERE o.decision = 'fired' AND o.times > 0), 0)
              FROM (VALUES (OLD.decided_on, OLD.decision, OLD.lateness_s, -1), (NEW.decided_on, NEW.decision, NEW.lateness_s, 1))
                       AS o (decided_on, decision, lateness_s, times)
              JOIN workflows w ON w.id = NEW.workflow_id
             GROUP BY 1, 2, 3, 4
            ON CONFLICT (team_id, minute, decision, late_s, backend) DO UPDATE
               SET times = d.times + excluded.times, late_max_s = GREATEST(d.late_max_s, excluded.late_max_s);
            RETURN NULL;
        END
        $count$;

        COMMENT ON FUNCTION count_changed_decision() IS 'Moves the count of a time from its decision before to its new one, in decision_minutes';

        CREATE OR REPLACE FUNCTION count_run_end() RETURNS trigger LANGUAGE plpgsql AS $count$
        BEGIN
            INSERT INTO run_end_minutes AS e (team_id, minute, state, backend, runs, cut_off, handed_over, recoveries, recovered)
            SELECT COALESCE(NEW.team_id, (SELECT w.team_id FROM workflows w WHERE w.id = NEW.workflow_id)),
                   date_trunc('minute', r.finished_on, 'UTC'), r.state, pg_backend_pid(), sum(r.runs),
                   COALESCE(sum(r.runs) FILTER (WHERE r.error = 'cut_off_by_shutdown'), 0), sum(r.runs * r.handed_over),
                   sum(r.runs * r.recoveries), COALESCE(sum(r.runs) FILTER (WHERE r.recoveries > 0), 0)
              FROM (VALUES (OLD.finished_on, OLD.state, OLD.error, OLD.handed_over, OLD.recoveries, -1),
                           (NEW.finished_on, NEW.state, NEW.error, NEW.handed_over, NEW.recoveries, 1))
                       AS r (finished_on, state, error, handed_over, recoveries, runs)
             WHERE r.finished_on IS NOT NULL
             GROUP BY 2, 3
            ON CONFLICT (team_id, minute, state, backend) DO UPDATE
               SET runs = e.runs + excluded.runs, cut_off = e.cut_off + excluded.cut_off,
                   handed_over = e.handed_over + excluded.handed_over, recoveries = e.recoveries + excluded.recoveries,
                   recovered = e.recovered + excluded.recovered;
            RETURN NULL;
        END
        $count$;

        COMMENT ON FUNCTION count_run_end() IS 'Counts a run that ends, in run_end_minutes';

        CREATE OR REPLACE FUNCTION count_ended_runs() RETURNS trigger LANGUAGE plpgsql AS $count$
        BEGIN
            INSERT INTO run_end_minutes AS e (team_id, minute, state, backend, runs, cut_off, handed_over, recoveries, recovered)
            SELECT r.team_id, date_trunc('minute', r.finished_on, 'UTC'), r.state, pg_backend_pid(), count(*),
                   count(*) FILTER (WHERE r.error = 'cut_off_by_shutdown'), sum(r.handed_over), sum(r.recoveries),
                   count(*) FILTER (WHERE r.recoveries > 0)
              FROM inserted r
             WHERE r.finished_on IS NOT NULL
             GROUP BY 1, 2, 3
            ON CONFLICT (team_id, minute, state, backend) DO UPDATE
               SET runs = e.runs + excluded.runs, cut_off = e.cut_off + excluded.cut_off,
                   handed_over = e.handed_over + excluded.handed_over, recoveries = e.recoveries + excluded.recoveries,
                   recovered = e.recovered + excluded.recovered;
            RETURN NULL;
        END
        $count$;

        COMMENT ON FUNCTION count_ended_runs() IS 'Counts the runs that one statement inserts although they have ended, in run_end_minutes';

        CREATE OR REPLACE FUNCTION listed_action(action jsonb) RETURNS jsonb LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $listed$
            SELECT action
                || CASE WHEN jsonb_typeof(action -> 'headers') = 'object' THEN
                        jsonb_build_object('headers', (SELECT COALESCE(jsonb_object_agg(name, NULL), '{}')
                                                         FROM jsonb_object_keys(action -> 'headers') AS name))
                   ELSE '{}' END
                || CASE WHEN octet_length((action -> 'body')::text) > 1024 THEN '{"body": null}'::jsonb ELSE '{}' END
                || CASE WHEN length(action ->> 'message') > 1024 THEN
                        jsonb_build_object('message', left(action ->> 'message', 1024))
                   ELSE '{}' END
        $listed$;

        COMMENT ON FUNCTION listed_action(jsonb) IS 'An action as lists show it: without the values of headers, with at most 1 KiB of body and message';

        CREATE OR REPLACE FUNCTION is_action_cut(action jsonb) RETURNS boolean LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $cut$
            SELECT COALESCE(octet_length((action -> 'body')::text) > 1024, false) OR COALESCE(length(action ->> 'message') > 1024, false)
        $cut$;

        COMMENT ON FUNCTION is_action_cut(jsonb) IS 'Whether listed_action leaves out a part that people look for: body or message';

        CREATE OR REPLACE FUNCTION listed_json(document jsonb) RETURNS text LANGUAGE sql STABLE PARALLEL SAFE AS $short$
            -- Two conditions in this order: a value whose stored size is larger is never decompressed.
            SELECT CASE WHEN pg_column_size(document) <= 1024 THEN
                        CASE WHEN octet_length(document::text) <= 1024 THEN document::text END
                   END
        $short$;

        COMMENT ON FUNCTION listed_json(jsonb) IS 'A document as lists show it: its text, NULL if it is larger than 1 KiB';
    END IF;
    COMMIT;

    -- A trigger waits until no writer is in progress, so each later one is counted. One table after the other, because writers lock
    -- both in different orders.
    IF NOT EXISTS (SELECT FROM statistics_start WHERE subject = 'decisions') THEN
        CREATE TRIGGER occurrences_count_decisions
            AFTER INSERT ON occurrences REFERENCING NEW TABLE AS decided
            FOR EACH STATEMENT EXECUTE FUNCTION count_decisions();
        CREATE TRIGGER occurrences_count_changes
            AFTER UPDATE ON occurrences
            FOR EACH ROW WHEN ((OLD.decision, OLD.decided_on, OLD.lateness_s) IS DISTINCT FROM (NEW.decision, NEW.decided_on, NEW.lateness_s))
            EXECUTE FUNCTION count_changed_decision();
        INSERT INTO statistics_start (subject, counted_since) VALUES ('decisions', cronbox_now());
    END IF;
    COMMIT;
    IF NOT EXISTS (SELECT FROM statistics_start WHERE subject = 'run_ends') THEN
        CREATE TRIGGER runs_count_end
            AFTER UPDATE ON runs
            FOR EACH ROW WHEN (OLD.finished_on IS DISTINCT FROM NEW.finished_on
                               OR OLD.finished_on IS NOT NULL AND (OLD.handed_over, OLD.recoveries) IS DISTINCT FROM (NEW.handed_over, NEW.recoveries))
            EXECUTE FUNCTION count_run_end();
        CREATE TRIGGER runs_count_ended
            AFTER INSERT ON runs REFERENCING NEW TABLE AS inserted
            FOR EACH STATEMENT EXECUTE FUNCTION count_ended_runs();
        INSERT INTO statistics_start (subject, counted_since) VALUES ('run_ends', cronbox_now());
    END IF;
    COMMIT;

    SELECT counted_since INTO decisions_since FROM statistics_start WHERE subject = 'decisions';
    SELECT counted_since INTO ends_since FROM statistics_start WHERE subject = 'run_ends';
    FOR nth IN 0..168 LOOP
        hour := date_trunc('hour', ends_since, 'UTC') - make_interval(hours => nth);
        -- Of a try that was interrupted; the job statistics starts with the new version of the app, after all migrations.
        DELETE FROM decision_sums WHERE minute >= hour AND minute < hour + INTERVAL '1 hour';
        INSERT INTO decision_sums (team_id, minute, decision, late_s, times, late_max_s)
        SELECT COALESCE(o.team_id, 0), o.minute, o.decision, o.late_s, count(*), max(o.max_s)
          FROM (SELECT w.team_id, date_trunc('minute', o.decided_on, 'UTC') AS minute, o.decision,
                       CASE o.decision WHEN 'fired' THEN rounded_lateness(o.lateness_s) ELSE 0 END AS late_s,
                       CASE o.decision WHEN 'fired' THEN GREATEST(o.lateness_s, 0) ELSE 0 END AS max_s
                  FROM occurrences o JOIN workflows w ON w.id = o.workflow_id
                 WHERE o.decided_on >= hour AND o.decided_on < LEAST(hour + INTERVAL '1 hour', decisions_since)) AS o
         GROUP BY GROUPING SETS ((o.team_id, o.minute, o.decision, o.late_s), (o.minute, o.decision, o.late_s));
        DELETE FROM run_end_sums WHERE minute >= hour AND minute < hour + INTERVAL '1 hour';
        INSERT INTO run_end_sums (team_id, minute, state, runs, cut_off, handed_over, recoveries, recovered)
        SELECT COALESCE(r.team_id, 0), r.minute, r.state, count(*), count(*) FILTER (WHERE r.error = 'cut_off_by_shutdown'),
               sum(r.handed_over), sum(r.recoveries), count(*) FILTER (WHERE r.recoveries > 0)
          FROM (SELECT w.team_id, date_trunc('minute', r.finished_on, 'UTC') AS minute, r.state, r.error, r.handed_over, r.recoveries
                  FROM runs r JOIN workflows w ON w.id = r.workflow_id
                 WHERE r.finished_on >= hour AND r.finished_on < LEAST(hour + INTERVAL '1 hour', ends_since)) AS r
         GROUP BY GROUPING SETS ((r.team_id, r.minute, r.state), (r.minute, r.state));
        COMMIT;
    END LOOP;
END
$$

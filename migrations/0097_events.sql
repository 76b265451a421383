-- What changes, as a stream that clients can follow: edits, syncs with EventBridge, decisions and ends of runs. An event is written by the
-- transaction that makes the change, and only while a client follows, so that a fire costs nothing more if none does.
CREATE TABLE event_listeners (
    only_row      boolean     PRIMARY KEY DEFAULT TRUE CONSTRAINT event_listeners_only_row CHECK (only_row),
    live_until    timestamptz NOT NULL DEFAULT '-infinity',
    complete_from bigint
);

INSERT INTO event_listeners DEFAULT VALUES;

CREATE TABLE events (
    transaction    bigint      NOT NULL DEFAULT pg_current_xact_id()::text::bigint,
    nth            bigint      GENERATED ALWAYS AS IDENTITY,
    created_on     timestamptz NOT NULL DEFAULT clock_timestamp(),
    kind           text        NOT NULL CONSTRAINT events_kind CHECK (kind IN ('edit', 'sync', 'decision', 'run_end')),
    what           text        NOT NULL,
    team_id        bigint,
    workflow_id    bigint,
    run_id         uuid,
    scheduled_time timestamptz,
    revision       bigint,
    subject        text,
    actor          text,
    CONSTRAINT events_pkey PRIMARY KEY (transaction, nth)
);

-- The condition is written in each function: a function of its own would be planned at each call.
CREATE FUNCTION announce_decisions() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF EXISTS (SELECT FROM event_listeners WHERE live_until > clock_timestamp()) THEN
        INSERT INTO events (kind, what, team_id, workflow_id, run_id, scheduled_time, revision)
        SELECT 'decision', n.decision, w.team_id, n.workflow_id, n.run_id, n.scheduled_time, n.revision
          FROM decided n LEFT JOIN workflows w ON w.id = n.workflow_id;
    END IF;
    RETURN NULL;
END
$$;

-- A decision that changes, for example from missed to backfilled; another change of the row is no event.
CREATE FUNCTION announce_changed_decisions() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF EXISTS (SELECT FROM event_listeners WHERE live_until > clock_timestamp()) THEN
        INSERT INTO events (kind, what, team_id, workflow_id, run_id, scheduled_time, revision)
        SELECT 'decision', n.decision, w.team_id, n.workflow_id, n.run_id, n.scheduled_time, n.revision
          FROM decided n
          JOIN before b ON b.id = n.id AND b.scheduled_time = n.scheduled_time AND b.decision <> n.decision
          LEFT JOIN workflows w ON w.id = n.workflow_id;
    END IF;
    RETURN NULL;
END
$$;

CREATE FUNCTION announce_ends() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF EXISTS (SELECT FROM event_listeners WHERE live_until > clock_timestamp()) THEN
        INSERT INTO events (kind, what, team_id, workflow_id, run_id, scheduled_time)
        SELECT 'run_end', n.state, n.team_id, n.workflow_id, n.id, n.scheduled_time FROM ended n;
    END IF;
    RETURN NULL;
END
$$;

CREATE TRIGGER announce_decisions AFTER INSERT ON occurrences
    REFERENCING NEW TABLE AS decided FOR EACH STATEMENT EXECUTE FUNCTION announce_decisions();
CREATE TRIGGER announce_changed_decisions AFTER UPDATE ON occurrences
    REFERENCING OLD TABLE AS before NEW TABLE AS decided FOR EACH STATEMENT EXECUTE FUNCTION announce_changed_decisions();
CREATE TRIGGER announce_ends AFTER INSERT ON runs_ended
    REFERENCING NEW TABLE AS ended FOR EACH STATEMENT EXECUTE FUNCTION announce_ends();

COMMENT ON TABLE  event_listeners               IS 'Whether clients follow the events; one row';
COMMENT ON COLUMN event_listeners.only_row      IS 'There is no other row';
COMMENT ON COLUMN event_listeners.live_until    IS 'Until when changes write events: an hour after the last request for them';
COMMENT ON COLUMN event_listeners.complete_from IS 'Of this transaction and every later one all events are stored; NULL: it is not known yet';
COMMENT ON TABLE  events                        IS 'What has changed in the last hour, while clients follow';
COMMENT ON COLUMN events.transaction            IS 'The number of its transaction: readers read those below the oldest open one';
COMMENT ON COLUMN events.nth                    IS 'Its place among the events of its transaction';
COMMENT ON COLUMN events.created_on             IS 'When it was written, by the clock of the database';
COMMENT ON COLUMN events.kind                   IS 'edit, sync, decision or run_end';
COMMENT ON COLUMN events.what                   IS 'The verb of the edit, synced or failed, the decision, or the final state of the run';
COMMENT ON COLUMN events.team_id                IS 'The team; NULL: an object of the operators';
COMMENT ON COLUMN events.workflow_id            IS 'The workflow';
COMMENT ON COLUMN events.run_id                 IS 'The run';
COMMENT ON COLUMN events.scheduled_time         IS 'The due time';
COMMENT ON COLUMN events.revision               IS 'The revision that EventBridge has, or that made the time due';
COMMENT ON COLUMN events.subject                IS 'The object of an edit, as in the audit log';
COMMENT ON COLUMN events.actor                  IS 'Who made the edit, as in the audit log';

-- What a function costs each statement that calls it. Postgres (before version 18) parses and plans a function in SQL anew for each such
-- statement, if it cannot put the text of the function into the statement: because the text is more volatile than the function says, or
-- because it reads a table. A function in PL/pgSQL is planned once for each session: cronbox_now() takes 8 us instead of 25, cronbox_hold() 20
-- instead of 110.

-- STABLE as before, so that `due_at <= cronbox_now()` can use an index.
CREATE OR REPLACE FUNCTION cronbox_now() RETURNS timestamptz LANGUAGE plpgsql STABLE PARALLEL SAFE AS $$
BEGIN
    RETURN clock_timestamp();
END
$$;

CREATE OR REPLACE FUNCTION hours_before(at timestamptz, hours integer) RETURNS timestamptz LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE AS $$
BEGIN
    RETURN at - make_interval(hours => hours);
END
$$;

CREATE OR REPLACE FUNCTION uuid_v7_floor(at timestamptz) RETURNS uuid LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE AS $$
BEGIN
    RETURN (lpad(to_hex((EXTRACT(EPOCH FROM at) * 1000)::bigint), 12, '0') || repeat('0', 20))::uuid;
END
$$;

CREATE OR REPLACE FUNCTION partition_end(unit text, beginning timestamptz) RETURNS timestamptz LANGUAGE plpgsql STABLE AS $$
BEGIN
    RETURN date_trunc(unit, date_trunc(unit, beginning, 'UTC') + CASE unit WHEN 'day' THEN INTERVAL '24 hours' ELSE INTERVAL '768 hours' END, 'UTC');
END
$$;

-- The server and the database of a session never change, so both functions are constants of its plans: IMMUTABLE. Otherwise the file of the
-- server's identifier is read for each batch of fires and each claim.
CREATE OR REPLACE FUNCTION cronbox_system_identifier() RETURNS text LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
    RETURN (SELECT system_identifier::text FROM pg_control_system());
EXCEPTION WHEN insufficient_privilege OR undefined_function THEN
    -- A managed server may keep it to itself; then the uuid, the database and the environment must do.
    RETURN NULL;
END
$$;

CREATE OR REPLACE FUNCTION cronbox_database_oid() RETURNS bigint LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
    RETURN (SELECT oid::bigint FROM pg_database WHERE datname = current_database());
END
$$;

CREATE OR REPLACE FUNCTION cronbox_hold() RETURNS text LANGUAGE plpgsql STABLE AS $$
BEGIN
    RETURN (SELECT CASE
                       WHEN held_on IS NOT NULL THEN held_reason
                       WHEN system_identifier <> cronbox_system_identifier() THEN 'restored'
                       WHEN database_oid <> cronbox_database_oid() THEN 'restored'
                   END
              FROM database_identity);
END
$$;

CREATE OR REPLACE FUNCTION add_team_usage(team BIGINT, added_workflows BIGINT, added_fires BIGINT, added_bytes BIGINT)
    RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO team_usage AS u (team_id, workflows, fires_per_hour, input_bytes)
    VALUES (team, added_workflows, added_fires, added_bytes)
    ON CONFLICT (team_id) DO UPDATE
       SET workflows = u.workflows + excluded.workflows, fires_per_hour = u.fires_per_hour + excluded.fires_per_hour,
           input_bytes = u.input_bytes + excluded.input_bytes;
END
$$;

CREATE OR REPLACE FUNCTION listed_action(action jsonb) RETURNS jsonb LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE AS $$
BEGIN
    RETURN action
        || CASE WHEN jsonb_typeof(action -> 'headers') = 'object' THEN
                jsonb_build_object('headers', (SELECT COALESCE(jsonb_object_agg(name, NULL), '{}')
                                                 FROM jsonb_object_keys(action -> 'headers') AS name))
           ELSE '{}' END
        || CASE WHEN octet_length((action -> 'body')::text) > 1024 THEN '{"body": null}'::jsonb ELSE '{}' END
        || CASE WHEN length(action ->> 'message') > 1024 THEN
                jsonb_build_object('message', left(action ->> 'message', 1024))
           ELSE '{}' END;
END
$$;

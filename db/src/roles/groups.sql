-- The groups, as the login that migrates: it makes what is missing, and so needs CREATEROLE only the first time.
--
--   cronbox_owner      owns the schema; migrations run as it, and nothing else does
--   cronbox_app        what `cronbox-app serve` may do
--   cronbox_publisher  what `cronbox-publisher` may do
--   cronbox_notifier   what `cronbox-notifier` may do
DO $groups$
DECLARE
    name text;
    -- From 16 on, a role that CREATEROLE has made may be granted, but not yet be set.
    may_become CONSTANT text := CASE WHEN current_setting('server_version_num')::integer >= 160000 THEN 'SET' ELSE 'MEMBER' END;
BEGIN
    FOREACH name IN ARRAY ARRAY['cronbox_owner', 'cronbox_app', 'cronbox_publisher', 'cronbox_notifier'] LOOP
        IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = name) THEN
            EXECUTE format('CREATE ROLE %I NOLOGIN', name);
        END IF;
    END LOOP;
    IF NOT pg_has_role(current_user, 'cronbox_owner', may_become) THEN
        GRANT cronbox_owner TO CURRENT_USER;
    END IF;

    IF NOT has_schema_privilege('cronbox_owner', current_schema(), 'CREATE') THEN
        EXECUTE format('GRANT USAGE, CREATE ON SCHEMA %I TO cronbox_owner', current_schema());
    END IF;
    FOREACH name IN ARRAY ARRAY['cronbox_app', 'cronbox_publisher', 'cronbox_notifier'] LOOP
        IF NOT has_schema_privilege(name, current_schema(), 'USAGE') THEN
            EXECUTE format('GRANT USAGE ON SCHEMA %I TO %I', current_schema(), name);
        END IF;
    END LOOP;
    -- The age of the oldest snapshot is read as the owner. Without this right the figure is NULL, and nothing else.
    IF NOT pg_has_role('cronbox_owner', 'pg_read_all_stats', 'MEMBER') THEN
        BEGIN
            GRANT pg_read_all_stats TO cronbox_owner;
        EXCEPTION
            WHEN insufficient_privilege THEN
                RAISE NOTICE 'the metric XminAge needs: GRANT pg_read_all_stats TO cronbox_owner, by a role that may';
        END;
    END IF;
    -- Databases that were made before Postgres 15 let every role create functions that ours would call.
    IF has_schema_privilege('public', current_schema(), 'CREATE') THEN
        EXECUTE format('REVOKE CREATE ON SCHEMA %I FROM PUBLIC', current_schema());
    END IF;
END
$groups$;

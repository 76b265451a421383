-- What the groups may do, as cronbox_owner. It states everything, so it takes back what an earlier version granted.

-- The app writes the rows of each table but those named below. A table, sequence or function of a later migration is
-- the app's by these defaults, until the next `migrate` states it here. Of publisher and notifier nothing is by default.
-- The schema may also have tables of other programs, and extensions of the database's provider: they stay as they are.
DO $all$
DECLARE
    here CONSTANT text := quote_ident(current_schema());
    tables CONSTANT text := (
        SELECT string_agg(oid::regclass::text, ', ') FROM pg_class
         WHERE relnamespace = current_schema()::regnamespace AND relowner = 'cronbox_owner'::regrole AND relkind IN ('r', 'p', 'v', 'm'));
    sequences CONSTANT text := (
        SELECT string_agg(oid::regclass::text, ', ') FROM pg_class
         WHERE relnamespace = current_schema()::regnamespace AND relowner = 'cronbox_owner'::regrole AND relkind = 'S');
    routines CONSTANT text := (
        SELECT string_agg(oid::regprocedure::text, ', ') FROM pg_proc
         WHERE pronamespace = current_schema()::regnamespace AND proowner = 'cronbox_owner'::regrole);
BEGIN
    EXECUTE format('REVOKE ALL ON TABLE %s FROM cronbox_app, cronbox_publisher', tables);
    EXECUTE format('GRANT SELECT, INSERT, UPDATE, DELETE ON TABLE %s TO cronbox_app', tables);
    EXECUTE format('GRANT USAGE ON SEQUENCE %s TO cronbox_app', sequences);
    EXECUTE format('GRANT EXECUTE ON ROUTINE %s TO cronbox_app', routines);
    EXECUTE format('ALTER DEFAULT PRIVILEGES IN SCHEMA %s GRANT SELECT, INSERT, UPDATE, DELETE ON TABLES TO cronbox_app', here);
    EXECUTE format('ALTER DEFAULT PRIVILEGES IN SCHEMA %s GRANT USAGE ON SEQUENCES TO cronbox_app', here);
    EXECUTE format('ALTER DEFAULT PRIVILEGES IN SCHEMA %s GRANT EXECUTE ON ROUTINES TO cronbox_app', here);
END
$all$;

-- The schema's history is the owner's.
REVOKE INSERT, UPDATE, DELETE ON _sqlx_migrations FROM cronbox_app;
-- The audit log is evidence. The app reads which workflows were deleted.
REVOKE UPDATE, DELETE ON audit_log FROM cronbox_app;
SELECT close_table(inhrelid::regclass) FROM pg_inherits WHERE inhparent = 'audit_log'::regclass;
-- So is its hash chain, which the app extends. A function of the owner removes what is no anchor any more.
REVOKE UPDATE, DELETE ON audit_chain FROM cronbox_app;
REVOKE INSERT, UPDATE, DELETE ON audit_chain_start FROM cronbox_app;
-- Keys are revoked, never removed, except with their team by a function of the owner. Without its data key, the secrets of a team are lost.
REVOKE DELETE ON teams, api_keys, team_data_keys FROM cronbox_app;
-- The app shortens the leases of publishers when the database's clock goes back, and reads what a sweep has seen.
REVOKE INSERT ON publishers FROM cronbox_app;
REVOKE INSERT, UPDATE, DELETE ON orphans, sightings, sweep_sightings, sweep_changes, rollout_queue, config_generation FROM cronbox_app;
-- Zone data come with a migration or by `cronbox-app zones update`, which the owner runs. The app prunes them.
REVOKE INSERT, UPDATE ON zone_data, zone_changes FROM cronbox_app;
-- A team keeps its limits, and what it uses. What its workflows add up to is counted by their trigger, which runs as the app.
REVOKE DELETE ON team_limits, team_usage, team_requested_fires FROM cronbox_app;
-- The shares of the watchdog stay, and their number. Partitions are made and dropped by functions of the owner.
REVOKE INSERT, DELETE ON watchdog_shards FROM cronbox_app;
REVOKE INSERT, UPDATE, DELETE ON partition_bounds FROM cronbox_app;
-- There is one row that says whether clients follow the events.
REVOKE INSERT, DELETE ON event_listeners FROM cronbox_app;
-- Since when the statistics count is what their migration has found.
REVOKE INSERT, UPDATE, DELETE ON statistics_start FROM cronbox_app;
-- The publisher mirrors the dead letters; the app requests what is to be done with one.
REVOKE INSERT, DELETE ON dead_letters FROM cronbox_app;
-- Which database this is, and how far it was pruned, is never forgotten.
REVOKE DELETE ON database_identity, prune_marks FROM cronbox_app;

-- The publisher reads no action, no inputs, no keys and no secrets.
GRANT SELECT (version, success) ON _sqlx_migrations TO cronbox_publisher;
GRANT SELECT (id, team_id, name, cron_schedule, timezone, state, starts_at, ends_at, pause_until, paused_by, revision, watch_at)
    ON workflows TO cronbox_publisher;
-- It claims a backlog of edits team by team.
GRANT SELECT (id) ON teams TO cronbox_publisher;
GRANT SELECT, INSERT, UPDATE ON outbox_events TO cronbox_publisher;
-- The newest row's number, for the age of the oldest open row.
GRANT SELECT ON SEQUENCE outbox_events_id_seq TO cronbox_publisher;
-- The highest id of a workflow: a schedule of this database with a higher one shows that the database was restored.
GRANT SELECT (workflow_id) ON deleted_workflows TO cronbox_publisher;
-- A publication of a deleted workflow goes with its tombstone.
GRANT SELECT, INSERT, UPDATE, DELETE ON publications TO cronbox_publisher;
GRANT SELECT, INSERT, UPDATE, DELETE ON publishers, sweeps, sightings, sweep_sightings, orphans, sweep_changes, rollout_queue
    TO cronbox_publisher;
GRANT SELECT, INSERT, UPDATE, DELETE ON dead_letters TO cronbox_publisher;
GRANT SELECT, INSERT, UPDATE ON config_generation, database_identity TO cronbox_publisher;
GRANT SELECT ON zone_data, zone_changes TO cronbox_publisher;
-- The event of a sync, while clients follow the events.
GRANT SELECT ON event_listeners TO cronbox_publisher;
GRANT INSERT ON events TO cronbox_publisher;
-- For the metrics.
GRANT SELECT ON ledger, watchdog_shards TO cronbox_publisher;
GRANT SELECT (workflow_id, decision, run_id, decided_on) ON occurrences TO cronbox_publisher;
GRANT SELECT (workflow_id, team_id, trigger, state, error, run_after, created_on, started_on, finished_on, lease_until, handed_over_until)
    ON runs TO cronbox_publisher;
GRANT SELECT (team_id, starts_on, ends_on) ON freezes TO cronbox_publisher;
GRANT SELECT (team_id, running_runs) ON team_limits TO cronbox_publisher;
GRANT SELECT (seen_on) ON fire_disagreements TO cronbox_publisher;
GRANT SELECT (team_id, minute, decision, times) ON decision_minutes, decision_sums TO cronbox_publisher;
GRANT SELECT (team_id, minute, state, runs) ON run_end_minutes, run_end_sums TO cronbox_publisher;
GRANT SELECT (state, failed_on) ON notification_messages TO cronbox_publisher;

-- The notifier reads what its messages say, and settles them. It reads no URL of a channel, and no other table.
DO $notifier$
BEGIN
    -- Groups that an earlier version made do not have this one before the next `migrate --roles`.
    IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = 'cronbox_notifier') THEN
        RETURN;
    END IF;
    EXECUTE (SELECT format('REVOKE ALL ON TABLE %s FROM cronbox_notifier', string_agg(oid::regclass::text, ', ')) FROM pg_class
              WHERE relnamespace = current_schema()::regnamespace AND relowner = 'cronbox_owner'::regrole AND relkind IN ('r', 'p', 'v', 'm'));
    GRANT SELECT ON notification_messages, notifications TO cronbox_notifier;
    GRANT UPDATE (state, due_at, attempt_count, lease_until, last_error, sent_on, failed_on, recipients_left, recipients_refused)
        ON notification_messages TO cronbox_notifier;
    GRANT SELECT (notification_id, message_id) ON notification_items TO cronbox_notifier;
    GRANT SELECT (id, kind, target_arn, is_enabled) ON notification_channels TO cronbox_notifier;
    GRANT SELECT (id, name) ON teams, workflows TO cronbox_notifier;
END
$notifier$;

-- What runs as the owner is for the groups that need it.
REVOKE EXECUTE ON FUNCTION delete_empty_team(bigint), make_day_partitions(text, timestamptz, integer), drop_oldest_partition(text, timestamptz, timestamptz),
    cronbox_xmin_age(), remove_audit_anchors(), notify_of_publication(), forget_sweeps() FROM PUBLIC;
GRANT EXECUTE ON FUNCTION cronbox_xmin_age() TO cronbox_publisher;

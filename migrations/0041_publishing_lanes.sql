-- A publisher of a million workflows: edits overtake repairs, a sweep continues where it was killed, and no statement
-- reads what it does not need.
ALTER TABLE publications
    ADD COLUMN is_repair  BOOLEAN NOT NULL DEFAULT FALSE,
    ADD COLUMN superseded INTEGER NOT NULL DEFAULT 0;

COMMENT ON COLUMN publications.is_repair  IS 'The lane: a sweep, a rollout, a revival or a verify pass makes it due, so it waits behind edits; FALSE = an edit, a retry or a change of its own does';
COMMENT ON COLUMN publications.superseded IS 'Failures in a row during which the workflow was edited; from the third on, an edit does not end the backoff. 0 after a success, or after a failure without an edit';

-- A publication is written three times for each edit. With room on its page, the claim is a HOT update; and the default of
-- a fifth of the table would let vacuum wait for 200,000 dead rows.
ALTER TABLE publications  SET (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_threshold = 1000);
ALTER TABLE outbox_events SET (autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_threshold = 1000);

-- By lane, so that a claim reads no repair before it has taken the edits. A version before this one sorts what is due.
DROP INDEX idx_publications_due_at;
CREATE INDEX idx_publications_due ON publications (is_repair, due_at) WHERE due_at IS NOT NULL;
COMMENT ON INDEX idx_publications_due IS 'What is due, by lane; a claim begins to read it at its low-water mark';

-- Few rows: what waits for its next attempt. Verify passes and ends in the future are not in it.
CREATE INDEX idx_publications_backed_off ON publications (due_at)
 WHERE due_at IS NOT NULL AND error_class IN ('transient', 'environment', 'unclassified');
COMMENT ON INDEX idx_publications_backed_off IS 'What waits for its next attempt: counted after each drain, and released after an outage';

ALTER TABLE sweeps
    ADD COLUMN missing_after BIGINT NOT NULL DEFAULT 0;

COMMENT ON COLUMN sweeps.missing_after IS 'Up to this workflow the sweep has searched for missing schedules; the next publisher continues there';

-- In place of `sightings`, of which each sweep deleted a row per schedule. Here a row stays, and the next sweep updates it.
CREATE TABLE sweep_sightings (
    workflow_id BIGINT PRIMARY KEY,
    sweep_id    BIGINT NOT NULL
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.05);

COMMENT ON TABLE  sweep_sightings             IS 'The last sweep that found the schedule of a workflow listed; removed when a later sweep does not list it';
COMMENT ON COLUMN sweep_sightings.workflow_id IS 'The workflow that the schedule''s name says';
COMMENT ON COLUMN sweep_sightings.sweep_id    IS 'The sweep; not indexed, so that its change is a HOT update';
COMMENT ON TABLE  sightings                   IS 'Not used any more; for publishers of the version before sweep_sightings';

-- An open sweep lists again, because what it has listed is in the old table.
UPDATE sweeps
   SET next_token = NULL, listed_on = NULL, locked_by = NULL, locked_until = NULL, report = '{}'
 WHERE finished_on IS NULL;

-- Transactions since the oldest one that a session, a replication slot or a prepared transaction still keeps visible: vacuum
-- removes no row that died since. In transactions, not in seconds, because that is the number of rows that cannot be removed.
-- The owner's, because other roles do not see the sessions of all users. Without pg_read_all_stats the owner does not see them either:
-- then it is NULL.
CREATE FUNCTION cronbox_xmin_age() RETURNS bigint
    LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
    AS $$
    SELECT CASE WHEN pg_has_role('pg_read_all_stats', 'USAGE') THEN
               (SELECT COALESCE(max(age(horizon)), 0)::bigint
                  FROM (SELECT backend_xmin AS horizon
                          FROM pg_stat_activity
                         WHERE (datname = current_database() OR backend_type = 'walsender') AND backend_type <> 'autovacuum worker'
                         UNION ALL
                        SELECT backend_xid FROM pg_stat_activity WHERE datname = current_database()
                         UNION ALL
                        SELECT xmin FROM pg_replication_slots
                         UNION ALL
                        SELECT transaction FROM pg_prepared_xacts WHERE database = current_database()) AS horizons)
           END
$$;

COMMENT ON FUNCTION cronbox_xmin_age() IS 'For how many transactions vacuum has been unable to remove dead rows; NULL if the owner may not see all sessions (pg_read_all_stats)';

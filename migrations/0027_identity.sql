-- Which database this is, which configuration may publish from it, and what a sweep may change by itself.
--
--   database_identity  one row, made at its first use. A dump carries it along, so a restored or cloned
--                      database is recognised: the server or the database differs from the one stored.
--   config_generation  the newest configuration that has published; an older one publishes nothing.
--   rollout_queue      what differs only because a generation was raised: ten canaries, then the rest.
--   sweep_changes      what the open sweep would change that nothing explains; many of them wait for force.

CREATE FUNCTION cronbox_system_identifier() RETURNS text LANGUAGE plpgsql STABLE AS $$
BEGIN
    RETURN (SELECT system_identifier::text FROM pg_control_system());
EXCEPTION WHEN insufficient_privilege OR undefined_function THEN
    -- A managed server may keep it to itself; then the uuid, the database and the environment must do.
    RETURN NULL;
END
$$;

COMMENT ON FUNCTION cronbox_system_identifier() IS 'The identifier that initdb gave this server; NULL if this role may not read it';

CREATE FUNCTION cronbox_database_oid() RETURNS bigint LANGUAGE sql STABLE AS $$
    SELECT oid::bigint FROM pg_database WHERE datname = current_database()
$$;

COMMENT ON FUNCTION cronbox_database_oid() IS 'The number of this database on its server; tells a copy beside the original';

CREATE TABLE database_identity (
    singleton         BOOLEAN     PRIMARY KEY DEFAULT TRUE CONSTRAINT database_identity_singleton CHECK (singleton),
    uuid              UUID        NOT NULL DEFAULT gen_random_uuid(),
    environment       TEXT        NOT NULL,
    system_identifier TEXT        NULL DEFAULT cronbox_system_identifier(),
    database_oid      BIGINT      NOT NULL DEFAULT cronbox_database_oid(),
    created_on        timestamptz NOT NULL DEFAULT cronbox_now(),
    accepted_on       timestamptz NOT NULL DEFAULT cronbox_now()
);

COMMENT ON TABLE  database_identity                   IS 'Which database this is: one row, made by the first process that needs it';
COMMENT ON COLUMN database_identity.singleton         IS 'Always true: there is one row';
COMMENT ON COLUMN database_identity.uuid              IS 'Every schedule carries it in its description; one of another identity is never deleted';
COMMENT ON COLUMN database_identity.environment       IS 'ENV of the process that made or accepted the row';
COMMENT ON COLUMN database_identity.system_identifier IS 'cronbox_system_identifier() when the row was made or accepted; NULL = could not be read';
COMMENT ON COLUMN database_identity.database_oid      IS 'cronbox_database_oid() when the row was made or accepted';
COMMENT ON COLUMN database_identity.created_on        IS 'When the row was made (cronbox_now)';
COMMENT ON COLUMN database_identity.accepted_on       IS 'When this server, database and environment were last accepted as this identity (cronbox_now)';

CREATE TABLE config_generation (
    singleton     BOOLEAN     PRIMARY KEY DEFAULT TRUE CONSTRAINT config_generation_singleton CHECK (singleton),
    generation    BIGINT      NOT NULL DEFAULT 0,
    template      INTEGER     NOT NULL DEFAULT 0,
    raised_on     timestamptz NOT NULL DEFAULT cronbox_now(),
    raised_by     TEXT        NULL,
    canaries      BIGINT[]    NOT NULL DEFAULT '{}',
    canaries_on   timestamptz NULL,
    rolled_out_on timestamptz NULL
);

-- Not rolled out: the first sweep after this migration finds every schedule of an older version different.
INSERT INTO config_generation DEFAULT VALUES;

COMMENT ON TABLE  config_generation               IS 'The newest configuration that has published; a publisher with an older one neither publishes nor sweeps';
COMMENT ON COLUMN config_generation.singleton     IS 'Always true: there is one row';
COMMENT ON COLUMN config_generation.generation    IS 'CONFIG_GENERATION of the newest publisher; compared first';
COMMENT ON COLUMN config_generation.template      IS 'The template number of the newest publisher; compared second';
COMMENT ON COLUMN config_generation.raised_on     IS 'When it was raised (cronbox_now)';
COMMENT ON COLUMN config_generation.raised_by     IS 'The publisher that raised it; NULL = the migration';
COMMENT ON COLUMN config_generation.canaries      IS 'The workflows that were published with it first; the others follow once each has succeeded';
COMMENT ON COLUMN config_generation.canaries_on   IS 'When the canaries were enqueued (cronbox_now); NULL = not yet';
COMMENT ON COLUMN config_generation.rolled_out_on IS 'When a sweep found no schedule of an older generation (cronbox_now); NULL = differences are expected';

CREATE TABLE rollout_queue (
    workflow_id BIGINT PRIMARY KEY,
    class       TEXT   NOT NULL
);

COMMENT ON TABLE  rollout_queue             IS 'Workflows whose schedule differs only because a generation was raised; enqueued a few at a time, behind edits';
COMMENT ON COLUMN rollout_queue.workflow_id IS 'The workflow';
COMMENT ON COLUMN rollout_queue.class       IS 'The class of drift';

CREATE TABLE sweep_changes (
    sweep_id    BIGINT NOT NULL REFERENCES sweeps ON DELETE CASCADE,
    workflow_id BIGINT NOT NULL,
    epoch       BIGINT NULL,
    revision    BIGINT NOT NULL,
    class       TEXT   NOT NULL,
    PRIMARY KEY (sweep_id, workflow_id)
);

COMMENT ON TABLE  sweep_changes             IS 'Deletes, disables and changes that the open sweep would make and no generation explains; emptied when it is done';
COMMENT ON COLUMN sweep_changes.sweep_id    IS 'The sweep';
COMMENT ON COLUMN sweep_changes.workflow_id IS 'The workflow';
COMMENT ON COLUMN sweep_changes.epoch       IS 'The epoch that the comparison began with; NULL = there was no publication';
COMMENT ON COLUMN sweep_changes.revision    IS 'The revision of the workflow, for a publication that has to be made';
COMMENT ON COLUMN sweep_changes.class       IS 'The class of drift';

ALTER TABLE sweeps
    ADD COLUMN orphans_waiting BIGINT NOT NULL DEFAULT 0,
    ADD COLUMN orphans_refused BIGINT NOT NULL DEFAULT 0,
    ADD COLUMN changes_refused BIGINT NOT NULL DEFAULT 0;

COMMENT ON COLUMN sweeps.orphans_waiting IS 'Orphans seen once, or less than ten minutes apart';
COMMENT ON COLUMN sweeps.orphans_refused IS 'Orphans that are too many to be deleted without force';
COMMENT ON COLUMN sweeps.changes_refused IS 'Deletes, disables and changes that are too many to be made without force: the brake is engaged';

ALTER TABLE orphans
    ADD COLUMN foreign_identity UUID NULL;

COMMENT ON COLUMN orphans.foreign_identity IS 'The identity of another database that the schedule carries, so that it is never deleted; NULL = ours, none, or not read';

ALTER TABLE publications
    ADD COLUMN removal_revision BIGINT NULL;

COMMENT ON COLUMN publications.removal_revision IS 'The newest revision at which a delete event asked that no schedule exists; without a workflow row only this permits a deletion';

-- An edit that leaves no schedule wanted is a delete event. Kept here, because the events themselves are pruned.
CREATE FUNCTION note_removal() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    UPDATE publications
       SET removal_revision = GREATEST(removal_revision, COALESCE((NEW.payload ->> 'revision')::bigint, desired_revision))
     WHERE workflow_id = NEW.aggregate_id;
    RETURN NULL;
END
$$;

COMMENT ON FUNCTION note_removal() IS 'Notes at the publication at which revision a delete event asked that no schedule exists';

CREATE TRIGGER outbox_events_note_removal
    AFTER INSERT ON outbox_events
    FOR EACH ROW WHEN (NEW.op = 'delete') EXECUTE FUNCTION note_removal();

-- Of before this migration: what is gone already, and what a delete event that is still kept asks for.
UPDATE publications AS p
   SET removal_revision = p.desired_revision
 WHERE p.spec_hash = 'none'
    OR EXISTS (
           SELECT FROM outbox_events AS o
            WHERE o.aggregate_id = p.workflow_id
              AND o.op = 'delete'
              AND o.processed_on IS NULL
              AND (o.payload ->> 'revision')::bigint >= p.desired_revision
       );

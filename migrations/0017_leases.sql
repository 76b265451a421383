-- A lease belongs to one attempt. Its end is in the row, so that no instance evaluates the lease of another one by its own
-- LOST_AFTER_SECS.
--
-- During a deployment the old and the new app share this table. The old app writes locked_at and does not know lease_until:
-- the trigger below gives its runs the default lease, 120 s, whenever it claims, renews or releases one. An old instance
-- renews at least six times in its own LOST_AFTER_SECS, so its leases are renewed in time up to LOST_AFTER_SECS = 720. The
-- new app goes on writing locked_at, which the recovery of the old app reads. So neither takes a run from the other one
-- that is alive. What the old heartbeat renews without executing it stays that way until its instance ends.
-- The trigger goes with a later release.
ALTER TABLE runs
    ADD COLUMN lease_until timestamptz NULL,
    ADD COLUMN handed_over INTEGER     NOT NULL DEFAULT 0,
    ADD COLUMN cut_off     INTEGER     NOT NULL DEFAULT 0;

COMMENT ON COLUMN runs.locked_by   IS 'The app instance that executes it; all zeros = released by it, recovery takes it over';
COMMENT ON COLUMN runs.locked_at   IS 'When that instance last claimed or renewed it (cronbox_now)';
COMMENT ON COLUMN runs.lease_until IS 'Until then it belongs to that instance, which alone decides for how long (cronbox_now)';
COMMENT ON COLUMN runs.recoveries  IS 'Times that it went on after its instance was lost';
COMMENT ON COLUMN runs.handed_over IS 'Attempts that their instance handed over: at its shutdown, or because the reply to the claim was lost';
COMMENT ON COLUMN runs.cut_off     IS 'Of handed_over, those that may have reached the receiver';

CREATE FUNCTION runs_lease_of_old_app() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    NEW.lease_until := NEW.locked_at + INTERVAL '120 seconds';
    RETURN NEW;
END
$$;

CREATE TRIGGER runs_lease_of_old_app
    BEFORE UPDATE OF locked_at ON runs
    FOR EACH ROW
    WHEN (NEW.locked_at IS DISTINCT FROM OLD.locked_at AND NEW.lease_until IS NOT DISTINCT FROM OLD.lease_until)
    EXECUTE FUNCTION runs_lease_of_old_app();

COMMENT ON FUNCTION runs_lease_of_old_app() IS 'Gives a lease to the runs of an app that writes only locked_at; goes with a later release';

UPDATE runs SET lease_until = locked_at + INTERVAL '120 seconds' WHERE state = 'running';

-- NOT VALID, and validated by the next migration: so no write waits for a scan of the table.
ALTER TABLE runs ADD CONSTRAINT runs_lease CHECK ((locked_by IS NULL) = (lease_until IS NULL)) NOT VALID;

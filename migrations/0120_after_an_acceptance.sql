-- What an acceptance of the ledger leaves to the sweeps. EventBridge still has schedules of the gap between the backup and the loss, with
-- revisions above the database's. One that changes later, for example because a person disables it, is no sign of another restore. A sweep records
-- each such revision, until it sees that EventBridge follows the database again.
ALTER TABLE publications
    ADD COLUMN ahead_revision BIGINT NULL;

COMMENT ON COLUMN publications.ahead_revision IS 'The highest revision above the workflow''s that an accepted gap has left in EventBridge, as a sweep has seen it: it never makes the database wait; NULL = none, or a sweep has seen that EventBridge follows the database again';

-- A sweep that was open in the backup has listed the schedules of that day: if it went on, those that the gap has removed would not be missing.
-- An orphan that it had found once would be deleted at its first sight today. The service may not delete these rows itself.
CREATE FUNCTION forget_sweeps() RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp AS $$
BEGIN
    -- With its changes, which wait for the brake. What it has listed stays: a sighting counts only for its own sweep, and no other gets its id.
    DELETE FROM sweeps WHERE finished_on IS NULL;
    DELETE FROM orphans;
    DELETE FROM rollout_queue;
END
$$;

COMMENT ON FUNCTION forget_sweeps() IS 'Removes the open sweep with its changes, the orphans, and the queue of the rollout, at the acceptance of a ledger; the next sweep begins anew';

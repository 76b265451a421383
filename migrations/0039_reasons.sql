-- no-transaction
-- Reasons become codes (docs/errors.md). Batches of 10,000 rows, each with a commit of its own, so that no fire and no run waits long
-- for a row. One statement, because only then Postgres permits COMMIT in it; it can be repeated.
--
-- The previous version continues to read these columns, and continues to write its sentences until its last instance is replaced. So no
-- constraint requires a code, and this version reads both.
DO $$
DECLARE
    last uuid := '00000000-0000-0000-0000-000000000000';
    upto uuid;
BEGIN
    CREATE OR REPLACE FUNCTION reason_code(stored text) RETURNS text LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE AS $code$
        SELECT CASE stored
            WHEN 'it lies before the schedule''s last activation' THEN 'before_activation'
            WHEN 'older than the catch-up window' THEN 'older_than_catch_up_window'
            WHEN 'nobody asked in time, and the workflow does not catch up' THEN 'no_fire_and_no_catch_up'
            WHEN 'nobody asked in time' THEN 'no_fire_in_time'
            WHEN 'a later time has run or was owed, and the workflow catches up the newest alone' THEN 'superseded'
            WHEN 'the schedule was changed before it had run' THEN 'schedule_changed_before_run'
            WHEN 'the workflow was paused before it had run' THEN 'paused_before_run'
            WHEN 'the workflow was archived before it had run' THEN 'archived_before_run'
            WHEN 'the run before it has not ended' THEN 'previous_run_not_ended'
            WHEN 'the queue is full' THEN 'queue_full'
            WHEN 'a run waits already' THEN 'run_already_queued'
            WHEN 'a newer time took its place before it had started' THEN 'replaced_before_start'
            WHEN 'replaced by a later run' THEN 'replaced_by_later_run'
            WHEN 'the workflow was archived' THEN 'workflow_archived'
            WHEN 'cancelled on request' THEN 'cancelled_on_request'
            WHEN 'replaced by a later run; its instance was lost' THEN 'instance_lost_after_cancel:replaced_by_later_run'
            WHEN 'the workflow was archived; its instance was lost' THEN 'instance_lost_after_cancel:workflow_archived'
            WHEN 'cancelled on request; its instance was lost' THEN 'instance_lost_after_cancel:cancelled_on_request'
            WHEN 'it did not end at its timeout and was ended from outside' THEN 'stuck_after_timeout'
            WHEN 'its instance was lost, and its workflow is archived' THEN 'instance_lost_workflow_archived'
            WHEN 'its instance was lost, and on_lost is abandon' THEN 'instance_lost_on_lost_abandon'
            WHEN 'its instance handed it over, and no executor took it within RECOVERY_MAX_AGE_SECS' THEN 'handed_over_not_taken'
            WHEN 'it waited for a slot longer than the catch-up window' THEN 'slot_wait_too_long'
            WHEN 'no executor started it within the catch-up window' THEN 'not_started_in_time'
            ELSE CASE
                WHEN stored ~ '^no answer within \d+ s$'
                    THEN 'timed_out:' || substring(stored FROM '\d+')
                WHEN stored ~ '^its instance was lost, and it had gone on \d+ times already$'
                    THEN 'instance_lost_too_often:' || substring(stored FROM '\d+')
                WHEN stored ~ '^its instance was lost, and it was accepted more than \d+ s ago$'
                    THEN 'instance_lost_too_old:' || substring(stored FROM '\d+')
                WHEN stored ~ '^paused by cronbox: \d+ runs in a row have failed$'
                    THEN 'failures_in_a_row:' || substring(stored FROM '\d+')
            END
        END
    $code$;
    COMMENT ON FUNCTION reason_code(text) IS 'The code of a reason that version 0.1 stored as a sentence; NULL = another text, for example the error of an action';

    -- A terminal run changes its error only from the sentence to the code of the same reason.
    CREATE OR REPLACE FUNCTION runs_guard_terminal() RETURNS trigger LANGUAGE plpgsql AS $guard$
    BEGIN
        IF OLD.finished_on IS NOT NULL
           AND ((OLD.state, OLD.result, OLD.finished_on) IS DISTINCT FROM (NEW.state, NEW.result, NEW.finished_on)
                OR OLD.error IS DISTINCT FROM NEW.error
                   AND COALESCE(reason_code(OLD.error), OLD.error) IS DISTINCT FROM NEW.error) THEN
            RAISE EXCEPTION 'run %: % is final', OLD.id, OLD.state
                USING ERRCODE = 'check_violation', CONSTRAINT = 'runs_guard_terminal';
        END IF;
        RETURN NEW;
    END
    $guard$;

    COMMENT ON COLUMN occurrences.reason     IS 'Why: a code (docs/errors.md), for skipped_paused also the text of the person who paused the workflow; NULL = it ran on time';
    COMMENT ON COLUMN runs.error             IS 'Why it failed: the error of the action; or why it ended early: a code (docs/errors.md), with a fact after a colon. While it waits for another try, why the last one failed';
    COMMENT ON COLUMN runs.cancel_reason     IS 'Why it was requested to stop, a code (docs/errors.md); NULL = a caller cancelled it';
    COMMENT ON COLUMN workflows.pause_reason IS 'Why it is paused: the text of a person, or failures_in_a_row and their number after a colon';
    COMMIT;

    LOOP
        SELECT id INTO upto FROM occurrences WHERE id > last ORDER BY id OFFSET 9999 LIMIT 1;
        -- Locked in the order of their ids, as everywhere. The text of a person stays.
        WITH stored AS MATERIALIZED (
            SELECT id FROM occurrences
             WHERE id > last AND id <= COALESCE(upto, 'ffffffff-ffff-ffff-ffff-ffffffffffff')
               AND reason_code(reason) IS NOT NULL
               AND (decision <> 'skipped_paused'
                    OR split_part(reason_code(reason), ':', 1) IN ('paused_before_run', 'archived_before_run', 'failures_in_a_row'))
             ORDER BY id
               FOR UPDATE
        )
        UPDATE occurrences o SET reason = reason_code(o.reason) FROM stored WHERE o.id = stored.id;
        COMMIT;
        EXIT WHEN upto IS NULL;
        last := upto;
    END LOOP;

    last := '00000000-0000-0000-0000-000000000000';
    LOOP
        SELECT id INTO upto FROM runs WHERE id > last ORDER BY id OFFSET 9999 LIMIT 1;
        WITH stored AS MATERIALIZED (
            SELECT id FROM runs
             WHERE id > last AND id <= COALESCE(upto, 'ffffffff-ffff-ffff-ffff-ffffffffffff')
               AND (reason_code(error) IS NOT NULL OR reason_code(cancel_reason) IS NOT NULL)
             ORDER BY id
               FOR UPDATE
        )
        UPDATE runs r
           SET error = COALESCE(reason_code(r.error), r.error),
               cancel_reason = COALESCE(reason_code(r.cancel_reason), r.cancel_reason)
          FROM stored
         WHERE r.id = stored.id;
        COMMIT;
        EXIT WHEN upto IS NULL;
        last := upto;
    END LOOP;

    UPDATE workflows
       SET pause_reason = reason_code(pause_reason)
     WHERE split_part(reason_code(pause_reason), ':', 1) = 'failures_in_a_row';
END
$$

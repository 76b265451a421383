-- The attempts that ended while their run went on: the timeline of a run that was tried again, was lost or was handed over. The last attempt
-- of a run is in its own row, so a run that succeeds at once writes nothing here.
CREATE TABLE run_attempts (
    run_id     uuid        NOT NULL,
    attempt    integer     NOT NULL,
    started_on timestamptz,
    ended_on   timestamptz NOT NULL,
    outcome    text        NOT NULL CONSTRAINT run_attempts_outcome CHECK (outcome IN ('failed', 'lost', 'handed_over')),
    error      text,
    CONSTRAINT run_attempts_pkey PRIMARY KEY (run_id, attempt)
);

COMMENT ON TABLE  run_attempts            IS 'Attempts of a run before its last one';
COMMENT ON COLUMN run_attempts.run_id     IS 'The run; UUID v7, so that the job prune removes the oldest by the key';
COMMENT ON COLUMN run_attempts.attempt    IS 'Its number, from 1 on';
COMMENT ON COLUMN run_attempts.started_on IS 'When an executor began it';
COMMENT ON COLUMN run_attempts.ended_on   IS 'When it failed, or when its run was released for the next attempt';
COMMENT ON COLUMN run_attempts.outcome    IS 'failed: the run is tried again; lost: its instance was lost; handed_over: its instance stopped';
COMMENT ON COLUMN run_attempts.error      IS 'Why it failed: a code (docs/errors.md), or the error of the action';

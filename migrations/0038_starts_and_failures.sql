-- An attempt that was handed over before it had sent anything is no start: one definition for claim, queue, overlap and proof.
-- IMMUTABLE and one expression, so that Postgres inlines it.
CREATE FUNCTION run_never_started(attempt integer, handed_over integer, cut_off integer)
    RETURNS boolean LANGUAGE sql IMMUTABLE PARALLEL SAFE
    AS 'SELECT attempt = handed_over - cut_off';

COMMENT ON FUNCTION run_never_started(integer, integer, integer) IS
    'Whether each attempt of a run was handed over before it had sent anything: it waits and expires like a run that was never claimed';

-- How long it lasts is decided by the instance that hands over, like a lease: no other instance uses its own setting.
ALTER TABLE runs ADD COLUMN handed_over_until timestamptz NULL;

COMMENT ON COLUMN runs.handed_over_until IS
    'Until then a run that had started and was handed over may go on (cronbox_now); NULL = it was not handed over, was claimed since, or never started';

-- A workflow whose statements fail keeps its own account open: `verify` names it, and it delays no proof of others.
-- No foreign key: storing a failure must not wait for a lock on the workflow that fails.
CREATE TABLE job_failures (
    job         TEXT        NOT NULL,
    workflow_id BIGINT      NOT NULL,
    failed_on   timestamptz NOT NULL,
    PRIMARY KEY (job, workflow_id)
);

COMMENT ON TABLE  job_failures             IS 'Workflows that the last pass of a job could not process, while it processed all others';
COMMENT ON COLUMN job_failures.job         IS 'The job, as in jobs.name; only the watchdog stores its failures';
COMMENT ON COLUMN job_failures.workflow_id IS 'The workflow; the next pass removes a row whose workflow is gone or works again';
COMMENT ON COLUMN job_failures.failed_on   IS 'Since when each pass has failed (cronbox_now)';

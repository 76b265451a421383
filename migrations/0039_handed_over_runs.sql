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

-- How far the prune has ever come: a retention that is raised later brings no row back.
CREATE TABLE prune_marks (
    subject       TEXT        PRIMARY KEY CONSTRAINT prune_marks_subject CHECK (subject IN ('runs', 'occurrences')),
    pruned_before timestamptz NOT NULL
);

COMMENT ON TABLE  prune_marks               IS 'How far the prune has ever come; no row of a subject: nothing was ever pruned';
COMMENT ON COLUMN prune_marks.subject       IS 'runs (by finished_on) or occurrences (by scheduled_time and decided_on)';
COMMENT ON COLUMN prune_marks.pruned_before IS 'What is older may be gone; what is not older was never pruned (business clock)';

-- Of a database that was pruned without marks: what is older than its oldest row may be gone.
INSERT INTO prune_marks (subject, pruned_before)
SELECT 'runs', COALESCE((SELECT min(finished_on) FROM runs), cronbox_now())
 WHERE EXISTS (SELECT FROM occurrences WHERE run_id IS NOT NULL);

-- Neither a newest occurrence, which stays for ever, nor a long catch-up window says how far the prune came.
-- The oldest of each workflow, by the UNIQUE index: a join of all occurrences took 28 s for a million of them.
INSERT INTO prune_marks (subject, pruned_before)
SELECT 'occurrences', min(oldest.scheduled_time)
  FROM workflows w
 CROSS JOIN LATERAL (SELECT o.scheduled_time FROM occurrences o
                      WHERE o.workflow_id = w.id
                      ORDER BY o.scheduled_time
                      LIMIT 1) oldest
 WHERE w.catch_up_window_secs <= 14 * 24 * 3600
   AND EXISTS (SELECT FROM occurrences newer
                WHERE newer.workflow_id = w.id AND newer.scheduled_time > oldest.scheduled_time)
HAVING min(oldest.scheduled_time) IS NOT NULL;

-- Backfills of spans that no schedule version made due, and counts that outlive the runs.
ALTER TABLE backfills
    ADD COLUMN timing           TEXT   NOT NULL DEFAULT 'then' CONSTRAINT backfills_timing CHECK (timing IN ('then', 'now')),
    ADD COLUMN timing_revision  BIGINT NULL,
    ADD COLUMN pruned_succeeded BIGINT NOT NULL DEFAULT 0,
    ADD CONSTRAINT backfills_timing_revision CHECK ((timing = 'now') = (timing_revision IS NOT NULL));

COMMENT ON COLUMN backfills.timing           IS 'then: the times that were due by the timing of then; now: those that the cron at the request selects';
COMMENT ON COLUMN backfills.timing_revision  IS 'The schedule version whose cron and timezone select under now; NULL under then';
COMMENT ON COLUMN backfills.pruned_succeeded IS 'Runs of it that succeeded and were pruned since';

-- Its users find the runs of an occurrence by idx_runs_scheduled_time, and the automatic one by idx_runs_automatic.
DROP INDEX idx_runs_occurrence_id;
COMMENT ON COLUMN runs.occurrence_id IS 'The occurrence that it runs, NULL = manual; one automatic run (schedule, catch_up) per occurrence';

-- Never validated: a row of before may lack its run, and `verify` names it (no_run). Every later write is checked.
ALTER TABLE occurrences ADD CONSTRAINT occurrences_run
    CHECK (decision NOT IN ('fired', 'caught_up', 'backfilled') OR run_id IS NOT NULL) NOT VALID;
COMMENT ON COLUMN occurrences.decision IS
    'What was decided; missed may become fired, caught_up or backfilled, skipped_paused may become backfilled, and what runs becomes abandoned with its run';

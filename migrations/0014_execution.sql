-- What an abandoned run says about the time that it was to run.
COMMENT ON COLUMN occurrences.decision IS
    'What was decided; missed may become fired, caught_up or backfilled, and these become abandoned if their run is given up';
COMMENT ON COLUMN runs.error     IS 'Why it failed, or why it was given up, in a sentence; while it waits for another try, why the last one failed';
COMMENT ON COLUMN runs.run_after IS 'Not to be started before: spread, or the pause after an answer that failed (business clock)';

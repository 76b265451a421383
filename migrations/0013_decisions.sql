-- A pause that ends by itself is found by the moment at which it does.
CREATE INDEX idx_workflows_pause_until ON workflows (pause_until) WHERE pause_until IS NOT NULL;

-- A run that was given up before it had started takes its occurrence along.
COMMENT ON COLUMN occurrences.decision IS 'What was decided; missed may still become fired, caught_up or backfilled, and fired or caught_up abandoned';

-- no-transaction
-- The gauges count the abandoned runs of the last hour at each tick and each scrape; without it they read one entry per run.
CREATE INDEX CONCURRENTLY IF NOT EXISTS idx_runs_abandoned ON runs (finished_on) WHERE state = 'abandoned';

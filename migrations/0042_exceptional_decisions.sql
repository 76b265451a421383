-- no-transaction
-- The gauges count the exceptions of the last hour at each tick and each scrape; without it they read one entry per fire.
CREATE INDEX CONCURRENTLY IF NOT EXISTS idx_occurrences_exceptional ON occurrences (decided_on) WHERE decision IN ('missed', 'caught_up', 'abandoned');

-- (b) one table of runs by day, with the fewest indexes that claim, overlap, recovery, lists and verify need.
\ir occurrences.sql
CREATE TABLE runs (LIKE run_columns INCLUDING DEFAULTS, PRIMARY KEY (id)) PARTITION BY RANGE (id);
CREATE INDEX ON runs (workflow_id, id);
CREATE INDEX ON runs (team_id, id);
CREATE INDEX ON runs (workflow_id, scheduled_time) WHERE scheduled_time IS NOT NULL;
CREATE INDEX ON runs (team_id, id) WHERE state IN ('failed', 'timed_out', 'abandoned');
CREATE INDEX ON runs (backfill_id) WHERE backfill_id IS NOT NULL;
CREATE INDEX ON runs (team_id, run_after) WHERE state = 'accepted';
CREATE INDEX ON runs (started_on) WHERE state = 'running';
CREATE INDEX ON runs (workflow_id) WHERE state IN ('accepted', 'queued', 'running', 'waiting');
CREATE INDEX ON runs USING brin (finished_on) WITH (autosummarize = on);
SELECT format('CREATE TABLE runs_%s PARTITION OF runs FOR VALUES FROM (%L) TO (%L) WITH (fillfactor = 70)', n,
              v7_floor('2026-01-01Z'::timestamptz + n * INTERVAL '1 day'), v7_floor('2026-01-02Z'::timestamptz + n * INTERVAL '1 day'))
  FROM generate_series(0, :days - 1) n \gexec
\ir end_in_place.sql

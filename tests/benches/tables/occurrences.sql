-- Occurrences by day; the UNIQUE index contains the partition key.
CREATE TABLE occurrences (
    id uuid NOT NULL, workflow_id BIGINT NOT NULL, scheduled_time timestamptz NOT NULL, decision TEXT NOT NULL, reason TEXT, revision BIGINT,
    run_id uuid, raw_time TEXT, execution_id TEXT, attempt INTEGER, lateness_s BIGINT NOT NULL, decided_on timestamptz NOT NULL,
    created_on timestamptz NOT NULL, updated_on timestamptz NOT NULL,
    CONSTRAINT occurrences_workflow_id_scheduled_time_key UNIQUE (workflow_id, scheduled_time)
) PARTITION BY RANGE (scheduled_time);
CREATE INDEX ON occurrences (workflow_id, scheduled_time DESC) WHERE run_id IS NOT NULL;
CREATE INDEX ON occurrences USING brin (decided_on) WITH (autosummarize = on);
SELECT format('CREATE TABLE occurrences_%s PARTITION OF occurrences FOR VALUES FROM (%L) TO (%L)', n,
              '2026-01-01Z'::timestamptz + n * INTERVAL '1 day', '2026-01-02Z'::timestamptz + n * INTERVAL '1 day')
  FROM generate_series(0, :days - 1) n \gexec

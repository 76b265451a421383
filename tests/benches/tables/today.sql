-- Today's tables and indexes.
CREATE TABLE occurrences (
    id uuid PRIMARY KEY, workflow_id BIGINT NOT NULL REFERENCES workflows, scheduled_time timestamptz NOT NULL, decision TEXT NOT NULL,
    reason TEXT, revision BIGINT, run_id uuid, raw_time TEXT, execution_id TEXT, attempt INTEGER, lateness_s BIGINT NOT NULL,
    decided_on timestamptz NOT NULL, created_on timestamptz NOT NULL, updated_on timestamptz NOT NULL,
    CONSTRAINT occurrences_workflow_id_scheduled_time_key UNIQUE (workflow_id, scheduled_time)
);
CREATE INDEX ON occurrences (decided_on DESC);
CREATE INDEX ON occurrences (run_id) WHERE run_id IS NOT NULL;
CREATE INDEX ON occurrences (workflow_id, scheduled_time DESC) WHERE run_id IS NOT NULL;
CREATE TABLE runs (LIKE run_columns INCLUDING DEFAULTS, PRIMARY KEY (id), FOREIGN KEY (workflow_id) REFERENCES workflows);
CREATE UNIQUE INDEX ON runs (occurrence_id) WHERE trigger IN ('schedule', 'catch_up');
CREATE INDEX ON runs (backfill_id) WHERE backfill_id IS NOT NULL;
CREATE INDEX ON runs (team_id, run_after) WHERE state = 'accepted';
CREATE INDEX ON runs (finished_on) WHERE finished_on IS NOT NULL;
CREATE INDEX ON runs (workflow_id, run_after, id) WHERE state IN ('accepted', 'queued', 'running');
CREATE INDEX ON runs (created_on) WHERE state = 'queued';
CREATE INDEX ON runs (locked_at) WHERE state = 'running';
CREATE INDEX ON runs (workflow_id, scheduled_time) WHERE scheduled_time IS NOT NULL;
CREATE INDEX ON runs (workflow_id, id DESC);
\ir end_in_place.sql

-- The columns of a run, in the order of the product's table, with those that the ADR adds.
CREATE TABLE run_columns (
    id uuid NOT NULL, workflow_id BIGINT NOT NULL, occurrence_id uuid, trigger TEXT NOT NULL, state TEXT NOT NULL, scheduled_time timestamptz,
    run_after timestamptz NOT NULL, attempt INTEGER NOT NULL DEFAULT 0, created_on timestamptz NOT NULL, started_on timestamptz,
    finished_on timestamptz, locked_by uuid, locked_at timestamptz, cancel_requested_on timestamptz, result jsonb, error TEXT,
    duration_ms BIGINT, tries INTEGER NOT NULL DEFAULT 0, recoveries INTEGER NOT NULL DEFAULT 0, late_result jsonb, inputs jsonb,
    backfill_id uuid, lease_until timestamptz, handed_over INTEGER NOT NULL DEFAULT 0, cut_off INTEGER NOT NULL DEFAULT 0,
    cancel_reason TEXT, retry_of uuid, team_id BIGINT, handed_over_until timestamptz, token_hash bytea, token_expires_on timestamptz
);

-- What columns mean since nothing is deleted that no edit asked for.
COMMENT ON COLUMN outbox_events.op IS 'delete = the edit left no schedule wanted (cron cleared, archived, deleted); upsert = any other edit. The publisher reads the workflow; without a row only a delete permits a deletion';
COMMENT ON COLUMN sweeps.force     IS 'Whether many orphans may be deleted, many changes made, and a failed canary be passed';
COMMENT ON TABLE  orphans          IS 'Schedules with a name of ours that neither a workflow nor a delete event accounts for';

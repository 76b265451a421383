-- Applied migrations are never edited, so this one restates the comments that used words which the project no longer uses.
COMMENT ON COLUMN api_keys.hash         IS 'SHA-256 of the complete key; the key itself is shown once and never stored';
COMMENT ON COLUMN api_keys.kind         IS 'admin: all teams; team: one team, by role; scheduler: only :invoke';
COMMENT ON COLUMN api_keys.last_used_on IS 'When the key was last read from here; lags by the few seconds that a key is cached';

COMMENT ON COLUMN workflows.state                 IS 'active; paused: no time is due until it is resumed; archived: final';
COMMENT ON COLUMN workflows.starts_at             IS 'No time is due before this time';
COMMENT ON COLUMN workflows.ends_at               IS 'No time is due at or after this time';
COMMENT ON COLUMN workflows.catch_up_policy       IS 'Which missed times run late: none, skip (only the newest), run_all';
COMMENT ON COLUMN workflows.schedule_activated_at IS 'Since when the current timing is in force (create, cron or timezone change, resume); nothing earlier is caught up';
COMMENT ON COLUMN workflows.ledger_cursor         IS 'Every due time up to here has its row in occurrences';
COMMENT ON COLUMN workflows.watch_at              IS 'The earliest time that the watchdog may have to decide; NULL = no time is due';
COMMENT ON COLUMN workflows.ledger_since          IS 'Before this no ledger was kept, so verify checks no earlier time; NULL = since the workflow was created';

COMMENT ON COLUMN schedule_versions.cron      IS 'Canonical cron; NULL = no time is due';
COMMENT ON COLUMN schedule_versions.starts_at IS 'No time is due before this time';
COMMENT ON COLUMN schedule_versions.ends_at   IS 'No time is due at or after this time';

COMMENT ON TABLE  publications                  IS 'What the publisher believes exists in EventBridge for a workflow; no foreign key, because a delete outlives its workflow';
COMMENT ON COLUMN publications.desired_revision IS 'The newest revision requested; with no workflow row: no schedule, since this revision';
COMMENT ON COLUMN publications.due_at           IS 'When the publisher checks the workflow next; stays set while leased; NULL = nothing to do';
COMMENT ON COLUMN publications.lease_owner      IS 'The publisher that has the lease, NULL = none';
COMMENT ON COLUMN publications.removal_revision IS 'The newest revision at which a delete event requested that no schedule exists; without a workflow row only this permits a deletion. NULL = none has, or a schedule was published since';

COMMENT ON TABLE  outbox_events IS 'Check this workflow; written in the transaction of the edit, drained by the publisher';
COMMENT ON COLUMN audit_log.after IS 'The state after the change; secrets redacted; NULL at a delete';

COMMENT ON TABLE  occurrences          IS 'One due time of a schedule, with its one decision';
COMMENT ON COLUMN occurrences.revision IS 'The schedule version by which this time was due';

COMMENT ON COLUMN runs.scheduled_time      IS 'The nominal time that it runs, NULL = started manually';
COMMENT ON COLUMN runs.cancel_requested_on IS 'When its cancellation was requested';
COMMENT ON COLUMN runs.cancel_reason       IS 'Why its cancellation was requested, a code (docs/errors.md); NULL = by a caller';
COMMENT ON COLUMN runs.inputs              IS 'Inputs of only this run (:fire); NULL = the workflow''s starting inputs';
COMMENT ON COLUMN runs.backfill_id         IS 'The backfill that created it, NULL = none';
COMMENT ON COLUMN runs.lease_until         IS 'Until then it belongs to that instance, and only that instance decides for how long (cronbox_now)';

COMMENT ON INDEX  sweeps_open         IS 'At most one sweep is open';
COMMENT ON TABLE  sweeps              IS 'Comparisons of EventBridge with the database: requested, running, done';
COMMENT ON COLUMN sweeps.requested_on IS 'When it was requested (cronbox_now)';
COMMENT ON COLUMN sweeps.listed_on    IS 'When the list was complete; missing schedules are known from then on';
COMMENT ON COLUMN sweeps.locked_by    IS 'The publisher that has the lease, NULL = none';
COMMENT ON COLUMN sweeps.sample_every IS 'One in so many workflows is read in full, another one each sweep';

COMMENT ON TABLE  publishers IS 'The publishers that have leases; a row is removed when its drain ends, or an hour after its last claim';

COMMENT ON TABLE  backfills              IS 'Past times that a caller requested to run; they run beside the live schedule';
COMMENT ON COLUMN backfills.start_at     IS 'The first time that may be selected';
COMMENT ON COLUMN backfills.end_at       IS 'Every selected time is before this';
COMMENT ON COLUMN backfills.cursor_at    IS 'The last time that was checked; NULL = none yet';
COMMENT ON COLUMN backfills.total        IS 'Selected times, counted when it was requested';
COMMENT ON COLUMN backfills.requested_by IS 'The key that requested it (its public prefix)';
COMMENT ON COLUMN backfills.created_on   IS 'When it was requested (business clock)';

COMMENT ON FUNCTION cronbox_database_oid() IS 'The number of this database on its server; distinguishes a copy from the original';
COMMENT ON FUNCTION note_removal()         IS 'Records at the publication at which revision a delete event requested that no schedule exists';

COMMENT ON COLUMN database_identity.held_on IS 'Since when jobs and publisher wait for an acceptance (cronbox_now); NULL = no process has requested one';

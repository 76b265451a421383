-- A delete event permits the removal of a schedule without a workflow row until a schedule is published again. Before, the
-- permission outlived the return of the row: its next vanishing deleted the schedule past the guard for orphans.
COMMENT ON COLUMN publications.removal_revision IS 'The newest revision at which a delete event asked that no schedule exists; without a workflow row only this permits a deletion. NULL = none has, or a schedule was published since';

-- Of before this migration: workflows that want a schedule, under a permission that they did not outgrow.
UPDATE publications AS p
   SET removal_revision = NULL
  FROM workflows AS w
 WHERE w.id = p.workflow_id
   AND w.cron_schedule IS NOT NULL
   AND w.state <> 'archived'
   -- a delete of this moment has a higher revision
   AND p.removal_revision BETWEEN p.desired_revision AND w.revision;

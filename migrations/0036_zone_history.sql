-- A due time is evaluated by the zone data that were in force at it, so the changes have one order: by id and by time.
UPDATE zone_changes c
   SET in_force_from = ascending.in_force_from
  FROM (SELECT id, max(in_force_from) OVER earlier + INTERVAL '1 microsecond' * count(*) OVER earlier AS in_force_from
          FROM zone_changes
        WINDOW earlier AS (ORDER BY id)) AS ascending
 WHERE c.id = ascending.id;
ALTER TABLE zone_changes ADD CONSTRAINT zone_changes_in_force_from_key UNIQUE (in_force_from);

COMMENT ON TABLE  zone_changes IS 'When which zone data came into force; the row with the highest id is the newest';
COMMENT ON COLUMN zone_changes.version IS 'The zone data by which due times from in_force_from on are evaluated';
COMMENT ON COLUMN zone_changes.in_force_from IS 'When they come into force by the database''s clock, a minute after they were stored; ascends with id';

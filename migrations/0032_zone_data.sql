-- The rules of timezones that all instances of this environment decide by. Without a row each binary uses its bundled set.
CREATE TABLE zone_data (
    version text PRIMARY KEY,
    archive bytea NOT NULL,
    stored_on timestamptz NOT NULL DEFAULT cronbox_now()
);
COMMENT ON TABLE  zone_data IS 'Zone data, one row per version of the IANA database';
COMMENT ON COLUMN zone_data.version IS 'Version of the IANA database, for example 2026f';
COMMENT ON COLUMN zone_data.archive IS 'TZif files with their names, in the form that make tzdata writes';
COMMENT ON COLUMN zone_data.stored_on IS 'When the archive was stored';

-- The newest row is in force. Older rows say by which version a past time was decided.
CREATE TABLE zone_changes (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    version text NOT NULL REFERENCES zone_data (version),
    in_force_from timestamptz NOT NULL
);
COMMENT ON TABLE  zone_changes IS 'When which zone data came into force; the row with the highest id is in force';
COMMENT ON COLUMN zone_changes.id IS 'Ascending; instances compare it with the one that they loaded';
COMMENT ON COLUMN zone_changes.version IS 'The zone data that are in force from then on';
COMMENT ON COLUMN zone_changes.in_force_from IS 'When they came into force';

ALTER TABLE workflows ADD COLUMN zone_change_id bigint;
COMMENT ON COLUMN workflows.zone_change_id IS 'The last change of the zone data that changed its next times, NULL if none did';
CREATE INDEX idx_workflows_zone_change ON workflows (zone_change_id) WHERE zone_change_id IS NOT NULL;

-- A team can be deleted once it has no workflow. What belongs only to it goes with it; the audit log, the statistics and the runs do not name it
-- by a foreign key and stay until their retention ends. A table that is forgotten here refuses the deletion.
ALTER TABLE api_keys             DROP CONSTRAINT api_keys_team_id_fkey,
    ADD CONSTRAINT api_keys_team_id_fkey             FOREIGN KEY (team_id) REFERENCES teams (id) ON DELETE CASCADE;
ALTER TABLE bulk_operations      DROP CONSTRAINT bulk_operations_team_id_fkey,
    ADD CONSTRAINT bulk_operations_team_id_fkey      FOREIGN KEY (team_id) REFERENCES teams (id) ON DELETE CASCADE;
ALTER TABLE freezes              DROP CONSTRAINT freezes_team_id_fkey,
    ADD CONSTRAINT freezes_team_id_fkey              FOREIGN KEY (team_id) REFERENCES teams (id) ON DELETE CASCADE;
ALTER TABLE team_data_keys       DROP CONSTRAINT team_data_keys_team_id_fkey,
    ADD CONSTRAINT team_data_keys_team_id_fkey       FOREIGN KEY (team_id) REFERENCES teams (id) ON DELETE CASCADE;
ALTER TABLE team_secrets         DROP CONSTRAINT team_secrets_team_id_fkey,
    ADD CONSTRAINT team_secrets_team_id_fkey         FOREIGN KEY (team_id) REFERENCES teams (id) ON DELETE CASCADE;

ALTER TABLE bulk_operations DROP CONSTRAINT bulk_operations_verb;
ALTER TABLE bulk_operations ADD CONSTRAINT bulk_operations_verb
    CHECK (verb IN ('pause', 'resume', 'archive', 'delete', 'fire', 'retry', 'cancel'));

-- The service may delete no team itself, nor its keys: the owner's function does it, for a team that has no workflow.
CREATE FUNCTION delete_empty_team(team bigint) RETURNS boolean
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp AS $$
BEGIN
    IF EXISTS (SELECT FROM workflows w WHERE w.team_id = team) THEN
        RETURN false;
    END IF;
    DELETE FROM teams t WHERE t.id = team;
    RETURN true;
END
$$;

COMMENT ON FUNCTION delete_empty_team(bigint) IS 'Deletes a team, which the caller has locked, with what belongs only to it; false: it has workflows';

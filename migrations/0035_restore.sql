-- After a restore or a clone nothing runs and nothing is published until an operator has accepted the ledger.
ALTER TABLE database_identity
    ADD COLUMN held_on     timestamptz NULL,
    ADD COLUMN held_reason TEXT        NULL,
    ADD CONSTRAINT database_identity_held CHECK ((held_on IS NULL) = (held_reason IS NULL));

COMMENT ON COLUMN database_identity.held_on     IS 'Since when jobs and publisher wait for an acceptance (cronbox_now); NULL = no process has asked for one';
COMMENT ON COLUMN database_identity.held_reason IS 'restored (another server or database), marked (CRONBOX_RESTORED), cloned (a process of another environment) or eventbridge_ahead; NULL with held_on';

-- The server's identifier tells a dump that was restored elsewhere, the database's number one that was restored beside the
-- original. A storage snapshot keeps both, and a process of another environment is told by its start: they set held_on.
CREATE FUNCTION cronbox_hold() RETURNS text LANGUAGE sql STABLE AS $$
    SELECT CASE
               WHEN held_on IS NOT NULL THEN held_reason
               WHEN system_identifier <> cronbox_system_identifier() THEN 'restored'
               WHEN database_oid <> cronbox_database_oid() THEN 'restored'
           END
      FROM database_identity
$$;

COMMENT ON FUNCTION cronbox_hold() IS 'Why jobs and publisher wait: restored, cloned, marked, eventbridge_ahead; NULL = they do not';

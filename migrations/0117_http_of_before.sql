-- An http URL may lead only to networks that an operator allows, not only when it is saved but at each send: its name may lead elsewhere by
-- then. Workflows that were saved before https was required go on, so that the exception must be a property of a workflow.
--
-- Two statements: the existing rows have the first default, without being written, and new ones the second.
ALTER TABLE workflows ADD COLUMN may_use_http BOOLEAN NOT NULL DEFAULT TRUE;
ALTER TABLE workflows ALTER COLUMN may_use_http SET DEFAULT FALSE;

COMMENT ON COLUMN workflows.may_use_http IS 'Whether its URL may begin with http and lead to public addresses although no operator permits that: the URL was saved before https was required';

-- A trigger, because an instance of the version before does not know the column.
CREATE FUNCTION end_use_of_http() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    NEW.may_use_http := FALSE;
    RETURN NEW;
END
$$;

COMMENT ON FUNCTION end_use_of_http() IS 'Ends the permission of a workflow to use http, because its URL changes';

-- Only a change of the URL: encryption of header values changes the action, too.
CREATE TRIGGER end_use_of_http BEFORE UPDATE OF action ON workflows
    FOR EACH ROW WHEN (OLD.may_use_http AND (OLD.action ->> 'url') IS DISTINCT FROM (NEW.action ->> 'url'))
    EXECUTE FUNCTION end_use_of_http();

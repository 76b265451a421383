-- An attempt has the timeout that its workflow had when it was claimed. An edit that shortens the timeout keeps the longer one for the attempts
-- that run, so that the job `timeouts` does not take them for stuck. A claim and a fire write nothing for it.
ALTER TABLE workflows
    ADD COLUMN timeout_before_secs  INTEGER     NULL,
    ADD COLUMN timeout_shortened_on timestamptz NULL;

COMMENT ON COLUMN workflows.timeout_before_secs  IS 'The longest timeout_secs that an attempt may have that was claimed before timeout_shortened_on; NULL = timeout_secs was never shortened';
COMMENT ON COLUMN workflows.timeout_shortened_on IS 'When an edit last shortened timeout_secs (business time); NULL = never';

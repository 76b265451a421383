-- What the migrations 85 and 87 say of these columns is incomplete.
COMMENT ON COLUMN audit_log.actor IS 'Who did it: key:<public prefix>, person:<name> (<issuer> <subject>), cli:<user of the operating system>, file:<name>, address:<address> for failed logins, or cronbox';
COMMENT ON COLUMN audit_log.after IS 'The same as it was after the change, with the paths of changed values that are not shown (hidden_changes); NULL at a delete';
COMMENT ON COLUMN failed_logins.failures IS 'How many requests had a key that is unknown, revoked or expired, or that is not permitted from their address, or a token that was refused';

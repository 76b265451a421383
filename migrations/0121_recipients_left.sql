-- A mail server may accept an e-mail for some recipients, and refuse the others only for now. Only those get it again.
ALTER TABLE notification_messages ADD COLUMN recipients_left TEXT[] NULL;

COMMENT ON COLUMN notification_messages.recipients_left IS 'The recipients of an e-mail that do not have it yet, if others have it; NULL = none has it, or it is no e-mail';

-- Requests with an unknown or revoked key, by minute and address: each instance adds what it has counted in memory after the minute. The job
-- `audit` moves them to the audit log, so that a flood of requests writes few rows, and never one for each request.
CREATE TABLE failed_logins (
    minute   timestamptz NOT NULL,
    address  TEXT        NOT NULL,
    failures bigint      NOT NULL,
    CONSTRAINT failed_logins_pkey PRIMARY KEY (minute, address),
    CONSTRAINT failed_logins_failures CHECK (failures > 0)
);

COMMENT ON TABLE  failed_logins          IS 'Failed logins of the last minutes, of all instances together, until the job audit writes them to the audit log';
COMMENT ON COLUMN failed_logins.minute   IS 'The beginning of the minute';
COMMENT ON COLUMN failed_logins.address  IS 'The address of the client, of IPv6 its network (/64); others: further addresses of this minute';
COMMENT ON COLUMN failed_logins.failures IS 'How many requests had an unknown or revoked key';

-- Who publishes at this moment, so that all together keep to the account's quota.
--
-- Not counted from the leases themselves: in a fast drain these leave so many dead rows behind that
-- counting them costs more than claiming. Here a publisher has one row, however much it claims.
CREATE TABLE publishers (
    owner      TEXT        PRIMARY KEY,
    live_until timestamptz NOT NULL
) WITH (fillfactor = 50);

COMMENT ON TABLE  publishers            IS 'The publishers that hold leases; a row goes when its drain ends, or an hour after its last claim';
COMMENT ON COLUMN publishers.owner      IS 'As in publications.lease_owner';
COMMENT ON COLUMN publishers.live_until IS 'When its newest lease lapses (cronbox_now)';

-- The hosts that the http actions of a team may call. A constant default: no row is written, and the lock lasts for a moment.
ALTER TABLE teams ADD COLUMN allowed_hosts TEXT[] NOT NULL DEFAULT '{}';

COMMENT ON COLUMN teams.allowed_hosts IS 'Hosts that the http actions of the team may call: names, *.name, addresses; empty = every public host';

-- no-transaction
-- A new link removes the oldest ones of a key that has too many. It finds them by this index, however many there are. It also serves what idx_sign_in_links_key
-- serves, which a later version drops.
CREATE INDEX CONCURRENTLY IF NOT EXISTS idx_sign_in_links_of_a_key ON sign_in_links (key_id, expires_on);

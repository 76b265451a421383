-- no-transaction
-- The job prune removes links by their end. Without this index each of its batches read the table from its begin, over the rows that those before had removed.
CREATE INDEX CONCURRENTLY IF NOT EXISTS idx_sign_in_links_expires_on ON sign_in_links (expires_on);

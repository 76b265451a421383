-- A hash chain over the entries of the audit log, in a table of its own: no edit waits for it. The job `audit` computes it afterwards.
CREATE TABLE audit_chain (
    team_id     bigint      NOT NULL,
    sequence    bigint      NOT NULL,
    month       timestamptz NOT NULL,
    after_id    bigint      NOT NULL,
    through_id  bigint      NOT NULL,
    entry_count bigint      NOT NULL,
    hash        bytea       NOT NULL,
    made_on     timestamptz NOT NULL DEFAULT cronbox_now(),
    CONSTRAINT audit_chain_pkey PRIMARY KEY (team_id, sequence),
    CONSTRAINT audit_chain_range CHECK (sequence > 0 AND entry_count > 0 AND after_id < through_id)
);

CREATE INDEX idx_audit_chain_through ON audit_chain (through_id);

COMMENT ON TABLE  audit_chain             IS 'The hash chain of each team over its entries of the audit log, in blocks; append-only. The blocks of dropped months are its anchors';
COMMENT ON COLUMN audit_chain.team_id     IS 'Whose entries: a team, or 0 for those without a team';
COMMENT ON COLUMN audit_chain.sequence    IS 'The number of the block in the chain of its team, from 1 on';
COMMENT ON COLUMN audit_chain.month       IS 'The beginning of the month (UTC) of its entries: a month is dropped as a whole, and so are the entries of its blocks';
COMMENT ON COLUMN audit_chain.after_id    IS 'Its entries have higher ids; the end of the blocks before, of all teams';
COMMENT ON COLUMN audit_chain.through_id  IS 'Its entries have this id or lower ones';
COMMENT ON COLUMN audit_chain.entry_count IS 'How many entries it has';
COMMENT ON COLUMN audit_chain.hash        IS 'SHA-256 of the hash of the block before, of these columns, and of the digest of each entry in the order of ids';
COMMENT ON COLUMN audit_chain.made_on     IS 'When it was computed';
COMMENT ON INDEX  idx_audit_chain_through IS 'The newest block, and the blocks of a span of ids';

-- Where the months began when the chain began: later than that, the months before `partition_bounds.first_day` are dropped.
CREATE TABLE audit_chain_start (
    first_day timestamptz NOT NULL
);

COMMENT ON TABLE  audit_chain_start           IS 'One row: where the months of the audit log began when the chain began';
COMMENT ON COLUMN audit_chain_start.first_day IS 'partition_bounds.first_day of that moment';

INSERT INTO audit_chain_start (first_day) SELECT first_day FROM partition_bounds WHERE parent = 'audit_log';

CREATE FUNCTION audit_kept_from() RETURNS timestamptz LANGUAGE sql STABLE AS $$
    SELECT CASE WHEN b.first_day > s.first_day THEN b.first_day ELSE '-infinity' END
      FROM partition_bounds b, audit_chain_start s
     WHERE b.parent = 'audit_log'
$$;

COMMENT ON FUNCTION audit_kept_from() IS 'Entries of the audit log before this time are dropped; -infinity: none was dropped since the chain began';

-- As for the audit log. Only the owner's function below removes a block, and only one that is not an anchor any more.
CREATE FUNCTION audit_chain_append_only() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'DELETE' AND TG_LEVEL = 'ROW' THEN
        IF OLD.month < public.audit_kept_from() THEN
            RETURN OLD;
        END IF;
    END IF;
    RAISE EXCEPTION 'audit_chain is append-only: % is refused', TG_OP
        USING ERRCODE = 'insufficient_privilege', CONSTRAINT = 'audit_chain_append_only';
END
$$;

COMMENT ON FUNCTION audit_chain_append_only() IS 'Refuses UPDATE and TRUNCATE of the chain, and DELETE of a block whose entries are kept';

CREATE TRIGGER audit_chain_append_only
    BEFORE UPDATE OR TRUNCATE ON audit_chain
    FOR EACH STATEMENT EXECUTE FUNCTION audit_chain_append_only();

CREATE TRIGGER audit_chain_keep_rows
    BEFORE DELETE ON audit_chain
    FOR EACH ROW EXECUTE FUNCTION audit_chain_append_only();

-- The newest block of a team before the kept months stays: it is the anchor of the next one.
CREATE FUNCTION remove_audit_anchors() RETURNS bigint
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp AS $$
DECLARE
    most CONSTANT integer := 10000;
    kept_from  timestamptz := audit_kept_from();
    first_kept bigint;
    removed    bigint;
BEGIN
    SELECT through_id INTO first_kept FROM audit_chain WHERE month >= kept_from ORDER BY through_id LIMIT 1;
    WITH old AS MATERIALIZED (
        SELECT c.team_id, c.sequence
          FROM audit_chain c
          JOIN audit_chain next ON next.team_id = c.team_id AND next.sequence = c.sequence + 1
         WHERE c.through_id < COALESCE(first_kept, 9223372036854775807)
           AND next.through_id < COALESCE(first_kept, 9223372036854775807)
           AND c.month < kept_from AND next.month < kept_from
         ORDER BY c.through_id
         LIMIT most
    )
    DELETE FROM audit_chain c USING old WHERE c.team_id = old.team_id AND c.sequence = old.sequence;
    GET DIAGNOSTICS removed = ROW_COUNT;
    RETURN removed;
END
$$;

COMMENT ON FUNCTION remove_audit_anchors() IS
    'Removes blocks of dropped months that no kept block follows, 10,000 at most, and returns how many; the last one of each team stays as its anchor';

REVOKE EXECUTE ON FUNCTION remove_audit_anchors() FROM PUBLIC;

-- What the shapes have in common: 1,000 workflows; team 7 has ten of them.
CREATE TABLE workflows (id BIGINT PRIMARY KEY, team_id BIGINT NOT NULL);
INSERT INTO workflows SELECT n, CASE WHEN n % 100 = 7 THEN 7 ELSE n % 6 END FROM generate_series(1, 1000) n;

-- A uuid v7 of this time, as the app makes them.
CREATE FUNCTION v7(at timestamptz) RETURNS uuid LANGUAGE sql VOLATILE AS $$
    SELECT (lpad(to_hex((EXTRACT(EPOCH FROM at) * 1000)::bigint), 12, '0')
            || '7' || substr(md5(random()::text), 1, 3) || '8' || substr(md5(random()::text), 1, 15))::uuid
$$;

-- The least uuid v7 of this time: a bound of a partition.
CREATE FUNCTION v7_floor(at timestamptz) RETURNS uuid LANGUAGE sql IMMUTABLE AS $$
    SELECT (lpad(to_hex((EXTRACT(EPOCH FROM at) * 1000)::bigint), 12, '0') || repeat('0', 20))::uuid
$$;

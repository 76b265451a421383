-- Long results apart from the history, so that lists and statistics do not read them.
CREATE TABLE run_results (
    run_id UUID  NOT NULL CONSTRAINT run_results_pkey PRIMARY KEY,
    result JSONB NOT NULL
) PARTITION BY RANGE (run_id);

COMMENT ON TABLE  run_results        IS 'Results longer than 1 KiB, by the day of their runs'' ids';
COMMENT ON COLUMN run_results.run_id IS 'The run that has ended';
COMMENT ON COLUMN run_results.result IS 'What the action answered';

CREATE TABLE run_results_before (
    LIKE run_results INCLUDING COMMENTS
);
CREATE TABLE run_results_later (
    LIKE run_results INCLUDING COMMENTS
);
COMMENT ON TABLE  run_results_before IS 'Results of runs whose ids are older than all partitions by day; removed with their runs';
COMMENT ON TABLE  run_results_later  IS 'Results of runs of a day that has no partition yet';

DO $$
DECLARE
    first_day timestamptz := date_trunc('day', cronbox_now(), 'UTC') + INTERVAL '48 hours';
BEGIN
    INSERT INTO partition_bounds (parent, first_day, next_day) VALUES ('run_results', first_day, first_day);
    EXECUTE format('ALTER TABLE run_results ATTACH PARTITION run_results_before FOR VALUES FROM (MINVALUE) TO (%L)', uuid_v7_floor(first_day));
    EXECUTE format('ALTER TABLE run_results ATTACH PARTITION run_results_later FOR VALUES FROM (%L) TO (MAXVALUE)', uuid_v7_floor(first_day));
END
$$;

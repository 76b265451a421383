-- A signing secret is replaced with an overlap, in which both sign; and each receiver may have a secret of its own, derived from the team's.
ALTER TABLE teams
    ADD COLUMN previous_signing_secret TEXT NULL,
    ADD COLUMN previous_signing_until timestamptz NULL,
    ADD COLUMN signs_by_receiver BOOLEAN NOT NULL DEFAULT false,
    ADD COLUMN previous_signs_by_receiver BOOLEAN NOT NULL DEFAULT false;

COMMENT ON COLUMN teams.previous_signing_secret    IS 'The secret before the last rotation, which signs, too, until previous_signing_until; stored as signing_secret';
COMMENT ON COLUMN teams.previous_signing_until     IS 'When the overlap of the last rotation ends (business clock); NULL = there is none';
COMMENT ON COLUMN teams.signs_by_receiver          IS 'Whether a secret that is derived from signing_secret and the origin of the URL signs, and not signing_secret itself';
COMMENT ON COLUMN teams.previous_signs_by_receiver IS 'The same for previous_signing_secret';

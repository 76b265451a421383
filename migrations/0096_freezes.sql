-- A freeze stops the schedules of a team, or of all teams, for a time. It changes no workflow: each keeps its own state. A due time is frozen
-- if a freeze was in force at any instant from that time until its decision; it is then decided `skipped_paused`, with the freeze as the reason.
CREATE TABLE freezes (
    id          uuid        PRIMARY KEY,
    team_id     bigint      REFERENCES teams (id),
    reason      text        NOT NULL,
    starts_on   timestamptz NOT NULL,
    ends_on     timestamptz NOT NULL DEFAULT 'infinity',
    actor       text        NOT NULL,
    actor_name  text,
    created_on  timestamptz NOT NULL,
    lifted_by   text,
    lifted_on   timestamptz,
    CONSTRAINT freezes_span CHECK (ends_on >= starts_on),
    CONSTRAINT freezes_lifted CHECK ((lifted_by IS NULL) = (lifted_on IS NULL))
);

-- Each decision looks for the freezes that have not ended; those that have ended must cost nothing, however many they are.
CREATE INDEX idx_freezes_ends ON freezes (ends_on);
CREATE INDEX idx_freezes_team ON freezes (team_id, id);

COMMENT ON TABLE  freezes            IS 'Spans in which no schedule of a team, or of any team, runs';
COMMENT ON COLUMN freezes.id         IS 'UUID v7: later freezes have higher ones';
COMMENT ON COLUMN freezes.team_id    IS 'The team; NULL: all teams';
COMMENT ON COLUMN freezes.reason     IS 'Why, for people; the decisions have it';
COMMENT ON COLUMN freezes.starts_on  IS 'From when it is in force';
COMMENT ON COLUMN freezes.ends_on    IS 'Until when, exclusive; infinity: until a caller lifts it. Equal to starts_on: it was lifted before it began';
COMMENT ON COLUMN freezes.actor      IS 'Who requested it, as in the audit log';
COMMENT ON COLUMN freezes.actor_name IS 'The name of the key';
COMMENT ON COLUMN freezes.created_on IS 'When it was requested';
COMMENT ON COLUMN freezes.lifted_by  IS 'Who ended it early; NULL: no caller';
COMMENT ON COLUMN freezes.lifted_on  IS 'When it was ended early';
COMMENT ON INDEX  idx_freezes_ends   IS 'Decisions, claims and verification read it';
COMMENT ON INDEX  idx_freezes_team   IS 'The list of the freezes of a team';

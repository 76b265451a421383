-- Takes no lock that a write waits for.
ALTER TABLE runs VALIDATE CONSTRAINT runs_lease;

"""Measures the WAL of a fire by the product's own statements on its own tables: decision, claim, end, vacuum.

Needs a database `fire_statements` with all migrations of this repository on an otherwise idle PostgreSQL 15 or later with
`full_page_writes = off` and `autovacuum = off`, and psql with PG* variables that reach it. It removes what the tables contain.

    PGHOST=/tmp/socket PGUSER=postgres python3 tests/benches/tables/statements.py
"""

import datetime
import pathlib
import random
import re
import subprocess
import uuid

ROOT = pathlib.Path(__file__).parents[3]
FIRES, BATCH = 512, 64
INSTANCE = uuid.uuid4()
RESULT = '{"status": 200, "body": "ok"}'
# Days that have partitions of their own, from the day after tomorrow on.
DAY = datetime.datetime.now(datetime.UTC).replace(hour=0, minute=0, second=0, microsecond=0) + datetime.timedelta(days=3)
FILL = """
    DELETE FROM occurrences; DELETE FROM runs_live; TRUNCATE runs_ended; DELETE FROM decision_minutes; DELETE FROM run_end_minutes;
    DELETE FROM workflows; DELETE FROM teams;
    INSERT INTO teams (name, signing_secret, created_on) SELECT 'team ' || i, 'whsec_' || i, now() FROM generate_series(1, 5) i;
    INSERT INTO workflows (team_id, name, action, cron_schedule, timezone, revision, created_on, updated_on, schedule_activated_at)
    SELECT (SELECT min(id) FROM teams) + i % 5, i::text, '{"type": "log", "message": "x"}', '* * * * *', 'UTC', 1, now(), now(), now()
      FROM generate_series(1, 512) i;
"""
CLAIM = """
    UPDATE runs r SET state = 'running', attempt = attempt + 1, started_on = '{now}', handed_over_until = NULL, locked_by = '{instance}',
                      locked_at = cronbox_now(), lease_until = cronbox_now() + INTERVAL '120 s'
      FROM (SELECT id FROM runs WHERE state = 'accepted' FOR UPDATE SKIP LOCKED) AS due WHERE r.id = due.id AND r.state = 'accepted'
"""


def psql(sql: str) -> list[str]:
    done = subprocess.run(
        ["psql", "-XqAt", "-v", "ON_ERROR_STOP=1", "-d", "fire_statements"], input=sql, check=True, capture_output=True, text=True
    )
    return done.stdout.splitlines()


def statement(path: str, label: str) -> str:
    """The text of a statement in a file of the product, without sqlx's notes about types."""
    texts = re.findall(r'r#"(.*?)"#', (ROOT / path).read_text(), re.S)
    return re.sub(r' AS "(\w+)[^"]*"', r" AS \1", next(text for text in texts if f"-- {label}" in text))


def prepared() -> str:
    record = statement("app/ledger/src/invoke/record.rs", "accept a batch")
    return f"""
        PREPARE record(uuid[], uuid[], bigint[], timestamptz[], bigint[], text[], text[], int[], timestamptz[], timestamptz[], bigint[],
                       text[], text[], text[], uuid, float8) AS {record};
        PREPARE finish(uuid, uuid[], int[], text[], text[], text[], int[], timestamptz[]) AS
            {statement("app/executor/src/ends.rs", "finish runs")};
        PREPARE finish_one(uuid, uuid, int, text, jsonb, text, timestamptz, int) AS
            {statement("app/executor/src/claim.rs", "finish a run")};
    """


def array(values: list, kind: str) -> str:
    return "ARRAY[" + ", ".join("NULL" if value is None else f"'{value}'" for value in values) + f"]::{kind}[]"


def make_id(at: datetime.datetime) -> uuid.UUID:
    bits = int(at.timestamp() * 1000).to_bytes(6, "big") + random.randbytes(10)
    return uuid.UUID(bytes=bytes([*bits[:6], 0x70 | bits[6] & 15, bits[7], 0x80 | bits[8] & 63, *bits[9:]]))


def batch(workflows: list[list[str]], minute: int, is_started: bool, ends: int):
    """The statements of a batch of fires, each with its kind."""
    due = DAY + datetime.timedelta(minutes=minute)
    now, ended, size = due + datetime.timedelta(seconds=2), due + datetime.timedelta(seconds=3), len(workflows)
    ids, runs = [workflow for workflow, _ in workflows], [make_id(now) for _ in workflows]
    arrays = [
        (list(map(make_id, [now] * size)), "uuid"), (runs, "uuid"), (ids, "bigint"), ([due] * size, "timestamptz"),
        ([1] * size, "bigint"), ([f"{due:%Y-%m-%dT%H:%M:%SZ}"] * size, "text"), ([uuid.uuid4() for _ in runs], "text"),
        ([1] * size, "int"), ([now] * size, "timestamptz"), ([now] * size, "timestamptz"), ([team for _, team in workflows], "bigint"),
        (["fired"] * size, "text"), ([None] * size, "text"), (["running" if is_started else "accepted"] * size, "text"),
    ]
    lease = f"'{INSTANCE}', 120" if is_started else "NULL, NULL"
    yield "lock", f"SELECT id FROM workflows WHERE id = ANY({array(ids, 'bigint')}) ORDER BY id FOR NO KEY UPDATE SKIP LOCKED"
    yield "decide", f"EXECUTE record({', '.join(array(*one) for one in arrays)}, {lease})"
    yield "commit", "COMMIT; BEGIN"
    if not is_started:
        yield "claim", CLAIM.format(now=now, instance=INSTANCE)
        yield "commit", "COMMIT; BEGIN"
    random.shuffle(runs)
    for some in (runs[nth : nth + ends] for nth in range(0, size, ends)):
        # One in twenty fails.
        states, n = ["failed" if random.random() < 0.05 else "succeeded" for _ in some], len(some)
        if n == 1:
            yield "end", f"EXECUTE finish_one('{some[0]}', '{INSTANCE}', 1, '{states[0]}', '{RESULT}', NULL, '{ended}', 0)"
        else:
            outcome = [([1] * n, "int"), (states, "text"), ([RESULT] * n, "text"), ([None] * n, "text"), ([0] * n, "int")]
            outcome = ", ".join(array(*one) for one in [(some, "uuid"), *outcome, ([ended] * n, "timestamptz")])
            yield "end", f"EXECUTE finish('{INSTANCE}', {outcome})"
        yield "commit", "COMMIT; BEGIN"


def wal_of(workflows: list[list[str]], minute: int, is_started: bool, ends: int) -> dict[str, float]:
    """Bytes of WAL of a fire by the kind of statement."""
    position = "SELECT 'at', pg_current_wal_insert_lsn() - '0/0'::pg_lsn"
    steps = [step for first in range(0, FIRES, BATCH) for step in batch(workflows[first : first + BATCH], minute, is_started, ends)]
    steps = [*steps, ("vacuum", "COMMIT; VACUUM runs_live")]
    script = f"{prepared()}; {position}; BEGIN; " + "".join(f"{sql};\n{position};\n" for _, sql in steps)
    at = [int(line.split("|")[1]) for line in psql(script) if line.startswith("at|")]
    written: dict[str, float] = {}
    for (kind, _), before, after in zip(steps, at[:-1], at[1:], strict=True):
        written[kind] = written.get(kind, 0) + (after - before) / FIRES
    return written


def main() -> None:
    psql(FILL)
    workflows = [line.split("|") for line in psql("SELECT id, team_id FROM workflows ORDER BY id")]
    # The first fires fill the pages of empty tables.
    cases = [("first", False, 1), ("claimed", False, 1), ("started", True, 1), ("started", True, 16), ("started", True, 64)]
    for minute, (name, is_started, ends) in enumerate(cases):
        written = wal_of(workflows, minute, is_started, ends)
        parts = ", ".join(f"{kind} {size:.0f}" for kind, size in written.items())
        print(f"{name}, {ends} ends a statement: {sum(written.values()):.0f} B a fire ({parts})")


if __name__ == "__main__":
    main()

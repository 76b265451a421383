"""Compares shapes of the tables of runs: WAL of a fire, share of HOT updates, and pages that the lists read.

Needs an otherwise idle PostgreSQL 15 or later with `full_page_writes = off` and `autovacuum = off`, and psql with PG* variables that reach
it. It makes and drops the database `table_shapes`. WAL, HOT shares and pages do not depend on the load of the machine.

    PGHOST=/tmp/socket PGUSER=postgres python3 tests/benches/tables/measure.py --fires 10240
"""

import argparse
import json
import pathlib
import subprocess

HERE = pathlib.Path(__file__).parent
# Name of the shape, its file, and whether its claims are HOT.
SHAPES = [
    ("today", "today.sql", 0),
    ("(a) queue and history", "queue_and_history.sql", 0),
    ("(a) with HOT claims", "queue_and_history.sql", 1),
    ("(b) one table", "one_table.sql", 0),
]
# The ended runs of a list are read where they are; `{0}` is the relation that has them in the order of their ids.
LISTS = {
    "team, newest first": "SELECT * FROM {0} WHERE team_id = 7 ORDER BY id DESC LIMIT 50",
    "team, failed": "SELECT * FROM {0} WHERE team_id = 7 AND state = 'failed' ORDER BY id DESC LIMIT 50",
    "workflow": "SELECT * FROM {0} WHERE workflow_id = 7 ORDER BY id DESC LIMIT 50",
    "team, an hour": "SELECT * FROM {0} WHERE team_id = 7 AND id >= v7_floor('2026-01-02 01:00Z')"
                     " AND id < v7_floor('2026-01-02 02:00Z') ORDER BY id DESC LIMIT 50",
    "one run": "SELECT * FROM {0} WHERE id = '{1}'",
}


def psql(sql: str, database: str = "table_shapes") -> str:
    done = subprocess.run(
        ["psql", "-XqAt", "-v", "ON_ERROR_STOP=1", "-d", database, "-c", sql], check=True, capture_output=True, text=True
    )
    return done.stdout.strip()


def create(file: str, hot_claims: int, days: int) -> None:
    psql("DROP DATABASE IF EXISTS table_shapes", "postgres")
    psql("CREATE DATABASE table_shapes", "postgres")
    files = [argument for name in ("common.sql", "columns.sql", file, "fires.sql") for argument in ("-f", str(HERE / name))]
    settings = ["-v", "ON_ERROR_STOP=1", "-v", f"days={days}", "-v", f"hot_claims={hot_claims}"]
    subprocess.run(["psql", "-Xq", "-d", "table_shapes", *settings, *files], check=True, stdout=subprocess.DEVNULL)


def wal_of(first: int, fires: int, beats: int) -> float:
    """Bytes of WAL of each fire, with the vacuum that follows 2,048 of them, as autovacuum would do it on a small table."""
    table = psql("SELECT coalesce(to_regclass('runs_live'), to_regclass('runs'))::text")
    before = psql("SELECT pg_current_wal_insert_lsn()")
    for begin in range(first, first + fires, 2048):
        psql(f"CALL fire({begin}, {min(2048, first + fires - begin)}, {beats})")
        psql(f"VACUUM {table}")
    return float(psql(f"SELECT pg_current_wal_insert_lsn() - '{before}'")) / fires


def hot_share() -> str:
    return psql(
        "SELECT round(100.0 * sum(n_tup_hot_upd) / nullif(sum(n_tup_upd), 0)) FROM pg_stat_user_tables WHERE relname LIKE 'runs%'"
    )


def pages(sql: str) -> int:
    """Pages that the second execution of a query uses."""
    psql(sql)
    plan = json.loads(psql(f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) {sql}"))[0]["Plan"]
    return plan["Shared Hit Blocks"] + plan["Shared Read Blocks"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--fires", type=int, default=10240)
    parser.add_argument("--days", type=int, default=90)
    arguments = parser.parse_args()
    if psql("SHOW full_page_writes", "postgres") != "off":
        raise SystemExit("full_page_writes must be off, because full-page images depend on the checkpoints")
    fires = arguments.fires // 2048 * 2048
    for name, file, hot_claims in SHAPES:
        create(file, hot_claims, arguments.days)
        wal = wal_of(0, fires, 0)
        hot = hot_share()
        psql("SELECT pg_stat_reset()")
        with_beats = wal_of(fires, 2048, 3)
        psql("VACUUM ANALYZE")
        relation = psql("SELECT coalesce(to_regclass('runs_ended'), to_regclass('runs'))::text")
        run = psql(f"SELECT id FROM {relation} LIMIT 1 OFFSET 100")
        lists = {case: pages(sql.format(relation, run)) for case, sql in LISTS.items()}
        print(f"{name}: {wal:.0f} B a fire, {hot} % HOT; {with_beats:.0f} B with 3 renewals, {hot_share()} % HOT; pages {lists}")
    psql("DROP DATABASE table_shapes", "postgres")


if __name__ == "__main__":
    main()

#!/bin/sh
# Prints the folder of Postgres' programs, version 15 or later, or nothing if there is none. Checks the same places as
# local/stack/src/postgres/binaries.rs.
for dir in $(dirname "$(command -v postgres 2>/dev/null || echo /nowhere/x)") \
    "$(pg_config --bindir 2>/dev/null || true)" \
    $(ls -d /usr/lib/postgresql/*/bin /opt/homebrew/opt/postgresql@*/bin /usr/local/opt/postgresql@*/bin \
        /opt/homebrew/bin /usr/local/bin /usr/pgsql-*/bin /usr/bin 2>/dev/null | sort -rV); do
    if [ -x "$dir/postgres" ] && [ -x "$dir/initdb" ] && [ -x "$dir/pg_ctl" ] && [ -x "$dir/psql" ]; then
        version=$("$dir/postgres" --version | sed 's/[^0-9]*\([0-9]*\).*/\1/')
        if [ "$version" -ge 15 ]; then
            echo "$dir"
            exit 0
        fi
    fi
done

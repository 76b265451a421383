#!/bin/sh
# Prints a folder in memory that has room for the databases of tests, or nothing. They take up to 5 GiB. A new database is
# a thousand new files, which costs less processor time there than on a disk.
set -eu
room=$(df -Pk /dev/shm 2>/dev/null | awk 'NR == 2 && $1 == "tmpfs" { print $4 }')
free=$(awk '$1 == "MemAvailable:" { print $2 }' /proc/meminfo 2>/dev/null || true)
if [ "${room:-0}" -ge 8388608 ] && [ "${free:-0}" -ge 12582912 ] && [ -w /dev/shm ]; then
    echo /dev/shm
fi

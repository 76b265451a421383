#!/bin/sh
# Checks the rules for Prometheus with promtool, and runs their unit tests.
set -eu
cd "$(dirname "$0")/../deploy/prometheus"

command -v promtool >/dev/null || {
    echo "prometheus: install promtool (Debian's package prometheus), then run this again" >&2
    exit 1
}
promtool check rules cronbox.rules.yml
promtool test rules tests/*.yml

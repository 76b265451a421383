#!/bin/sh
# Checks deploy/: the compose file as podman reads it, and the units as systemd reads them. $1 is the target folder.
set -eu
mkdir -p "$1"
target=$(cd "$1" && pwd)
root=$(cd "$(dirname "$0")/.." && pwd)
work="$target/deploy-files"

sh "$root/scripts/venv.sh" "$target/venv-deploy" "$root/scripts/deploy.txt"
rm -rf "$work"
mkdir -p "$work/bin"
cp "$root/deploy/compose.yaml" "$root/deploy/compose.env.example" "$root"/deploy/systemd/*.service "$work"
# podman-compose asks for podman's version before it reads the file, and for nothing else.
printf '#!/bin/sh\necho podman version 4.3.1\n' >"$work/bin/podman"
chmod +x "$work/bin/podman"
cd "$work"
# Values in place of the empty ones.
sed 's/=$/=0123456789abcdefghij/' compose.env.example >compose.env
PATH="$work/bin:$PATH" "$target/venv-deploy/bin/podman-compose" --env-file compose.env -f compose.yaml config >compose.out
# A value that no service gets has no effect, and no port of a network that is internal is published.
"$target/venv-deploy/bin/python3" - <<'PYTHON'
import pathlib
import re
import sys

import yaml

text = pathlib.Path("compose.yaml").read_text(encoding="utf-8")
example = pathlib.Path("compose.env.example").read_text(encoding="utf-8")
comments, code = ("".join(line for line in text.splitlines(True) if line.lstrip().startswith("#") == is_comment) for is_comment in (True, False))
named, used = set(re.findall(r"^([A-Z_]+)=", example, re.MULTILINE)), set(re.findall(r"\$\{([A-Z_]+)", code))
if named != used:
    sys.exit(f"deploy: only one of compose.yaml and compose.env.example has {', '.join(sorted(named ^ used))}")
unset = {name for name in re.findall(r"CRONBOX_[A-Z_]+", comments) if name not in code}
if unset:
    sys.exit(f"deploy: comments of compose.yaml name {', '.join(sorted(unset))}, which no service gets")
compose = yaml.safe_load(text)
for name, service in compose["services"].items():
    networks = [compose["networks"][network] or {} for network in service["networks"]]
    if service.get("ports") and all(network.get("internal") for network in networks):
        sys.exit(f"deploy: no port of {name} is published, because its networks are internal")
if not any(port.endswith(":5432") for port in compose["services"]["database"].get("ports", [])):
    sys.exit("deploy: the publisher does not reach the database: publish its port")
PYTHON
for service in database migrate scheduler-key admin-key app; do
    grep -q "^  $service:" compose.out || {
        echo "deploy: compose.yaml has no service $service" >&2
        exit 1
    }
done

# A database or a name server that is late by minutes must not keep a unit from starting.
for unit in cronbox-migrate cronbox-app; do
    for line in 'StartLimitIntervalSec=0' 'Restart=\(always\|on-failure\)'; do
        grep -q "^$line\$" "$unit.service" || {
            echo "deploy: $unit.service has no line $line" >&2
            exit 1
        }
    done
done
if grep -q '^Requires=.*cronbox-migrate' cronbox-app.service; then
    echo "deploy: cronbox-app.service requires cronbox-migrate.service, so one failed migration keeps it from starting" >&2
    exit 1
fi
# The app wants it at each start, and systemd starts no unit that is active: a new program would wait for its schema for ever.
if grep -q '^RemainAfterExit=yes' cronbox-migrate.service; then
    echo "deploy: cronbox-migrate.service remains active after its exit, so a restart of the app does not migrate the database" >&2
    exit 1
fi

if command -v systemd-analyze >/dev/null; then
    # systemd-analyze wants the program to be there.
    sed -i 's|/usr/bin/cronbox-app|/bin/true|' ./*.service
    systemd-analyze verify ./cronbox-migrate.service ./cronbox-app.service
else
    echo "deploy: UNITS NOT VERIFIED, because systemd-analyze is not installed" >&2
fi
echo "deploy: compose.yaml and the units are well-formed"

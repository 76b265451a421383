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
for service in database migrate scheduler-key admin-key app; do
    grep -q "^  $service:" compose.out || {
        echo "deploy: compose.yaml has no service $service" >&2
        exit 1
    }
done

if command -v systemd-analyze >/dev/null; then
    # systemd-analyze wants the program to be there.
    sed -i 's|/usr/bin/cronbox-app|/bin/true|' ./*.service
    systemd-analyze verify ./cronbox-migrate.service ./cronbox-app.service
else
    echo "deploy: UNITS NOT VERIFIED, because systemd-analyze is not installed" >&2
fi
echo "deploy: compose.yaml and the units are well-formed"

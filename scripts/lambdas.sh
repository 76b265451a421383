#!/bin/sh
# Builds publisher.zip, runner.zip and notifier.zip in the folder lambdas/$2 of the target folder $1, for Lambda on the architecture $2.
set -eu
mkdir -p "$1"
# Absolute, because the build scripts that call zig run in other folders.
target=$(cd "$1" && pwd)
arch=$2
here=$(dirname "$0")
venv="$target/venv-lambdas"

case $arch in
x86_64) triple=x86_64-unknown-linux-gnu ;;
arm64) triple=aarch64-unknown-linux-gnu ;;
*)
    echo "lambdas: ARCH is x86_64 or arm64, not $arch" >&2
    exit 1
    ;;
esac
if command -v rustup >/dev/null; then
    rustup target list --installed | grep -qx "$triple" || rustup target add "$triple"
fi
sh "$here/venv.sh" "$venv" "$here/lambdas.txt"
zips="$target/lambdas/$arch"
mkdir -p "$zips"
sh "$here/rds-ca.sh" "$zips/rds-ca.pem"
# Amazon Linux 2023 has glibc 2.34; most build machines have a newer one.
PATH="$venv/bin:$PATH" CARGO_TARGET_DIR="$target" \
    cargo lambda build --locked --profile lambda -p publisher --bin cronbox-publisher -p runner --bin cronbox-runner \
    -p notifier --bin cronbox-notifier --target "$triple.2.34"
"$venv/bin/python" "$here/zips.py" --arch "$arch" --floor-mb 6 --goal-mb 3.5 --include "$zips/rds-ca.pem" \
    "$target/lambda/cronbox-publisher/bootstrap" "$zips/publisher.zip"
"$venv/bin/python" "$here/zips.py" --arch "$arch" --floor-mb 6 --goal-mb 1.2 \
    "$target/lambda/cronbox-runner/bootstrap" "$zips/runner.zip"
"$venv/bin/python" "$here/zips.py" --arch "$arch" --floor-mb 6 --goal-mb 3.5 --include "$zips/rds-ca.pem" \
    "$target/lambda/cronbox-notifier/bootstrap" "$zips/notifier.zip"
# The SBOM of each zip, and of the app and the CLI: which crates are linked into it.
for name in publisher runner notifier app cli; do
    "$venv/bin/python" "$here/sbom.py" "$name" "$zips/$name.cdx.json" --target "$triple"
done
# What was built of what: SHA256SUMS and provenance.json.
PATH="$venv/bin:$PATH" "$venv/bin/python" "$here/provenance.py" "$zips" --target "$triple"

#!/bin/sh
# Builds image/$2/cronbox.tar in the target folder $1, an OCI image of the app and the CLI for this machine's architecture $2,
# with the profile $3 (release, or dev for a test of the image).
set -eu
mkdir -p "$1"
target=$(cd "$1" && pwd)
arch=$2
here=$(dirname "$0")

case $(uname -m) in
x86_64) native=x86_64 ;;
aarch64) native=arm64 ;;
*) native= ;;
esac
if [ "$arch" != "$native" ]; then
    echo "image: this machine is $(uname -m), so build the image for $arch on a machine of that architecture" >&2
    exit 1
fi
case $3 in
release) profile=--release programs="$target/release" ;;
dev) profile='' programs="$target/debug" ;;
*)
    echo "image: PROFILE is release or dev, not $3" >&2
    exit 1
    ;;
esac
out="$target/image/$arch"
mkdir -p "$out"
# shellcheck disable=SC2086
CARGO_TARGET_DIR="$target" cargo build --locked $profile --workspace --bin cronbox-app --bin cronbox
sh "$here/rds-ca.sh" "$out/rds-ca.pem"
triple=$(rustc -vV | sed -n 's/^host: //p')
for name in app cli; do
    python3 "$here/sbom.py" "$name" "$out/$name.cdx.json" --target "$triple"
done
python3 "$here/image.py" --arch "$arch" --programs "$programs" --rds-ca "$out/rds-ca.pem" --boms "$out" --out "$out" \
    --version "$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -1)"

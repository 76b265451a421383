#!/bin/sh
# Validates docs/openapi.json and docs/openapi-3.0.json, and makes the packages of clients/ in the target folder $1. The sources are
# copied, so that nothing is written into the repository.
set -eu
mkdir -p "$1"
target=$(cd "$1" && pwd)
cd "$(dirname "$0")/.."
venv="$target/venv-clients"
sh scripts/venv.sh "$venv" scripts/clients.txt
"$venv/bin/openapi-spec-validator" docs/openapi.json docs/openapi-3.0.json

rm -rf "$target/clients/python" "$target/clients/typescript"
mkdir -p "$target/clients"
cp -R clients/python clients/typescript "$target/clients"

python="$target/clients/python"
"$venv/bin/openapi-python-client" generate --path docs/openapi.json --config "$python/config.yaml" --meta none \
    --output-path "$python/cronbox_client" >"$python/generator.log" 2>&1
# Three answers are no JSON, and have no function in the package: the exports of the audit log and of a team, and the metrics.
if [ "$(grep -c '^WARNING' "$python/generator.log")" != 3 ]; then
    cat "$python/generator.log" >&2
    echo "clients: the generator left something out" >&2
    exit 1
fi
touch "$python/cronbox_client/py.typed"

if command -v npm >/dev/null; then
    cp docs/openapi.json docs/openapi-3.0.json "$target/clients/typescript"
    cd "$target/clients/typescript"
    npm ci --loglevel=error --ignore-scripts --no-audit --no-fund >/dev/null
    npm run --silent lint
    npm run --silent generate >/dev/null
    npm run --silent build
else
    echo "clients: npm is not installed: the TypeScript client is SKIPPED" >&2
fi

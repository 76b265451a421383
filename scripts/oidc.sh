#!/bin/sh
# Installs npm's oidc-provider, which knows the device flow, into the target folder $1. Without npm that story is skipped.
set -eu
cd "$(dirname "$0")/.."
copy="$1/oidc-device"
command -v npm >/dev/null || { echo "oidc: npm is not installed: the device flow is SKIPPED" >&2; exit 0; }
mkdir -p "$copy"
cp tests/oidc/device/package.json tests/oidc/device/package-lock.json tests/oidc/device/provider.mjs "$copy"
cd "$copy"
# It runs none of the packages' scripts.
npm ci --loglevel=error --ignore-scripts --no-audit --no-fund >/dev/null

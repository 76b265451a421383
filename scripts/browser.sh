#!/bin/sh
# Installs Chromium if it is missing and Debian has it. Without it the attack "docs in a browser" says that it is skipped.
set -eu
here=$(dirname "$0")
for browser in chromium chromium-browser google-chrome; do
    [ ! -x "/usr/bin/$browser" ] || exit 0
done
if ! command -v apt-get >/dev/null || ! sh "$here/debian.sh" chromium; then
    echo "browser: Chromium is not installed: the page of the documentation is checked in no browser" >&2
fi

#!/bin/sh
# Installs the named Debian packages, as root or with sudo.
set -eu

as_root() {
    if [ "$(id -u)" = 0 ]; then "$@"; else sudo "$@"; fi
}

# A mirror may fail for a moment, and a fresh machine may install its own updates, which locks dpkg.
patience='-o Acquire::Retries=10 -o DPkg::Lock::Timeout=600'
# shellcheck disable=SC2086 # several words
as_root apt-get $patience update -q
# shellcheck disable=SC2086
as_root env DEBIAN_FRONTEND=noninteractive apt-get $patience install -y -q --no-install-recommends "$@"

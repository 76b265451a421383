#!/bin/sh
# Checks what no compiler reads: typing errors, words, and the workflows and forms of .github. Target folder $1.
set -eu
mkdir -p "$1"
target=$(cd "$1" && pwd)
here=$(dirname "$0")
cd "$here/.."

sh scripts/venv.sh "$target/venv-lint" scripts/lint.txt
"$target/venv-lint/bin/typos"
python3 scripts/words.py --test
python3 scripts/words.py
"$target/venv-lint/bin/check-jsonschema" --quiet --builtin-schema vendor.github-workflows .github/workflows/*.yml
"$target/venv-lint/bin/check-jsonschema" --quiet --builtin-schema vendor.github-issue-config .github/ISSUE_TEMPLATE/config.yml
"$target/venv-lint/bin/check-jsonschema" --quiet --builtin-schema vendor.github-issue-forms \
    .github/ISSUE_TEMPLATE/bug.yml .github/ISSUE_TEMPLATE/feature.yml

# actionlint reads the expressions and shell scripts of the workflows, too.
reaches_github() {
    python3 -c 'import urllib.request; urllib.request.urlopen("https://github.com", timeout=10)' 2>/dev/null
}
if [ -x "$target/venv-actionlint/bin/actionlint" ] || reaches_github; then
    sh scripts/venv.sh "$target/venv-actionlint" scripts/actionlint.txt
    "$target/venv-actionlint/bin/actionlint"
else
    echo "lint: actionlint is skipped, because its program is on GitHub, which this machine does not reach" >&2
fi

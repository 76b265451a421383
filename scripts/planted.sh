#!/bin/sh
# Plants one error after another in a copy of the sources. The attack that a patch names must report it, for the reason that
# the patch names. $1: the target folder with a build of these sources; further arguments are the patches, for example
# no-team-check (default: all). With --check as the second argument, it only says whether all patches apply.
#
# The copy and its build are folders of their own in $1. Nothing in $1/debug changes, so that no program with a planted error
# is left there.
set -eu
cd "$(dirname "$0")/.."
if [ "${2:-}" = --check ]; then
    for file in tests/security/mutants/*.patch; do
        git apply --check "$file"
    done
    exit
fi
mkdir -p "$1"
target=$(cd "$1" && pwd)
shift
only=$*
copy=$target/planted/sources
build=$target/planted/build
logs=$target/planted/logs
rm -rf "$copy" "$build" "$logs"
mkdir -p "$copy" "$build/debug" "$logs"

# With their dates, so that only what a patch changes is compiled again.
git ls-files -z --cached --others --exclude-standard | tar --null -T - -cf - | tar -xf - -C "$copy"

# Compilers and linkers replace a library or a program, so that links to those of $1 are safe. Other files are rewritten in
# place, so these are copied. If the machine cannot link, everything is compiled.
if cp -a "$target/debug/.fingerprint" "$target/debug/build" "$build/debug/" 2>/dev/null &&
    cp -al "$target/debug/deps" "$build/debug/" 2>/dev/null; then
    find "$target/debug/deps" -name '*.d' -exec cp -a --remove-destination -t "$build/debug/deps" {} +
else
    rm -rf "$build"
fi
export CARGO_TARGET_DIR="$build" CARGO_INCREMENTAL=0

failures=0
caught=0
fail() {
    echo "planted: $1" >&2
    failures=$((failures + 1))
}

# Whether the attack $2 reported something in the log $1 for the reason $3.
reports() {
    grep -q "^$2 .* GOT THROUGH\$" "$1" && sed -n "/^$2: [0-9]* got through\$/,/^\$/p" "$1" | grep -qE "^  $3"
}

plant() {
    name=$(basename "$1" .patch)
    attack=$(sed -n 's/^caught by: //p' "$1")
    reason=$(sed -n 's/^because: //p' "$1")
    log=$logs/$name.log
    if [ -z "$attack" ] || [ -z "$reason" ]; then
        fail "$name: the patch names no attack or no reason"
        return
    fi
    if ! patch --batch --dry-run -d "$copy" -p1 <"$1" >"$log" 2>&1; then
        fail "$name does not apply any more: adapt the patch: $log"
        return
    fi
    patch --batch -d "$copy" -p1 <"$1" >>"$log" 2>&1
    if ! (cd "$copy" && cargo build --workspace --bin cronbox-app) >>"$log" 2>&1; then
        fail "$name does not compile: $log"
    elif (cd "$copy" && sh scripts/security.sh ci --only "$attack") >>"$log" 2>&1; then
        if grep -q "SKIPPED" "$log"; then
            fail "$name: this machine skips the attack $attack, so that nothing is shown: $log"
        else
            fail "$name was NOT caught by the attack $attack: $log"
        fi
    elif reports "$log" "$attack" "$reason"; then
        caught=$((caught + 1))
        echo "planted: $name was caught: $(sed -n "s/^\($attack: [0-9]* tries, [0-9]* through, .*\)/\1/p" "$log")"
    else
        fail "$name: the attack $attack failed for another reason: $log"
    fi
    # The dates of the files change, so that the next build compiles them again.
    patch --batch --reverse -d "$copy" -p1 <"$1" >>"$log" 2>&1
}

for file in tests/security/mutants/*.patch; do
    case " ${only:-$(basename "$file" .patch)} " in
        *" $(basename "$file" .patch) "*) plant "$file" ;;
    esac
done
rm -rf "$copy" "$build"
echo "planted: $caught caught, $failures failed"
[ "$failures" = 0 ] && [ "$caught" -gt 0 ]

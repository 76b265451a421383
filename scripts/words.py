"""Refuses the words that are never right in this project, and counts those that are seldom right.

A line that is refused is printed as `file:line: word`, with what to write instead. Names are read word by word, too:
`by_hand` and `ByHand` are "by hand". The words that are only counted are right in some sentences, so they are judged
by people; the goal is less than one in 10,000 words.

    python3 scripts/words.py            checks the files that git knows, and those that it does not ignore
    python3 scripts/words.py --list W   prints each place of the counted word W
    python3 scripts/words.py --test     checks this script
"""

import argparse
import collections
import pathlib
import re
import subprocess
import sys

# Each word, as a pattern over lower-case words with one space between them, and what to write instead.
REFUSED = {
    r"ow(?:e|ed|es|ing)": "due",
    r"unrun": "not run, skipped",
    r"nobodys?": "name the actor: no instance, no caller",
    r"somebodys?": "name the actor: a caller, another instance",
    r"whoever": "name the actor, or: the caller that",
    r"whom": "name the actor",
    r"sharers?": "publishers",
    r"ma(?:de|ke|kes|king) up for": "deferred",
    r"by hand": "manual, manually",
    r"how manieth": "the number of",
    r"living keys?": "active key",
}
# The other words of the left column of the project's table of terms. Some sentences need them, so they are counted. A
# word that is right in another sense is counted with the words that make it the wrong one.
COUNTED = {
    "meant": r"meant",
    "wish": r"wish(?:es|ed)?",
    "asked": r"asked",
    "begun": r"begun",
    "stands": r"stands?|standing",
    "hold": r"holds?|held|holding",
    "look": r"looks?|looked|looking",
    "work": r"at work|work(?:s|ed|ing)? (?:off|on|through)",
    "deed": r"deeds?",
    "plain": r"(?:is|not) plain|plain (?:fires?|path)",
    "group": r"groups? of (?:fires?|runs?|messages?)|fire groups?|together in a group",
    "poke": r"pokes?|poked",
    "nudge": r"nudges?|nudged",
    "tell": r"tells?|told",
    "hear": r"hears?|heard",
    "word": r"(?:no|a|few|last|first) words?",
    "healing": r"healing",
    "weather": r"weather",
    "letter": r"letters?",
    "levels": r"levels",
    "weaker": r"weaker",
    "give up for good": r"g(?:ive|ives|iven|ave) up for good",
    "in health": r"in health",
    "judge": r"judges?|judged",
    "alone": r"alone",
    "whole": r"(?:is|are|came|comes|made|read|replaces|shown) whole",
}
# Terms that are not counted: of AWS, Postgres and this project. A restored database is held until its ledger is accepted.
TERMS = re.compile(
    r"log levels|dead letters?|(?:to|\d|lower case|of \d*|few) letters|stand ins?"
    r"|(?:ledger|database|databases|cronbox|admission|ending|answer|read|release|until|log|world) (?:hold|held)"
    r"|(?:hold|held) (?:on|reason|secs|start|log|clone|if ahead|database|databases)|(?:is|are|metric|not|json|line|gauges|publisher|figure|was) held|must hold|(?:a|as|none) hold|hold the database"
)

# A migration that has been applied is never edited; 0040 restates the comments of these.
LAST_APPLIED = 38
# What others wrote, what a program wrote from the sources, random text, and this list.
NOT_OURS = re.compile(
    r"LICENSE$|CODE_OF_CONDUCT\.md$|\.sqlx/|.*fuzz/corpus/|.*/data/|scripts/words\.py$|.*(?:\.lock|\.zip|\.png|package-lock\.json)$"
)
# What keeps its words: `owed` is the older name of the field `due` of `GET /verify`, `not_owed` one of its kinds of
# difference; the sentences are reasons of 0.1, which answers still have; `nobody` is a Unix user.
KEPT = re.compile(
    r'\bnot_owed\b|\bNotOwed\b|(?<=["`])owed(?=["`\\])|\bowed(?=: )'
    r"|nobody asked in time|a later time has run or was owed(?=, and the workflow)"
    r'|(?<=["`])nobody(?=["`])|\bid -u nobody\b'
)
MARKER = re.compile(r"^\s*(?://[/!]?|--|#+|\*|>)?\s*")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--list", metavar="WORD", help="print each place of this counted word")
    parser.add_argument("--test", action="store_true", help="check this script")
    arguments = parser.parse_args()
    if arguments.test:
        test()
        return
    found, counts, words = [], collections.Counter(), 0
    for path in tracked():
        try:
            text = pathlib.Path(path).read_text(encoding="utf-8")
        except (UnicodeDecodeError, FileNotFoundError, IsADirectoryError):
            continue
        found += [(path, 0, *word) for word in refused([path])]
        found += [(path, *word) for word in refused_lines(path, text)]
        counts.update(counted(text))
        words += spaced(text).count(" ") + 1
        for number, line in enumerate(text.splitlines() if arguments.list else [], 1):
            if arguments.list in counted(line):
                print(f"{path}:{number}: {line.strip()}")
    if arguments.list:
        return
    for path, line, word, instead in found:
        place = f"{path}:{line}" if line else f"{path}: the file's name"
        print(f"{place}: {word} (write: {instead})", file=sys.stderr)
    print(f"words: {words}; in 10,000 of them (goal: each below 1):")
    print(", ".join(f"{word} {number * 10_000 / words:.1f}" for word, number in counts.most_common()))
    if found:
        sys.exit(f"{len(found)} words are refused; CONTRIBUTING.md says why")


def tracked():
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
    paths = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout.split("\0")
    return [path for path in sorted(set(paths) - {""}) if not is_exempt(path)]


def is_exempt(path):
    migration = re.match(r"migrations/(\d+)_", path)
    return bool(NOT_OURS.match(path)) or bool(migration and int(migration[1]) <= LAST_APPLIED)


def refused_lines(path, text):
    """Line number, word and remedy of each refused word. A phrase may end on the next line."""
    lines = [without_kept_words(path, line) for line in text.splitlines()]
    for number, (line, after) in enumerate(zip(lines, lines[1:] + [""]), 1):
        for word, instead in refused([line, after]):
            yield number, word, instead


def refused(lines):
    """The refused words that begin in the first of these lines."""
    first = spaced(lines[0])
    rest = " ".join(spaced(MARKER.sub("", line)) for line in lines[1:])
    for found in ANY_REFUSED.finditer(f"{first} {rest}"):
        if found.start() < len(first):
            yield found[0], next(instead for word, instead in REFUSED.items() if re.fullmatch(word, found[0]))


def without_kept_words(path, line):
    line = KEPT.sub("", line)
    # The changelog names what was renamed.
    return re.sub(r"`[^`]*`", "", line) if path == "CHANGELOG.md" else line


def counted(text):
    """The counted words of a text, each by its name in the table."""
    for found in ANY_COUNTED.finditer(TERMS.sub("", spaced(text))):
        yield next(word for word, pattern in COUNTED.items() if re.fullmatch(pattern, found[0]))


def spaced(text):
    """Lower-case words with one space between them; a name is as many words as it has parts."""
    text = re.sub(r"\\[nt]", " ", text)
    text = re.sub(r"([a-z0-9])([A-Z])|([A-Z])(?=[A-Z][a-z])", r"\1\3 \2", text)
    return re.sub(r"[^a-z]+", " ", text.lower()).strip()


ANY_REFUSED = re.compile(rf"\b(?:{'|'.join(REFUSED)})\b")
ANY_COUNTED = re.compile(rf"\b(?:{'|'.join(COUNTED.values())})\b")


def test():
    def words(text, path="a.rs"):
        return [word for _, word, _ in refused_lines(path, text)]

    assert words("// Nobody knows, and somebody's owes") == ["nobody", "somebody", "owes"]
    assert words("struct ByHand; fn fire_by_hand(); const LIVING_KEY;") == ["by hand", "by hand", "living key"]
    assert words("/// This was started by\n/// hand.") == ["by hand"]
    assert words(r'"ran\nby hand"') == ["by hand"]
    assert words("struct NoBody; to_owned, Cow::Owned, allowed, SLOWEST") == []
    assert words('{"owed": 3, "kind": "not_owed"} // owed') == ["owed"]
    assert words("- `by_hand` is now `manual`", "CHANGELOG.md") == []
    assert words("- a run by hand", "CHANGELOG.md") == ["by hand"]
    assert is_exempt("migrations/0003_workflows.sql") and not is_exempt("migrations/0040_plain.sql")
    assert list(counted("work_mem, GROUP BY, dead letter, a letter, schedule group, a group of fires, it stands"))\
        == ["letter", "group", "stands"]
    assert list(counted("the ledger is held, cronbox_hold(), a row is kept; it holds a lock")) == ["hold"]
    print("scripts/words.py does what it says")


if __name__ == "__main__":
    main()

"""Prints 30 error messages, 30 log lines and 30 comments, chosen at random from the sources, for people to read.

None of them should need a second reading. The seed repeats a choice for the same sources.

    python3 scripts/sentences.py --seed 1
"""

import argparse
import pathlib
import random
import re
import subprocess

COUNT = 30
# One token: a comment, a string, a character, a raw string, or any other character.
TOKEN = re.compile(r'//[^\n]*|r(#*)".*?"\1|"(?:\\.|[^"\\])*"|\'(?:\\.|[^\'\\])\'|.', re.DOTALL)
ERROR = re.compile(r"\b(?:bail!|anyhow!|ensure!|context|Err|ok_or|ok_or_else|map_err|\w*Error::\w+|Error|#\[error)\($|#\[error\($")
LOG = re.compile(r"\btracing::(?:error|warn|info|debug)!\($")
# The mark at the beginning of each line of a comment, by the kind of file.
OTHER_COMMENT = {"sql": "--", "tf": "#", "sh": "#", "py": "#", "yml": "#", "toml": "#"}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, required=True, help="the same seed chooses the same sentences")
    dice = random.Random(parser.parse_args().seed)
    errors, logs, comments = sources()
    for title, found in [("error messages", errors), ("log lines", logs), ("comments", comments)]:
        print(f"\n{COUNT} of {len(found)} {title}\n")
        for path, line, text in sorted(dice.sample(found, min(COUNT, len(found)))):
            print(f"{path}:{line}: {text}")


def sources():
    """The error messages, log lines and comments of the product; of tests, migrations and the torture, none."""
    errors, logs, comments = [], [], []
    listed = subprocess.run(["git", "ls-files", "-z"], check=True, stdout=subprocess.PIPE, text=True).stdout
    for path in sorted(set(listed.split("\0")) - {""}):
        kind = path.rpartition(".")[2]
        if not re.search(r"(^|/)(tests|fuzz|migrations|data|\.sqlx)/", path) and kind in ["rs", *OTHER_COMMENT]:
            text = pathlib.Path(path).read_text(encoding="utf-8")
            if kind == "rs":
                text = text.split("#[cfg(test)]\nmod tests {")[0]
                comments += blocks(path, text, r"//[/!]?")
                errors += [(path, *message) for message in messages(text, ERROR)]
                logs += [(path, *message) for message in messages(text, LOG, with_fields=True)]
                comments += blocks(path, text, "--")
            else:
                comments += blocks(path, text, OTHER_COMMENT[kind])
    return sorted(set(errors)), sorted(set(logs)), sorted(set(comments))


def blocks(path, text, mark):
    """The comments of a file; consecutive lines are one."""
    block = re.compile(rf"^[ \t]*{mark} \S[^\n]*(?:\n[ \t]*{mark} [^\n]*)*", re.MULTILINE)
    for found in block.finditer(text):
        words = " ".join(re.sub(rf"^\s*{mark} ?", "", line) for line in found[0].splitlines())
        if words.count(" ") >= 3 and not words.startswith("# Errors"):
            yield path, text.count("\n", 0, found.start()) + 1, words


def messages(text, opening, with_fields=False):
    """The sentences between the parentheses that follow an opening, each with its line."""
    tokens = list(TOKEN.finditer(text))
    before, number = "", 0
    while number < len(tokens):
        token = tokens[number][0]
        before = (before + token)[-60:] if not token.startswith(("//", '"')) else before + " "
        if token == "(" and opening.search(before):
            end = closing(tokens, number)
            inside = [part[0] for part in tokens[number + 1:end]]
            line = text.count("\n", 0, tokens[number].start()) + 1
            if with_fields:
                yield line, " ".join("".join(part for part in inside if not part.startswith("//")).split())
            else:
                for part in inside:
                    if part.startswith('"') and part.count(" ") >= 2:
                        yield line, " ".join(re.sub(r"\\\n\s*", "", part[1:-1]).split())
            # What is inside is not read again: `Err(anyhow!(..))` is one message.
            number, before = end, ""
        number += 1


def closing(tokens, number):
    """The number of the token that closes the parenthesis at `number`."""
    depth = 0
    for end in range(number, len(tokens)):
        depth += {"(": 1, ")": -1}.get(tokens[end][0], 0)
        if depth == 0:
            return end
    return len(tokens) - 1


if __name__ == "__main__":
    main()

"""Writes what was built of what: SHA256SUMS, and provenance.json in the terms of in-toto and SLSA.

Neither has a time or a path, so that the same commit and the same tools give the same files.
"""

import argparse
import hashlib
import json
import pathlib
import subprocess

TYPE = "https://in-toto.io/Statement/v1"
PREDICATE = "https://slsa.dev/provenance/v1"
BUILD = "https://cronbox/make-lambdas/v1"
# What `make lambdas` writes; other files of the folder are inputs, or of an older build.
BUILT = ("*.zip", "*.cdx.json")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--target", required=True, help="the target triple")
    arguments = parser.parse_args()
    files = sorted(file for pattern in BUILT for file in arguments.folder.glob(pattern))
    digests = {file.name: digest(file) for file in files}
    sums = "".join(f"{sha256}  {name}\n" for name, sha256 in digests.items())
    (arguments.folder / "SHA256SUMS").write_text(sums, encoding="utf-8")
    text = json.dumps(statement(digests, arguments.target), indent=1) + "\n"
    (arguments.folder / "provenance.json").write_text(text, encoding="utf-8")


def digest(file):
    return hashlib.sha256(file.read_bytes()).hexdigest()


def statement(digests, target):
    return {
        "_type": TYPE,
        "subject": [{"name": name, "digest": {"sha256": sha256}} for name, sha256 in digests.items()],
        "predicateType": PREDICATE,
        "predicate": {
            "buildDefinition": {
                "buildType": BUILD,
                "externalParameters": {"target": target},
                "internalParameters": {"tools": tools(), "changed_files": changed_files()},
                "resolvedDependencies": [
                    {"name": "cronbox", "digest": commit()},
                    {"name": "Cargo.lock", "digest": {"sha256": digest(pathlib.Path("Cargo.lock"))}},
                    {"name": "rust-toolchain.toml", "digest": {"sha256": digest(pathlib.Path("rust-toolchain.toml"))}},
                ],
            },
            "runDetails": {"builder": {"id": BUILD}},
        },
    }


def tools():
    return {
        "rustc": said("rustc", "--version"),
        "cargo": said("cargo", "--version"),
        "cargo-lambda": said("cargo-lambda", "lambda", "--version"),
        "zig": said("python3", "-m", "ziglang", "version"),
    }


def commit():
    """The commit; nothing for sources without a repository, for example of an archive."""
    return {"gitCommit": said("git", "rev-parse", "HEAD")} if pathlib.Path(".git").exists() else {}


def changed_files():
    """Files that differ from the commit: none, or the commit does not say what was built."""
    lines = said("git", "status", "--porcelain", "--untracked-files=no").splitlines() if commit() else []
    return [line[3:] for line in lines]


def said(*command):
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    return done.stdout.rstrip("\n")


if __name__ == "__main__":
    main()

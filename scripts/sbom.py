"""Writes the crates that are linked into a program, from Cargo.lock, as CycloneDX JSON. The output is reproducible."""

import argparse
import json
import re
import subprocess


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("package")
    parser.add_argument("out")
    parser.add_argument("--target", required=True, help="the target triple; other platforms' crates are left out")
    arguments = parser.parse_args()
    crates = linked(arguments.package, arguments.target)
    with open("Cargo.lock", encoding="utf-8") as file:
        locked = re.findall(r'name = "(.+)"\nversion = "(.+)"\nsource = ".+"\nchecksum = "(.+)"', file.read())
    checksums = {(name, version): checksum for name, version, checksum in locked}
    with open(arguments.out, "w", encoding="utf-8") as file:
        json.dump(bill(arguments.package, crates, checksums), file, indent=1)
        file.write("\n")


def linked(package, target):
    """Name, version and licence of each linked crate, without macros, build scripts and test dependencies."""
    # Not `cargo metadata`: it does not resolve features for one program, so it lists crates that are not compiled.
    tree = ["cargo", "tree", "--locked", "--package", package, "--target", target, "--edges", "normal,no-proc-macro",
            "--prefix", "none", "--no-dedupe", "--format", "{p}|{l}"]
    lines = set(subprocess.run(tree, check=True, stdout=subprocess.PIPE, text=True).stdout.splitlines())
    for line in sorted(lines - {""}):
        crate, licence = line.split("|")
        name, version = crate.split()[:2]
        yield name, version.removeprefix("v"), licence


def bill(package, crates, checksums):
    components = [component(*crate, checksums) for crate in crates]
    program = next(component for component in components if component["name"] == package)
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {"component": program | {"type": "application"}},
        "components": [component for component in components if component is not program],
    }


def component(name, version, licence, checksums):
    checksum = checksums.get((name, version))
    return {
        "type": "library",
        "name": name,
        "version": version,
        "purl": f"pkg:cargo/{name}@{version}",
        # Some old crates write MIT/Apache-2.0.
        "licenses": [{"expression": licence.replace("/", " OR ")}] if licence else [],
        "hashes": [{"alg": "SHA-256", "content": checksum}] if checksum else [],
    }


if __name__ == "__main__":
    main()

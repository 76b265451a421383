"""Writes the bundled zone data from PyPI's tzdata, or checks that the bundle is its newest version.

The bundle is one file: lines of text, an empty line, then the TZif files of the `zone` lines in the same order.

    cronbox zones 1
    version 2026f
    zone Africa/Abidjan 130
    link Africa/Accra Africa/Abidjan
"""

import argparse
import pathlib
import subprocess
import sys
import tempfile
import zipfile

MAGIC = "cronbox zones 1"
# Neither of these is a place, and EventBridge has none of them.
LEFT_OUT = {"Factory", "localtime"}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", choices=["write", "check"])
    parser.add_argument("bundle", type=pathlib.Path)
    parser.add_argument("--version", help="of PyPI's tzdata, such as 2026.6; absent = the newest")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        wheel = download(arguments.version, folder)
        if arguments.command == "write":
            arguments.bundle.write_bytes(bundle(wheel))
            print(f"{arguments.bundle}: {version_of(arguments.bundle.read_bytes())}")
            return
        ours, newest = version_of(arguments.bundle.read_bytes()), version_of(bundle(wheel))
    if ours != newest:
        sys.exit(f"{arguments.bundle} is {ours}, PyPI has {newest}: run `make tzdata` and commit the file")
    print(f"{arguments.bundle} is {ours}, as PyPI's")


def download(version, folder):
    requirement = f"tzdata=={version}" if version else "tzdata"
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps",
               "--only-binary=:all:", "--dest", folder, requirement]
    subprocess.run(command, check=True)
    return zipfile.ZipFile(next(pathlib.Path(folder).glob("tzdata-*.whl")))


def bundle(wheel):
    def read(name):
        return wheel.read(f"tzdata/zoneinfo/{name}")

    source = read("tzdata.zi").decode().splitlines()
    version = source[0].removeprefix("# version ")
    links = dict(reversed(line.split()[1:3]) for line in source if line.startswith("L "))
    names = sorted(set(wheel.read("tzdata/zones").decode().split()) - LEFT_OUT)
    lines, files = [MAGIC, f"version {version}"], []
    for name in names:
        target = name
        while target in links:
            target = links[target]
        if target != name and read(target) == read(name):
            lines.append(f"link {name} {target}")
        else:
            lines.append(f"zone {name} {len(read(name))}")
            files.append(read(name))
    return "\n".join(lines).encode() + b"\n\n" + b"".join(files)


def version_of(bundle):
    return bundle.decode("latin-1").splitlines()[1].removeprefix("version ")


if __name__ == "__main__":
    main()

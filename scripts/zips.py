"""Packs a binary into a zip for Lambda, or reports why Amazon Linux 2023 could not start it."""

import argparse
import os
import sys
import zipfile

from elftools.elf.elffile import ELFFile

# The glibc version of Amazon Linux 2023.
GLIBC = (2, 34)
MACHINES = {"x86_64": "EM_X86_64", "arm64": "EM_AARCH64"}
LIBRARIES = {"libc.so.6", "libm.so.6", "libgcc_s.so.1", "libdl.so.2", "libpthread.so.0", "librt.so.1",
             "ld-linux-x86-64.so.2", "ld-linux-aarch64.so.1"}


def main():
    arguments = read()
    with open(arguments.binary, "rb") as file:
        faults = list(faults_of(ELFFile(file), arguments.arch))
    if not faults:
        pack(arguments.binary, arguments.include, arguments.zip)
        faults = list(too_large(arguments))
    for fault in faults:
        print(f"zips: {arguments.binary}: {fault}", file=sys.stderr)
    sys.exit(1 if faults else 0)


def read():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("binary")
    parser.add_argument("zip")
    parser.add_argument("--arch", choices=MACHINES, default="x86_64")
    parser.add_argument("--include", action="append", default=[], help="a file to put beside bootstrap")
    parser.add_argument("--floor-mb", type=float, default=6, help="a larger zip is a failure")
    parser.add_argument("--goal-mb", type=float, default=6, help="a larger zip is said to be one")
    return parser.parse_args()


def faults_of(elf, arch):
    """The reasons why Amazon Linux 2023 could not start this binary."""
    if elf["e_machine"] != MACHINES[arch]:
        yield f"built for {elf['e_machine']}, not for {arch}"
    dynamic = elf.get_section_by_name(".dynamic")
    needed = [tag.needed for tag in dynamic.iter_tags("DT_NEEDED")] if dynamic else []
    for library in sorted(set(needed) - LIBRARIES):
        yield f"needs {library}, which is not there"
    for version in sorted(set(glibc_versions(elf))):
        if version > GLIBC:
            yield f"asks for GLIBC_{'.'.join(map(str, version))}; there is {'.'.join(map(str, GLIBC))}"


def glibc_versions(elf):
    section = elf.get_section_by_name(".gnu.version_r")
    for _, symbols in section.iter_versions() if section else []:
        for symbol in symbols:
            if symbol.name.startswith("GLIBC_2."):
                yield tuple(map(int, symbol.name.removeprefix("GLIBC_").split(".")))


def pack(binary, beside, path):
    """The zip depends only on the files, so that Terraform sees a change only if a file has changed."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        add(archive, binary, "bootstrap", 0o755)
        for file in sorted(beside, key=os.path.basename):
            add(archive, file, os.path.basename(file), 0o644)


def add(archive, path, name, mode):
    entry = zipfile.ZipInfo(name, date_time=(1980, 1, 1, 0, 0, 0))
    entry.compress_type = zipfile.ZIP_DEFLATED
    # Unix, whatever packs it.
    entry.create_system = 3
    entry.external_attr = (0o100000 | mode) << 16
    with open(path, "rb") as file:
        archive.writestr(entry, file.read())


def too_large(arguments):
    megabytes = os.path.getsize(arguments.zip) / 1e6
    verdict = "within" if megabytes <= arguments.goal_mb else "above"
    print(f"{arguments.zip}: {megabytes:.2f} MB, {verdict} the goal of {arguments.goal_mb} MB")
    if megabytes > arguments.floor_mb:
        yield f"{arguments.zip} is larger than {arguments.floor_mb} MB"


if __name__ == "__main__":
    main()

"""Prints the size in MB of a Python Lambda's zip with the packages that the command line names, and their dependencies.

The peer of our zips' sizes, packed with the same settings.
"""

import importlib.metadata
import io
import re
import sys
import zipfile


def with_needs(names):
    found, open_names = {}, list(names)
    while open_names:
        name = open_names.pop()
        if name in found:
            continue
        found[name] = importlib.metadata.distribution(name)
        for need in found[name].requires or []:
            # Skips requirements with a marker: those of extras, and those for another Python.
            if ";" not in need:
                open_names.append(re.match(r"[A-Za-z0-9._-]+", need).group())
    return found.values()


packed = io.BytesIO()
with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
    for distribution in with_needs(sys.argv[1:]):
        for file in distribution.files:
            if file.suffix != ".pyc" and not str(file).startswith("..") and file.locate().is_file():
                archive.write(file.locate(), str(file))
print(len(packed.getvalue()) / 1e6)

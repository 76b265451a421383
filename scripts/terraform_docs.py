"""Writes the tables of requirements, inputs and outputs into the README.md of each Terraform module, in the form of terraform-docs.

`check` fails if a table differs from the files. It reads what `terraform fmt` has formatted, so a line tells a block's end.
"""

import pathlib
import re
import sys

MODULES = ["cron", "network", "notifier", "service"]
BEGIN, END = "<!-- BEGIN_TF_DOCS -->\n", "<!-- END_TF_DOCS -->\n"
ROOT = pathlib.Path(__file__).resolve().parent.parent


def main():
    if sys.argv[1:] not in (["write"], ["check"]):
        sys.exit("usage: terraform_docs.py write|check")
    differ = []
    for module in MODULES:
        folder = ROOT / "terraform/modules" / module
        readme = folder / "README.md"
        old = readme.read_text(encoding="utf-8")
        before, _, rest = old.partition(BEGIN)
        _, _, after = rest.partition(END)
        new = before + BEGIN + tables(folder) + END + after
        if sys.argv[1] == "write":
            readme.write_text(new, encoding="utf-8")
        elif new != old:
            differ.append(str(readme.relative_to(ROOT)))
    if differ:
        sys.exit(f"{', '.join(differ)}: run `python3 scripts/terraform_docs.py write`")


def tables(folder):
    versions = (folder / "versions.tf").read_text(encoding="utf-8")
    requirements = [
        ("terraform", re.search(r'required_version = "(.+)"', versions)[1]),
        ("aws", re.search(r'version = "(.+)"\n    }', versions)[1]),
    ]
    lines = ["## Requirements", "", "| Name | Version |", "|------|---------|"]
    lines += [f"| {anchor('requirement', name)} | {version} |" for name, version in requirements]
    lines += ["", "## Inputs", "", "| Name | Description | Type | Default | Required |",
              "|------|-------------|------|---------|:--------:|"]
    for name, block in sorted(blocks(folder, "variable")):
        default = argument(block, "default")
        is_required = "no" if default is not None else "yes"
        shown = "n/a" if default is None else code(default)
        lines.append(f"| {anchor('input', name)} | {text(block)} | {code(argument(block, 'type'))} | {shown} | {is_required} |")
    lines += ["", "## Outputs", "", "| Name | Description |", "|------|-------------|"]
    lines += [f"| {anchor('output', name)} | {text(block)} |" for name, block in sorted(blocks(folder, "output"))]
    return "\n".join(lines) + "\n"


def blocks(folder, kind):
    """Name and content of each block of this kind."""
    for file in sorted(folder.glob("*.tf")):
        content = file.read_text(encoding="utf-8")
        for match in re.finditer(rf'^{kind} "(\w+)" {{\n(.*?)^}}', content, re.MULTILINE | re.DOTALL):
            yield match[1], match[2]


def argument(block, name):
    """The value of an argument of a block: to the end of its line, or to the line that closes what it opens."""
    found = re.search(rf"^  {name} +=? *(.+?)$", block, re.MULTILINE)
    if not found:
        return None
    if not found[1].endswith(("(", "{", "[", "({")):
        return found[1]
    rest = block[found.start(1):]
    return rest[: re.search(r"^  [)}\]]+$", rest, re.MULTILINE).end()]


def text(block):
    return re.search(r'^  description +=? *"(.*)"$', block, re.MULTILINE)[1].replace('\\"', '"').replace("|", "\\|")


def code(value):
    """A value as terraform-docs shows it: several lines in <pre>, one in backquotes."""
    if "\n" not in value:
        return f"`{value}`"
    return "<pre>" + "<br/>".join(line.replace("|", "\\|") for line in value.split("\n")) + "</pre>"


def anchor(kind, name):
    escaped = name.replace("_", "\\_")
    return f'<a name="{kind}_{name}"></a> [{escaped}](#{kind}\\_{escaped})'


main()

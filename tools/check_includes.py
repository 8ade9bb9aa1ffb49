#!/usr/bin/python3
"""Checks the includes between the modules of src/.

Two rules: a module includes only modules before it in ORDER; and of another module it includes only public headers, which
tools/public_headers.txt lists. --update rewrites the list from the includes of the tree; review the difference, because each line that it adds makes a
header public. --list MODULE prints the public headers of one module, for its README.
"""
import pathlib
import re
import sys

# In the order of dependence; modules of one line do not include each other.
ORDER = ["core", "net", "store", "resource", "identity dns", "health", "catalog", "jobs", "gslb fleet", "drivers api", "app"]
# Modules outside the order, with what they may include.
OTHERS = {"importers": {"core", "dns"}, "cli": {"core", "net", "importers"}}

TREE = pathlib.Path(__file__).resolve().parent.parent
LIST = "tools/public_headers.txt"
INCLUDE = re.compile(r'#include "(([a-z0-9_]+)/[^"]+)"')


def ranks():
    return {module: rank for rank, level in enumerate(ORDER) for module in level.split()}


def may_include(module, other):
    if module in (other, "app"):
        return True
    if module in OTHERS:
        return other in OTHERS[module]
    rank = ranks()
    return other in rank and rank[other] < rank[module]


def includes(tree):
    """Yields (file, line number, module, header, module of the header) for each include of another module."""
    source = tree / "src"
    modules = {folder.name for folder in source.iterdir() if folder.is_dir()}
    for file in sorted(source.rglob("*")):
        if file.suffix not in (".h", ".cpp"):
            continue
        module = file.relative_to(source).parts[0]
        for number, line in enumerate(file.read_text().splitlines(), 1):
            found = INCLUDE.match(line)
            if found and found[2] in modules and found[2] != module:
                yield file.relative_to(tree), number, module, found[1], found[2]


def read_list(tree):
    file = tree / LIST
    return {line for line in file.read_text().splitlines() if line and not line.startswith("#")} if file.exists() else set()


def write_list(tree):
    headers = sorted({header for _, _, _, header, _ in includes(tree)})
    (tree / LIST).write_text("# The headers that other modules may include: written by tools/check_includes.py --update\n" + "".join(f"{header}\n" for header in headers))
    return headers


def problems(tree):
    """Every violation, one line each."""
    wrong, public = [], read_list(tree)
    known = set(ranks()) | set(OTHERS)
    folders = {folder.name for folder in (tree / "src").iterdir() if folder.is_dir()}
    wrong += [f"tools/check_includes.py: ORDER names {module}, and there is no folder src/{module}" for module in sorted(known - folders)]
    wrong += [f"src/{module}: the module has no place in ORDER of tools/check_includes.py" for module in sorted(folders - known)]
    wrong += [f"{LIST}: {header} does not exist; run tools/check_includes.py --update" for header in sorted(public) if not (tree / "src" / header).is_file()]
    for file, number, module, header, other in includes(tree):
        if module not in known:
            continue
        if not may_include(module, other):
            wrong.append(f"{file}:{number}: {module} may not include {other}")
        elif header not in public:
            wrong.append(f"{file}:{number}: {header} is private to {other}; include a header of {LIST}, or make it public with --update")
    return wrong


def main(arguments):
    if arguments == ["--update"]:
        print(f"{LIST} has {len(write_list(TREE))} headers")
        return 0
    if len(arguments) == 2 and arguments[0] == "--list":
        print("\n".join(sorted(header for header in read_list(TREE) if header.startswith(arguments[1] + "/"))))
        return 0
    if arguments:
        print(__doc__)
        return 2
    wrong = problems(TREE)
    print("\n".join(wrong) if wrong else "every include follows the order of modules and names a public header")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

#!/usr/bin/python3
"""Names every include that points the wrong way. The order below is the only place where it is written down as code."""
import pathlib, re, sys

ORDER = ["core", "net", "store", "resource", "identity dns", "health telemetry", "catalog", "jobs", "gslb fleet gluster kube", "drivers api", "app"]
RANK = {module: rank for rank, level in enumerate(ORDER) for module in level.split()}
SOURCE = pathlib.Path(__file__).resolve().parent.parent / "src"


def allowed(of: str, on: str) -> bool:
    if of == on or of == "app":
        return True
    if of == "cli":
        return on in ("core", "net")
    return on in RANK and of in RANK and RANK[on] < RANK[of]


wrong = []
for file in sorted(SOURCE.rglob("*")):
    if file.suffix not in (".h", ".cpp"):
        continue
    of = file.relative_to(SOURCE).parts[0]
    for number, line in enumerate(file.read_text().splitlines(), 1):
        found = re.match(r'#include "([a-z0-9_]+)/', line)
        if found and (SOURCE / found[1]).is_dir() and not allowed(of, found[1]):
            wrong.append(f"{file.relative_to(SOURCE.parent)}:{number}: {of} may not include {found[1]}")
print("\n".join(wrong) if wrong else "every include points the right way")
sys.exit(1 if wrong else 0)

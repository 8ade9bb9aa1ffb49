#!/usr/bin/python3
"""Checks that the files and symbols of the table in docs/where-is.md exist. A symbol `A::b` exists where each of its parts occurs in the file as a word."""
import pathlib
import re
import sys

TREE = pathlib.Path(__file__).resolve().parent.parent
FEWEST = 40


def problems(text, tree):
    """(rows, [problem]) of the table."""
    rows, wrong = 0, []
    for number, line in enumerate(text.splitlines(), 1):
        if not line.startswith("| ") or line.startswith("| what |"):
            continue
        rows += 1
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if len(cells) != 3 or not all(re.fullmatch(r"`[^`]+`", cell) for cell in cells[1:]):
            wrong.append(f"docs/where-is.md:{number}: a row is | what | `file` | `symbol` |")
            continue
        what, file, symbol = cells[0], cells[1].strip("`"), cells[2].strip("`")
        if not (tree / file).is_file():
            wrong.append(f"docs/where-is.md:{number}: {what}: there is no file {file}")
            continue
        source = (tree / file).read_text()
        missing = [part for part in symbol.split("::") if not re.search(rf"\b{re.escape(part)}\b", source)]
        if missing:
            wrong.append(f"docs/where-is.md:{number}: {what}: {file} has no {missing[0]}")
    return rows, wrong


if __name__ == "__main__":
    rows, wrong = problems((TREE / "docs" / "where-is.md").read_text(), TREE)
    if rows < FEWEST:
        wrong.append(f"docs/where-is.md has {rows} rows; at least {FEWEST} are wanted")
    print("\n".join(wrong) if wrong else f"all {rows} files and symbols exist")
    sys.exit(1 if wrong else 0)

#!/usr/bin/python3
"""Finds product files of more than 500 lines and functions of more than 60.

A function is counted from the first line of its declaration to its closing brace. Comments count; lines inside a raw string do not, because a program or a
table in a string is data. Tests, fakes and fixtures are left out.

tools/long_functions.txt lists the exceptions, one a line: `file function reason`, with (file) as the function for a file as a whole. The list may only shrink:
the check also fails when a line has no long function any more, until --update has removed it. --update never adds a line.
--show prints every file and function over the limits with its length, listed or not; --show N uses N as the limit for functions.
"""
import bisect
import collections
import pathlib
import re
import sys

TREE = pathlib.Path(__file__).resolve().parent.parent
LISTED = TREE / "tools" / "long_functions.txt"
MAX_FILE, MAX_FUNCTION = 500, 60

# What a scanner of braces must not read: comments, strings, characters (not the separators of 1'000) and preprocessor lines.
OPAQUE = re.compile(r"""//[^\n]*|/\*.*?\*/|\bR"(?P<mark>[^()\s\\]*)\((?P<raw>.*?)\)(?P=mark)"|"(?:\\.|[^"\\\n])*"|(?<![0-9a-fA-F])'(?:\\[^'\n]+|[^'\\\n])'"""
                    r"""|^[ \t]*\#(?:[^\n]*\\\n)*[^\n]*""", re.S | re.M)
SCOPE = re.compile(r"\b(?:namespace|class|struct|union)\b|\bextern\s*\"")
OPERATOR = re.compile(r"((?:\w+::)*operator\s*(?:\(\)|[^\s\w(]+|[\w:]+))\s*\(")
NAME = re.compile(r"(~?[A-Za-z_][\w:]*(?:<[^()]*>)?(?:::~?\w+)*)\s*\Z")


def is_product(file):
    return file.suffix in (".h", ".cpp") and re.search(r"_test\.|testing|_for_tests|conformance_|fake_|_fixture|recorded_answers", file.name) is None


def blank(text):
    """The text with comments, strings and preprocessor lines as spaces, and the numbers of the lines inside raw strings."""
    raw = set()

    def replace(match):
        if match["raw"] is not None:
            first = text.count("\n", 0, match.start())
            raw.update(range(first + 1, first + match[0].count("\n")))
        return re.sub(r"[^\n]", " ", match[0]) if match[0][0] != '"' else '"' + " " * (len(match[0]) - 2) + '"'

    return OPAQUE.sub(replace, text), raw


def without_nested(head):
    """The head of a block without what is inside its parentheses and template parameter lists: `template <> void f()`."""
    head = re.sub(r"\[\[.*?\]\]|\balignas\s*\([^)]*\)", "", head, flags=re.S)
    head = re.sub(r"\b(?:noexcept|explicit|requires|decltype)\s*\((?:[^()]|\([^()]*\))*\)", "", head)
    while (shorter := re.sub(r"\(([^()]+)\)", "()", head)) != head:
        head = shorter
    head = re.sub(r"operator\s*(<=>|<<|>>|<=|>=|->|==|!=|<|>|=)", lambda match: "operator" + "$" * len(match[1]), head)
    while (shorter := re.sub(r"<[^<>]+>", "<>", head)) != head:
        head = shorter
    return head


def function_name(head):
    """The name of the function whose body begins after this head; None where the block is no function."""
    flat = without_nested(head)
    assigned = re.match(r"(.*?)(?<![=!<>])=(?!=)\s*\[[^\]]*\]", flat, re.S)  # A lambda in a variable.
    if assigned and "operator" not in assigned[1]:
        name = re.search(r"(\w+)\s*\Z", assigned[1])
        return name[1] if name else "lambda"
    if "(" not in flat or re.search(r"(?<![=!<>])=(?!=)", flat.split("(")[0]):
        return None
    operator = OPERATOR.search(head)
    name = operator or NAME.search(flat.split("(")[0])
    return name[1].replace("<>", "") if name else "unnamed"


def functions(text):
    """Yields (name, first line, length) of each function."""
    text, raw = blank(text)
    starts = [0] + [match.end() for match in re.finditer("\n", text)]
    line_of = lambda offset: bisect.bisect_right(starts, offset)  # noqa: E731
    depth, parens, begin, inside = 0, 0, 0, None
    for match in re.finditer(r"[{}();]", text):
        sign, at = match[0], match.start()
        if inside:  # The body of a function or an initializer: only its end matters.
            depth += {"{": 1, "}": -1}.get(sign, 0)
            if depth == 0:
                name, first = inside
                if name:
                    last = line_of(at)
                    yield name, first, last - first + 1 - sum(first < line + 1 <= last for line in raw)
                inside = None
                if name:
                    begin = at + 1
        elif sign in "()":
            parens += 1 if sign == "(" else -1
        elif sign == "{":
            head = text[begin:at]
            scope = SCOPE.search(without_nested(head)) and "(" not in without_nested(head).split("operator")[0] and "=" not in without_nested(head)
            if scope and parens == 0:
                begin = at + 1
                continue
            body = text[at - 1] in " \n" and parens == 0  # As clang-format writes it: `f() {`, but `member_{1}`.
            stripped = re.sub(r"\A(?:\s|\b(?:public|private|protected):)*", "", head)
            inside, depth = (function_name(head) if body else None, line_of(begin + len(head) - len(stripped))), 1
        elif sign in ";}" and parens == 0:
            begin = at + 1


def offenders(tree, max_function=MAX_FUNCTION):
    """Yields (file, function, line, length, limit)."""
    for file in sorted((tree / "src").rglob("*")):
        if not is_product(file):
            continue
        text, name = file.read_text(), str(file.relative_to(tree))
        if (length := text.count("\n")) > MAX_FILE:
            yield name, "(file)", 1, length, MAX_FILE
        for function, line, length in functions(text):
            if length > max_function:
                yield name, function, line, length, max_function


def read_listed(text):
    """[(file, function, reason)]"""
    return [tuple((line.split(None, 2) + ["", ""])[:3]) for line in text.splitlines() if line.strip() and not line.startswith("#")]


def main(arguments, tree=TREE, listed_file=LISTED):
    if arguments[:1] == ["--show"] and len(arguments) <= 2 and all(argument.isdigit() for argument in arguments[1:]):
        for file, function, line, length, _ in offenders(tree, *map(int, arguments[1:])):
            print(f"{length:5} {file}:{line} {function}")
        return 0
    if arguments not in ([], ["--update"]):
        print(__doc__)
        return 2
    found = list(offenders(tree))
    listed = read_listed(listed_file.read_text())
    allowed = collections.Counter((file, function) for file, function, _ in listed)
    unused = allowed - collections.Counter((file, function) for file, function, *_ in found)
    wrong = [f"{file}:{line}: {function} has {length} lines; at most {limit} are allowed" for file, function, line, length, limit in found
             if not allowed[(file, function)]]
    wrong += [f"{listed_file.name}: {file} {function} has no reason" for file, function, reason in listed if not reason]
    if arguments:
        lines = []
        for line in listed_file.read_text().splitlines(keepends=True):
            key = read_listed(line)[0][:2] if read_listed(line) else None
            if key and unused[key] > 0:
                unused[key] -= 1
            else:
                lines.append(line)
        listed_file.write_text("".join(lines))
    else:
        wrong += [f"{listed_file.name}: {file} {function} is not too long any more: run tools/check_lengths.py --update" for file, function in sorted(unused)]
    print("\n".join(wrong) if wrong else f"no file and no function is too long, except {len(found)} listed ones")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

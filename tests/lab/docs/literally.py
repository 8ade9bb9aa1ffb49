"""Runs the console blocks of a page literally, command by command, and compares the output with the page."""
import os
import re
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from orrery_lab import Failed, check, log  # noqa: E402

TREE = os.path.abspath(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", ".."))

# What differs from run to run.
VARYING = ((r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z?", "TIME"), (r"\b\d+(\.\d+)?(ms|s|m|h|d)\b", "AGE"), (r" +", " "))


def page(folder, name):
    with open(os.path.join(folder, name)) as file:
        return file.read()


def normal(line):
    for pattern, word in VARYING:
        line = re.sub(pattern, word, line)
    return line.strip()


def console(text):
    """[(command, lines shown)] of the fenced blocks that begin with console."""
    steps = []
    for block in re.findall(r"^```console\n(.*?)^```", text, re.S | re.M):
        for line in block.splitlines():
            if line.startswith("$ "):
                steps.append((line[2:], []))
            else:
                steps[-1][1].append(line)
    return steps


def shows(shown, printed):
    """Whether the lines printed are those shown: a line "..." matches any lines, "..." within a line any text."""
    pattern = "".join("(?:.*\n)*?" if line.strip() == "..." else ".*".join(re.escape(normal(part)) for part in line.split("...")).replace(r".*\ ", ".* ?") + " *\n"
                      for line in shown)
    return re.fullmatch(pattern, "".join(normal(line) + "\n" for line in printed.splitlines())) is not None


class Shell:
    """A user's shell: each command in the same folder and environment. `enter`: a command that runs another one elsewhere, such as in another root."""

    def __init__(self, folder, environment, enter=()):
        self.folder, self.environment, self.enter = folder, environment, list(enter)

    def line(self, command):
        return [*self.enter, "/usr/bin/env", "-C", self.folder, "bash", "-c", command]

    def __call__(self, command, seconds=60):
        done = subprocess.run(self.line(command), env=self.environment, text=True, timeout=seconds, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT)
        return done.returncode, done.stdout

    def literally(self, name, text):
        for command, shown in console(text):
            status, printed = self(command)
            expected_to_fail = bool(shown) and (shown[0].startswith("error: ") or " would be " in shown[0])  # an error, or differences
            if (status != 0) != expected_to_fail or (shown and not shows(shown, printed)):
                raise Failed(f"{name}: $ {command}\nended with {status} and printed:\n{printed}\nshown is:\n" + "\n".join(shown))
            log(f"ok    {name}: {command}")


def follow(name, shell, pages, folder):
    """README, then the tutorial: the pages are read below `pages`, and the shell has the same files below `folder`."""
    shell.folder = folder
    shell.literally(f"{name}: README", page(pages, "README.md"))
    tutorial = page(pages, "docs/tutorial.md")
    for file, text in re.findall(r"^```yaml\n# (\S+)\n(.*?)^```", tutorial, re.S | re.M):
        check(f"{name}: the tutorial shows {file} unchanged", text in page(pages, f"examples/tutorial/{file}"))
    shell.folder = os.path.join(folder, "examples", "tutorial")
    try:
        shell.literally(f"{name}: tutorial", tutorial)
    finally:
        shell("./nodes stop")

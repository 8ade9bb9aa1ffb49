#!/usr/bin/python3
"""test_report.py JUNIT_FILE: reads the results of ctest (--output-junit).

Prints `PASSED FAILED SKIPPED` as three numbers to stdout. To stderr it prints each failed test with the end of its output, and each
reason for which tests were skipped. The exit status is 0 whenever the file could be read: the caller judges the numbers.
"""
import re
import sys
import xml.etree.ElementTree as xml

LINES_OF_A_FAILURE = 60
BYTES_OF_ALL_FAILURES = 60000


def outcome(case):
    """passed, failed or skipped. A test that ctest could not start has the status notrun, and no reason to be skipped."""
    if case.find("failure") is not None or case.get("status") == "fail":
        return "failed"
    if case.get("status") == "run":
        return "passed"
    skipped = case.find("skipped")
    message = skipped.get("message", "") if skipped is not None else ""
    return "skipped" if re.search(r"SKIP_(RETURN_CODE|REGULAR_EXPRESSION)", message) or case.get("status") == "disabled" else "failed"


def output(case):
    return (case.findtext("system-out") or "").rstrip()


def reason_of_skip(case):
    """A lab prints "skipped because ...", gtest the message on the line after ": Skipped"."""
    if case.get("status") == "disabled":
        return "disabled"
    lines = output(case).splitlines()
    for number, line in enumerate(lines):
        if line.startswith("skipped"):
            return line
        if line.endswith(": Skipped") and number + 1 < len(lines):
            return lines[number + 1].strip()
    return "no reason was printed"


def report(path):
    cases = [(outcome(case), case) for case in xml.parse(path).getroot().iter("testcase")]
    log = lambda text: print(text, file=sys.stderr)  # noqa: E731
    failed = [case for how, case in cases if how == "failed"]
    left = BYTES_OF_ALL_FAILURES
    for case in failed:
        problem = case.find("failure")
        if problem is None:
            problem = case.find("skipped")
        message = problem.get("message", "") if problem is not None else ""
        log(f"--- {case.get('name')} failed after {float(case.get('time') or 0):.1f} s{': ' + message if message else ''}")
        text = "\n".join(output(case).splitlines()[-LINES_OF_A_FAILURE:])[-left:] if left > 0 else "(the output is in the JUnit file)"
        left -= len(text)
        log(text)
    reasons = {}
    for how, case in cases:
        if how == "skipped":
            reasons.setdefault(reason_of_skip(case), []).append(case.get("name"))
    for reason, names in sorted(reasons.items()):
        log(f"skipped: {' '.join(names)}: {reason}")
    if failed:
        log("failed: " + " ".join(case.get("name") for case in failed))
    return tuple(sum(how == wanted for how, _ in cases) for wanted in ("passed", "failed", "skipped"))


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    try:
        print(*report(sys.argv[1]))
    except (OSError, xml.ParseError) as error:
        sys.exit(f"test_report: {sys.argv[1]} cannot be read: {error}")

#!/usr/bin/python3
"""Jobs without nodes, as users run them: submitted, refused, approved, watched, interrupted by a killed server and reattached, with programs at the
server doing the work. A secret that a program prints appears nowhere."""
import json
import os
import random
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from orrery_lab import Cli, Server, check, contains, equal, log, run, scratch, wait_until, write_file  # noqa: E402

CANARY = f"Canary-{os.urandom(12).hex()}"

GATES = """\
kind: Job
name: gates
spec:
  tasks:
    - {name: prepared}
    - {name: go, after: prepared, approve: true}
    - {name: over, after: go}
"""
WRONG = """\
kind: Job
name: wrong
spec:
  tasks:
    - {name: a, after: b}
    - {name: b, after: a}
    - {name: c, on: nowhere, run: {local: {program: nothing}}}
    - {name: d, wait: nobody}
"""
CHAIN = """\
kind: Job
name: chain-%s
spec:
  limits: {slots: 4}
  tasks:
%s"""


def chain(name, length):
    tasks = []
    for lane in range(3):
        for i in range(length):
            after = f", after: t{lane}-{i - 1}" if i else ""
            tasks.append(f"    - {{name: t{lane}-{i}{after}, env: {{PASSWORD: \"${{secret.lab.password}}\"}}, run: {{local: {{program: step}}}}}}\n")
    return CHAIN % (name, "".join(tasks)), 3 * length


def main(given):
    ran = os.path.join(scratch(), "ran")
    step = write_file(os.path.join(scratch("programs"), "step"), f"""#!/bin/sh
echo "$ORRERY_JOB $ORRERY_TASK" >>{ran}
echo "begins with $PASSWORD"
sleep 0.1
echo ends
""", 0o700)
    server = Server(given.orrery, arguments=["--jobs-programs", f"step={step}"])
    server.start()
    cli = Cli(given.orrery, server, HOME=scratch("home"), XDG_CONFIG_HOME=scratch("home")).login(server)
    server.api().put("/v1/secrets/lab", {"spec": {"values": {"password": CANARY}}})

    refused = cli("job", "submit", "-f", "-", stdin=WRONG)
    equal("a wrong job is refused: 7", refused.status, 7)
    contains("with all errors", refused.err, "waits for itself: a → b → a", "no node has role=nowhere", "must be one of the programs in the setting jobs.programs", "nothing in the plan provides nobody")

    out = cli.ok("job", "submit", "-f", "-", stdin=GATES)
    digest = out.split("plan ")[1].strip()
    wait_until("it waits for an approval", lambda: "approval" in cli.ok("job", "why", "gates", "go"), 10)
    contains("job wait names the missing condition", cli("job", "wait", "gates", "--now").out, "missing: go: waiting: the approval of a person", "missing: over")
    equal("the digest of another plan is refused: 5", cli("job", "approve", "gates", "go", "--digest", "0" * 16).status, 5)
    server.kill()
    server.start()
    cli.ok("job", "approve", "gates", "go", "--digest", digest)
    contains("after a kill -9 and an approval it is done", cli.ok("job", "wait", "gates"), "job gates succeeded")
    contains("its graph", cli.ok("job", "graph", "gates"), "digraph", "t0 -> t1")
    contains("its picture", cli.ok("job", "graph", "gates", "-o", "svg"), "</svg>")
    equal("it can be deleted", cli("delete", "job", "gates").status, 0)

    text, tasks = chain("plan", 4)
    contains("a plan", cli.ok("job", "plan", "-f", "-", "--simulate", stdin=text), "predicted: succeeded after 40s", "critical path")

    for turn in range(4):
        text, tasks = chain(turn, 8)
        name = f"chain-{turn}"
        cli.ok("job", "submit", "-f", "-", stdin=text)
        kills = 0
        for _ in range(3):
            time.sleep(random.uniform(0.05, 0.6))
            server.kill()
            kills += 1
            server.start()
        contains(f"{name}: done after {kills} kills", cli.ok("job", "wait", name, seconds=120), f"job {name} succeeded")
        with open(ran) as file:
            lines = [line.split()[1] for line in file if line.startswith(name + " ")]
        equal(f"{name}: every task ran", len(set(lines)), tasks)
        equal(f"{name}: and none twice", len(lines), len(set(lines)))
        for task in random.sample(sorted(set(lines)), 4):
            equal(f"{name}: the output of {task}", cli.ok("job", "logs", name, task), "begins with (secret)\nends\n")
        contains("the next plan estimates the duration of such tasks", cli.ok("job", "plan", "-f", "-", stdin=text), "predicted: succeeded after")
    history = json.loads(cli.ok("job", "plan", "-f", "-", "-o", "json", stdin=text))
    check("from past runs", history["simulation"]["makespan_ms"] < 8000 and not history["never_ran"], str(history["simulation"]["makespan_ms"]))

    api = server.api()
    wait_until("the files of the attempts are removed", lambda: all(job["status"].get("cleaned") for job in api.get("/v1/jobs")["items"]), 10)
    for folder, _, files in os.walk(server.folder):
        for file in files:
            with open(os.path.join(folder, file), "rb") as data:
                check(f"the secret is not in {file}", CANARY.encode() not in data.read())
    check("nor in the log", CANARY not in server.log_text())
    equal("it stops on SIGTERM", server.stop(), 0)
    equal("without an error in its log", server.error_lines(), [])


if __name__ == "__main__":
    run(main)

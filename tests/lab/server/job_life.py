#!/usr/bin/python3
"""The life of jobs beyond success: canaries that fail, roles that roll and stop, jobs that are undone and whose undo fails; mistakes that are reported when a job
is submitted, with task and line; pictures, descriptions, and output that keeps its end. Programs on the server do the work."""
import os
import re
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from orrery_lab import Cli, Server, check, contains, equal, log, run, scratch, wait_until, write_file  # noqa: E402

CANARY = """\
kind: Job
name: canary
spec:
  tasks:
    - name: up
      on: db
      run: {local: {program: work, arguments: ["up-${node.name}"]}}
      batch: {canary: 1, serial: [2], max_fail: 1}
"""
ROLLING = """\
kind: Job
name: rolling
spec:
  tasks:
    - {name: up, on: db, rolling: true, run: {local: {program: work, arguments: ["up-${node.name}"]}}}
"""
UNDO = """\
kind: Job
name: undo
spec:
  tasks:
    - {name: a, run: {local: {program: work, arguments: [a]}}, undo: {local: {program: work, arguments: [undo-a]}}}
    - {name: b, after: a, run: {local: {program: work, arguments: [b]}}, undo: {local: {program: work, arguments: [undo-b]}}}
    - {name: c, after: b, run: {local: {program: work, arguments: [c]}}, undo: {local: {program: work, arguments: [undo-c]}}}
    - {name: d, after: c}
"""


MISTAKES = """\
kind: Job
name: mistakes
spec:
  limits: {per_role: {dbs: 1}}
  tasks:
    - name: fields
      rnu: {local: {program: work}}
      after: nobody
    - name: secret
      env: {P: "${secret.site.pasword}"}
      run: {local: {program: work, arguments: [x]}}
    - name: open
      run: {local: {program: work, arguments: ["${service.pg"]}}
    - name: values
      run: {local: {program: work, arguments: ["${task.secret.values.x}"]}}
    - name: published
      after: secret
      run: {local: {program: work, arguments: ["${task.secret.values.x}"]}}
    - name: playbook
      on: db
      run: {ansible: {playbook: nothing.yml}}
    - name: manifest
      on: db
      run: {puppet: {manifest: nothing.pp}}
    - name: empty
      on: []
      run: {local: {program: work, arguments: [x]}}
    - name: again
      rerun_on: pgsql
      run: {local: {program: work, arguments: [x]}}
    - name: birds
      on: db
      batch: {canary: 9}
      run: {local: {program: work, arguments: ["${node.name}"]}}
    - name: program
      run: {local: {program: wrok}}
"""
EXPECTED = [  # line of the file, field, the error and the remedy
    (4, "spec.limits.per_role.dbs", "the plan has no node of role dbs; did you mean db?"),
    (7, "spec.tasks[0].rnu", "task fields: is not known; did you mean run?"),
    (8, "spec.tasks[0].after[0]", "task fields: there is no task nobody"),
    (10, "spec.tasks[1].env.P", "task secret: ${secret.site.pasword}: Secret site has no key pasword; did you mean password?"),
    (13, "spec.tasks[2].run", "task open: ${service.pg is not closed"),
    (15, "spec.tasks[3].run", 'task values: ${task.secret.values.x}: task secret need not be over by then: add it to "after"'),
    (18, "spec.tasks[4].run", "task published: ${task.secret.values.x}: task secret publishes no values"),
    (21, "spec.tasks[5].run.ansible.playbook", "task playbook: the server has no nothing.yml"),
    (24, "spec.tasks[6].run.puppet.manifest", "task manifest: the server has no nothing.pp"),
    (26, "spec.tasks[7].on", "task empty: names no node"),
    (29, "spec.tasks[8].rerun_on[0]", "task again: there is no service pgsql"),
    (33, "spec.tasks[9].batch.canary", "task birds: is 9, and the task has 4 nodes"),
    (36, "spec.tasks[10].run.local.program", "task program: is not in the setting jobs.programs; did you mean"),
]
PICTURE = """\
kind: Job
name: picture
spec:
  approve: true
  tasks:
    - {name: use, on: [db-1], wait: database-of-the-shop, run: {local: {program: work, arguments: [x]}}}
    - {name: install, on: [db-1], provides: database-of-the-shop, run: {local: {program: work, arguments: [x]}}}
    - {name: report, after: [use, install], run: {local: {program: work, arguments: [x]}}}
"""
LATER = """\
kind: Job
name: later
spec:
  tasks:
    - {name: many, run: {local: {program: many}}}
    - {name: gate, approve: true}
    - {name: never, after: gate, run: {local: {program: work, arguments: [never]}}}
"""


class Lab:
    def __init__(self, given):
        self.failing = os.path.join(scratch(), "failing")
        self.ran = os.path.join(scratch(), "ran")
        work = write_file(os.path.join(scratch("programs"), "work"), f"""#!/bin/sh
echo "$1" >>{self.ran}
if grep -qx "$1" {self.failing}; then echo "no $1" >&2; exit 3; fi
""", 0o700)
        many = write_file(os.path.join(scratch("programs"), "many"), """#!/bin/sh
echo the first line
seq 1000000 1200000
echo the last line
exit 4
""", 0o700)
        self.fail()
        self.server = Server(given.orrery, arguments=["--jobs-programs", f"work={work};many={many}", "--jobs-output-limit", "262144"])
        self.server.start()
        self.cli = Cli(given.orrery, self.server, HOME=scratch("home"), XDG_CONFIG_HOME=scratch("home")).login(self.server)
        self.api = self.server.api()
        for number in range(1, 5):
            self.api.put(f"/v1/nodes/db-{number}", {"labels": {"role": "db"}, "spec": {"address": f"192.0.2.{number}"}})

    def fail(self, *names):
        """The program fails for these arguments from now on."""
        write_file(self.failing, "".join(f"{name}\n" for name in names))

    def has_run(self):
        if not os.path.exists(self.ran):
            return []
        with open(self.ran) as file:
            lines = file.read().split()
        os.remove(self.ran)
        return lines


def canaries_and_rolling(lab):
    lab.fail("up-db-1")
    result = lab.cli("job", "submit", "--wait", "-f", "-", stdin=CANARY)
    equal("a job whose canary failed ends with 1", (result.status, result.err), (1, ""))
    equal("a failed canary stops the batch, whatever max_fail is", lab.has_run(), ["up-db-1"])
    contains("and the others are skipped for that reason", lab.cli.ok("job", "why", "canary", "up@db-4"), "up@db-4 is skipped", "up@db-1 failed")
    lab.cli.ok("delete", "job", "canary")

    lab.cli.ok("apply", "-f", "-", stdin="{kind: RollingRule, name: db, spec: {limit: 1}}\n")
    result = lab.cli("job", "submit", "--wait", "-f", "-", stdin=ROLLING, seconds=30)
    equal("a failure under a RollingRule ends the job, and the command returns 1", result.status, 1)
    contains("as failed", lab.cli.ok("job", "list", "--state", "failed"), "rolling")
    contains("the nodes that did not start are skipped", lab.cli.ok("job", "show", "rolling", "--state", "skipped"),
             "db-1 did not succeed and keeps its rolling slot, and the limit of role db is 1")
    equal("the failed node still counts against the role",
          lab.api.get("/v1/jobs/rolling")["status"]["rolling_slots"], [{"role": "db", "node": "db-1"}])
    lab.fail()
    lab.has_run()
    lab.cli.ok("job", "retry", "rolling")
    contains("a retry continues where it stopped", lab.cli.ok("job", "wait", "rolling"), "job rolling succeeded")
    equal("one node at a time", lab.has_run(), ["up-db-1", "up-db-2", "up-db-3", "up-db-4"])


def undo(lab):
    lab.fail("c", "undo-b")
    lab.cli("job", "submit", "--wait", "-f", "-", stdin=UNDO)
    lab.has_run()
    refused = lab.cli("job", "cancel", "undo")
    equal("a failed job cannot be cancelled: 5", refused.status, 5)
    contains("the remedy is to undo it", refused.err, "orrery job undo undo")
    lab.cli.ok("job", "undo", "undo", "--reason", "back to yesterday")
    equal("a failed job can be undone; its undo fails: 1", lab.cli("job", "wait", "undo").status, 1)
    equal("from the end of the graph to its beginning, also past the failed step", lab.has_run(), ["undo-c", "undo-b", "undo-a"])
    contains("a failed undo is a state of the job", lab.cli.ok("job", "list", "--state", "undo_failed"), "undo", "the undo of 1 task failed: b (undo: exit code 3: no undo-b)")
    contains("and of the task", lab.cli.ok("job", "show", "undo", "--state", "undo_failed"), "b ", "undo_failed")
    contains("why reports it", lab.cli.ok("job", "why", "undo", "b"), "b is undo_failed: undo: exit code 3: no undo-b")
    wait_until("and it is an event", lambda: "undo_failed" in lab.cli.ok("events", "--subject", "job/undo"), 10)
    contains("tasks that were undone differ", lab.cli.ok("job", "show", "undo", "--state", "undone"), "a ", "c ")
    contains("from those that never ran", lab.cli.ok("job", "show", "undo", "--state", "skipped"), "d ")
    lab.server.kill()
    lab.server.start()
    lab.api = lab.server.api()
    lab.fail()
    lab.cli.ok("job", "undo", "undo")
    lab.cli("job", "wait", "undo")
    equal("a second undo runs the remaining steps, also after a kill -9", lab.has_run(), ["undo-b"])
    contains("then it is undone", lab.cli.ok("job", "list", "--state", "undone"), "undo")


def mistakes_at_submission(lab):
    lab.api.put("/v1/secrets/site", {"spec": {"values": {"password": "long enough"}}})
    file = write_file(os.path.join(scratch(), "mistakes.yaml"), MISTAKES)
    for command in ("submit", "plan"):
        refused = lab.cli("job", command, "-f", file)
        equal(f"job {command}: a job with mistakes is refused: 7", refused.status, 7)
        for line, field, message in EXPECTED:
            contains(f"job {command}: with task, line and remedy: {field}", refused.err, f"{file}:{line}: {field}: {message}")
        contains(f"job {command}: all of them together, and a remedy", refused.err, f"the job has {len(EXPECTED)} errors", "remedy: correct the job and submit it again")
    contains("apply shows lines too", lab.cli("apply", "-f", file).err, f"{file}:7: spec.tasks[0].rnu")
    equal("nothing of it is stored", lab.cli("get", "job", "mistakes").status, 3)


def output_pauses_and_descriptions(lab):
    digest = lab.cli.ok("job", "submit", "-f", "-", stdin=LATER).split("plan ")[1].strip()
    wait_until("the program has failed", lambda: lab.api.get("/v1/jobs/later/tasks?group=many")["tasks"][0]["state"] == "failed", 20)
    result = lab.cli("job", "logs", "later", "many")
    check("output keeps its first part", result.out.startswith("the first line\n1000000\n"), result.out[:100])
    check("and its last part", result.out.endswith("1200000\nthe last line\n"), result.out[-100:])
    contains("and reports the omitted bytes", result.out, "bytes were left out here: the limit is 262144)\n")
    check("within the limit", len(result.out) < 270000, str(len(result.out)))
    never = lab.cli("job", "logs", "later", "never")
    equal("logs of a task that never ran: 3", never.status, 3)
    contains("an error names the state", never.err, "never has never started, so it has no output: it is pending", "remedy: orrery job why later never")
    contains("an approval without a digest names the option", lab.cli("job", "approve", "later", "gate").err, "--digest", "orrery job show later")
    lab.cli("job", "approve", "later", "gate", "--digest", "0" * 16)
    again = lab.cli("job", "submit", "-f", "-", stdin=LATER)
    equal("a second job of the same name is refused: 5", again.status, 5)
    contains("with a remedy", again.err, "Job later exists already", "remedy: submit it under another name (orrery job submit --name NAME), or delete the job after its end")
    contains("a pause is confirmed", lab.cli.ok("job", "pause", "later", "--reason", "lunch"), "job later is paused")
    contains("and shown", lab.cli.ok("job", "show", "later"), "paused by admin: lunch")
    wait_until("in the list too", lambda: "paused by admin: lunch" in lab.cli.ok("job", "list"), 10)
    lab.cli.ok("job", "resume", "later")
    lab.cli.ok("job", "approve", "later", "gate", "--digest", digest)
    lab.cli("job", "wait", "later")
    events = lab.cli.ok("events", "--subject", "job/later")
    contains("a refused approval has an event of its own", events, "approve-refused", "approve ")
    described = lab.cli.ok("describe", "job", "later")
    contains("describe shows tasks as in a job file", described, "- name: many\n      run:\n        local:\n          program: many\n")


def graphs(lab):
    lab.cli.ok("apply", "-f", "-", stdin="{kind: Service, name: database-of-the-shop, spec: {port: 5432}}")
    lab.cli.ok("job", "submit", "-f", "-", stdin=PICTURE)
    picture = lab.cli.ok("job", "graph", "picture", "-o", "svg")
    boxes = re.findall(r'<g><title>([^,<]+)[^<]*</title><rect x="([0-9]+)" y="([0-9]+)" width="([0-9]+)" height="([0-9]+)"(.*?)</g>', picture)
    columns = {name: int(x) for name, x, *_ in boxes}
    check("columns follow barriers as well as edges", columns["install"] < columns["use"] < columns["report"], str(columns))
    for name, x, y, width, height, rest in boxes:
        for size, text in re.findall(r'<text[^>]*?(?:font-size="([0-9]+)")?[^>]*>([^<]+)</text>', rest):
            check(f"the label fits into its box: {text}", 10 + len(text) * int(size or 13) * 0.5 < int(width) and "…" not in text, f"{width} of {name}")
    arrows = re.findall(r'<path d="M([0-9]+) ([0-9]+)[^"]*? ([0-9]+) ([0-9]+)" fill="none"', picture)
    equal("each edge and each barrier has an arrow", len(arrows), 3)
    check("no arrow goes back", all(int(x1) < int(x2) for x1, _, x2, _ in arrows), str(arrows))
    lanes = [(int(x1), int(x2), int(y)) for x1, y, x2 in re.findall(r'[ C]([0-9]+) ([0-9]+)L([0-9]+) [0-9]+', picture)]
    crossed = [(lane, name) for lane in lanes for name, x, y, width, height, _ in boxes
               if lane[0] < int(x) + int(width) and int(x) < lane[1] and int(y) < lane[2] < int(y) + int(height)]
    equal(f"none of {len(lanes)} long arrows crosses a box", (crossed, len(lanes) > 0), ([], True))
    contains("a picture has the states of its tasks", lab.cli.ok("job", "graph", "undo", "-o", "svg"), "undone", "skipped")
    dot = lab.cli.ok("job", "graph", "undo")
    colours = {line.split('"')[1].split("\\n")[0]: line.split('fillcolor="')[1][:7] for line in dot.splitlines() if "fillcolor" in line}
    check("skipped has another colour than failed", colours["d"] != "#f4b8b0" and colours["a"] != colours["d"], str(colours))


def main(given):
    lab = Lab(given)
    for part in (canaries_and_rolling, undo, mistakes_at_submission, output_pauses_and_descriptions, graphs):
        log(f"--- {part.__name__.replace('_', ' ')}")
        part(lab)
    equal("it stops on SIGTERM", lab.server.stop(), 0)
    equal("without an error in its log", lab.server.error_lines(), [])


if __name__ == "__main__":
    run(main)

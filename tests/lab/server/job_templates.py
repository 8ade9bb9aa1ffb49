#!/usr/bin/python3 -B
"""Jobs that run again, with programs on the server doing the work: templates with parameters, run by people; schedules whose server is killed with kill -9 over a
due time. Each missed run follows its policy, and nothing runs twice."""
import json
import os
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from orrery_lab import Cli, Server, check, contains, equal, log, run, scratch, wait_until, write_file  # noqa: E402

TREE = os.path.abspath(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", ".."))
BUILD = """\
kind: JobTemplate
name: build
spec:
  parameters:
    - {name: version, required: true, pattern: "[0-9.]+", description: what to build}
    - {name: jobs, type: integer, default: 2, min: 1, max: 8}
    - {name: targets, type: list, default: []}
    - {name: note, default: none}
  job:
    tasks:
      - name: build
        with: {targets: "${param.targets}"}
        env: {VERSION: "${param.version}", JOBS: "${param.jobs}", NOTE: "${param.note}", TARGETS: "${with.targets}"}
        run: {local: {program: step}}
  max_finished_runs: 2
"""
SCHEDULED = """\
kind: JobTemplate
name: %(name)s
spec:
  job:
    tasks: [{name: a, run: {local: {program: step}}}]
  schedules: [{name: hourly, cron: "%(minute)s * * * *", %(policy)s}]
"""
WRONG = """\
kind: JobTemplate
name: wrong
spec:
  parameters: [{name: n, type: integer, default: many}]
  job:
    tasks:
      - {name: a, run: {local: {program: step}}, timeout: soon}
  schedules: [{name: s, cron: "0 25 * * *", time_zone: Mars/Olympus}]
"""


def main(given):
    ran = os.path.join(scratch(), "ran")
    step = write_file(os.path.join(scratch("programs"), "step"), f"""#!/bin/sh
printf '%s\\n' "$ORRERY_JOB $VERSION/$JOBS/$NOTE/$TARGETS" >>{ran}
sleep 0.3
""", 0o700)
    server = Server(given.orrery, arguments=["--jobs-programs", f"step={step}"])
    server.start()
    cli = Cli(given.orrery, server).login(server)

    def lines():
        with open(ran) as file:
            return file.read().splitlines()

    def history(name):
        return json.loads(cli.ok("job", "history", name, "-o", "json"))["items"]

    people(cli, server, lines, history)
    examples(cli)
    schedules(cli, server, lines, history)
    server.stop()


def people(cli, server, lines, history):
    refused = cli("apply", "-f", "-", stdin=WRONG)
    contains("a wrong template is refused, with all errors", refused.out + refused.err, "spec.parameters[0].default", "must be an integer", "spec.schedules[0].cron", "hour \"25\"",
             "there is no time zone")
    cli.ok("apply", "-f", "-", stdin=BUILD)
    refused = cli("job", "run", "build")
    check("a run without a required parameter is refused by its name", refused.status != 0 and "parameters.version" in refused.err and "is required: what to build" in refused.err, str(refused))
    refused = cli("job", "run", "build", "-p", "version=1.2; reboot")
    check("so is a value that does not match", refused.status != 0 and "must match the pattern" in refused.err, str(refused))
    refused = cli("job", "run", "build", "-p", "version=1", "-p", "job=3")
    contains("an unknown parameter is named, with the nearest name", refused.err, "did you mean jobs?")
    contains("a dry run reports the job", cli.ok("job", "run", "build", "-p", "version=1.2", "--dry-run"), "would be accepted: 1 task on 0 nodes")
    contains("so does a plan", cli.ok("job", "plan", "--template", "build", "-p", "version=1.2"), "build", "predicted:")
    equal("neither creates a job", history("build"), [])
    hostile = "$(reboot) `id` 'q' \"d\" %s \\n ${secret.db.password} ${param.version} ${"
    out = cli.ok("job", "run", "build", "-p", "version=1.2", "-p", "jobs=4", "-p", "targets=a,b", "-p", "note=" + hostile, "--wait", "--reason", "a release")
    contains("a run creates a job, which succeeds", out, "job build.run.", "submitted", "succeeded")
    check("its values reach the program unchanged", lines()[-1].endswith(f' 1.2/4/{hostile}/["a","b"]'), lines())
    first = history("build")[0]
    equal("the job knows its template, its parameters and who ran it", (first["spec"]["template"], first["spec"]["parameters"]["jobs"], first["status"]["submitted_by"]), ("build", 4, "admin"))
    for version in ("2", "3", "4"):
        cli.ok("job", "run", "build", "-p", f"version={version}", "--wait", "-q")
    wait_until("finished runs are kept up to the limit, the newest", lambda: [one["spec"]["parameters"]["version"] for one in history("build")] == ["4", "3"], 20)
    contains("the history is a table", cli.ok("job", "history", "build"), "JOB", "succeeded", "admin", "version=4")
    contains("the template knows its last run", cli.ok("get", "jobtemplate", "build"), "succeeded", "build.run.")
    contains("its fields are explained", cli.ok("explain", "jobtemplate"), "parameters", "schedules", "max_finished_runs")
    answer = server.api().post("/v1/jobtemplates/build/run", {"parameters": {"version": "5"}, "reason": "by HTTP"})
    check("over HTTP a run answers with its job", answer["job"].startswith("build.run.") and answer["object"]["spec"]["parameters"]["version"] == "5", answer)


def examples(cli):
    cli.ok("apply", "-f", os.path.join(TREE, "examples", "first-site.yaml"), "-f", os.path.join(TREE, "examples", "job-templates.yaml"))
    contains("the restart of the example can be planned", cli.ok("job", "plan", "--template", "restart", "-p", "role=web", "-p", "at_once=2"), "web-1,web-2")
    contains("its next run is known, in its time zone", cli.ok("get", "jobtemplate", "restart", "-o", "yaml"), "next_run:", "T0")
    contains("the checklist of the example runs", cli.ok("job", "run", "checklist", "-p", "version=1.4.2", "--wait"), "succeeded")


def schedules(cli, server, lines, history):
    if time.time() % 60 > 45:  # too late for all that comes before the kill
        time.sleep(61 - time.time() % 60)
    policies = {"skips": "missed: skip, start_deadline: 1s", "once": "missed: run-once", "all": "missed: run-all, overlap: queue", "sleeps": "missed: run-all, overlap: allow, suspended: true"}
    due = time.time() // 60 * 60 + 60
    for name, policy in policies.items():
        cli.ok("apply", "-f", "-", stdin=SCHEDULED % {"name": name, "policy": policy, "minute": time.gmtime(due).tm_min})
    begun = len(lines())
    server.kill()
    log(f"no server runs over a due time, in {due - time.time():.0f} s")
    time.sleep(due + 3 - time.time())
    for _ in range(4):  # the last three at whatever it does with the missed runs
        server.start()
        time.sleep(0.2)
        server.kill()
    server.start()

    def states():
        return {name: [one["status"]["state"] for one in history(name)] for name in policies}

    expected = {"skips": [], "once": ["succeeded"], "all": ["succeeded"], "sleeps": []}
    wait_until("the missed runs have followed their policies", lambda: states() == expected, 20)
    log(f"ok    {expected}")
    names = [line.split()[0] for line in lines()[begun:]]
    minute = time.strftime("%Y%m%d-%H%M", time.gmtime(due))
    equal("each missed run was started once, under a name that follows from its due time", sorted(names), [f"all.hourly.{minute}", f"once.hourly.{minute}"])
    events = cli.ok("events", "--since", "10m", "-o", "json")
    contains("a skipped run has an event", events, "run-missed", "schedule hourly could not start in time")
    entry = json.loads(cli.ok("get", "jobtemplate", "once", "-o", "json"))
    equal("the last run and the next are in the status", (entry["status"]["schedules"][0]["last_run"], entry["status"]["next_run"]),
          (f"once.hourly.{minute}", time.strftime("%Y-%m-%dT%H:%M:00.000Z", time.gmtime(due + 3600))))
    for name in policies:
        cli.ok("delete", "jobtemplate", name)


if __name__ == "__main__":
    run(main)

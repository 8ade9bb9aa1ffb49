#!/usr/bin/python3
"""One context through all layers: the X-Request-Id of the request that submitted a job is in the environment of its programs, in their requests, in events and
log lines, also after the server was killed; `orrery logs` shows all of it in the order of time. `orrery why` explains every kind that has an explanation."""
import http.server
import json
import os
import re
import subprocess
import sys
import threading

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from orrery_lab import Cli, Process, Server, check, contains, equal, free_port, program, run, scratch, wait_until, write_file  # noqa: E402

SITE = """\
kind: Service
name: pg
spec: {port: %d, wanted: 1, checks: [{kind: tcp, interval: 1s, timeout: 500ms, rise: 1, fall: 1}]}
---
kind: Node
name: db-1
labels: {role: db}
spec: {address: 127.0.0.1, ssh: {port: 1, key: lab, trust_first_use: true}}
---
kind: Instance
name: pg-1
spec: {service: pg, node: db-1}
---
kind: Pool
name: eu
spec: {}
---
kind: Member
name: eu-1
spec: {pool: eu, node: db-1}
---
kind: LoadBalancer
name: www
spec: {fqdn: www.gslb.example, pools: [{pool: eu}]}
"""
WAITS = """\
kind: Job
name: waits
spec:
  tasks:
    - {name: use, wait: {service: pg, count: 1}, run: {local: {program: step}}}
    - {name: later, on: [db-1], after: use, run: "true"}
"""
REACHES = """\
kind: Job
name: reaches
spec: {tasks: [{name: a, on: [db-1], run: "true"}]}
"""


class Hook:
    """Records the context of each request."""

    def __init__(self):
        seen = self.seen = []

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self):
                seen.append(self.headers.get("X-Request-Id"))
                self.send_response(200)
                self.end_headers()

            def log_message(self, *words):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}/hook"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()


def job(name, url):
    return {"name": name, "spec": {"tasks": [
        {"name": "first", "run": {"local": {"program": "step"}}},
        {"name": "call", "after": "first", "run": {"http": {"url": url, "method": "POST"}}},
        {"name": "last", "after": "call", "run": {"local": {"program": "step"}}},
        {"name": "fails", "after": "last", "run": {"local": {"program": "nope"}}}]}}


def explains(cli, api, pg_port):
    key = os.path.join(scratch(), "key")
    subprocess.run([program("ssh-keygen", "openssh-client"), "-q", "-t", "ed25519", "-N", "", "-f", key], check=True)
    api.put("/v1/secrets/lab", {"spec": {"values": {"private_key": open(key).read()}}})
    cli.ok("apply", "-f", "-", stdin=SITE % pg_port)
    cli.ok("job", "submit", "-f", "-", stdin=WAITS)
    wait_until("the check has run", lambda: "refused" in cli.ok("why", "instance/pg-1"), 15)
    contains("an instance is explained by its check, with result, time and vantage", cli.ok("why", "instance/pg-1"), "instance pg-1 of service pg is registered",
             "critical", "refused", "vantage server server", "since 20")
    wait_until("the job has begun to wait", lambda: "tasks that wait for it: 1" in cli.ok("why", "service/pg"), 10)
    contains("a service is explained by its instances, their checks, and the tasks that wait", cli.ok("why", "service", "pg"), "0 of 1 registered instances pass",
             "waiting_tasks:", "use", "pg-1", "refused")
    contains("a node by its instances, maintenance, tasks and SSH", cli.ok("why", "node/db-1"), "node db-1 is not in maintenance", "0 of its 1 instances pass",
             "no evidence: this server has not connected to it over SSH since it started", "tasks on it: 0 running, 1 waiting", "later@db-1 pending: the end of use")
    cli.ok("job", "submit", "-f", "-", stdin=REACHES)
    equal("a task on a node that refuses connections fails", cli("job", "wait", "reaches").status, 1)
    contains("and the node reports the failed connection and its time", cli.ok("why", "node/db-1"), "not reached over SSH as root@127.0.0.1:1 at 20", "ssh_reached: false")
    contains("a job by its missing conditions", cli.ok("why", "job/waits"), "job waits is running", "use: waiting", "missing:")
    equal("a task as `job why` does", cli.ok("why", "job/waits", "use"), cli.ok("job", "why", "waits", "use"))
    equal("a load balancer as `gslb why` does", cli.ok("why", "loadbalancer/www").split("\n")[0], cli.ok("gslb", "why", "www").split("\n")[0])
    contains("a pool by its members", cli.ok("why", "pool/eu"), "pool eu is usable", "eu-1", "loadbalancers:")
    contains("a member by its health and the load balancers that answer with it", cli.ok("why", "member/eu-1"), "member eu-1 of pool eu is healthy", "www.gslb.example")
    answer = json.loads(cli.ok("why", "job/waits", "use", "-o", "json"))
    equal("as JSON for scripts", (answer["kind"], answer["name"], answer["task"], answer["barriers"][0]["met"]), ("Job", "waits", "use", False))
    check("with the same members for every kind", all(json.loads(cli.ok("why", one, "-o", "json"))["message"] for one in
                                                     ("node/db-1", "service/pg", "instance/pg-1", "pool/eu", "member/eu-1", "loadbalancer/www", "job/waits")))
    contains("an earlier decision", cli.ok("why", "loadbalancer/www", "--at", "0s"), "www.gslb.example answers")
    equal("names of jobs are completed", cli.ok("__complete", "job", "show", "wa"), "waits\n")
    equal("and their tasks", cli.ok("__complete", "why", "job/waits", ""), "use\nlater@db-1\n")
    refused = cli("why", "node/db-1", "--at", "1h")
    equal("a kind without a history refuses an earlier time: 7", refused.status, 7)
    contains("and names which kinds have one", refused.err, "Node keeps no history", "LoadBalancer")
    contains("a kind without an explanation names which have one", cli("why", "secret/x").err, "no explanation for kind Secret", "Service")
    equal("a missing resource is not found: 3", cli("why", "service/nothing").status, 3)


def main(given):
    ran, gate = os.path.join(scratch(), "ran"), os.path.join(scratch(), "gate")
    step = write_file(os.path.join(scratch("programs"), "step"), f"""#!/bin/sh
echo "$ORRERY_CONTEXT $ORRERY_JOB $ORRERY_TASK $ORRERY_ATTEMPT $ORRERY_ATTEMPT_NUMBER" >>{ran}
echo "hello from $ORRERY_JOB $ORRERY_TASK"
while [ ! -e {gate} ]; do sleep 0.1; done
""", 0o700)
    nope = write_file(os.path.join(scratch("programs"), "nope"), "#!/bin/sh\necho it breaks >&2\nexit 3\n", 0o700)
    hook = Hook()
    server = Server(given.orrery, arguments=["--jobs-programs", f"step={step};nope={nope}"])
    server.start()
    cli = Cli(given.orrery, server, HOME=scratch("home"), XDG_CONFIG_HOME=scratch("home")).login(server)
    api = server.api()
    for name in ("one", "two"):
        api.post("/v1/jobs", job(name, hook.url), **{"X-Request-Id": f"trace-{name}"})
    wait_until("both jobs have started", lambda: os.path.exists(ran) and len(open(ran).readlines()) == 2, 10)
    server.kill()
    server.start()
    write_file(gate, "")
    api = server.api()
    for name in ("one", "two"):
        equal(f"job {name} fails by its last task, after the server was killed", cli("job", "wait", name, seconds=60).status, 1)
    lines = [line.split() for line in open(ran)]
    equal("each program has the context of its own job, also after the restart", {(line[1], line[0]) for line in lines}, {("one", "trace-one"), ("two", "trace-two")})
    check("and the attempt's id and number", all(len(line) == 5 and line[4] == "1" for line in lines), str(lines))
    equal("requests carry it", sorted(hook.seen), ["trace-one", "trace-two"])
    equal("the job shows it", api.get("/v1/jobs/one")["status"]["context"], "trace-one")
    wait_until("events carry it", lambda: "Job/one failed" in cli.ok("events", "--context", "trace-one"), 10)
    check("and none of the other job", "Job/two" not in cli.ok("events", "--context", "trace-one"))
    check("log lines carry it", re.search(r"context=trace-one actor=job/one message=\"job state changed job=one state=failed", server.log_text()), server.log_text()[-2000:])

    text = cli.ok("logs", "--context", "trace-one")
    contains("logs show all layers", text, "Job/one created", "one/first: attempt 1 started", "one/first | hello from one first", "one/fails | it breaks",
             "attempt failed task=fails attempt=1", "job state changed job=one state=failed", "Job/one failed")
    check("of that context only", "two" not in text, text)
    items = [json.loads(line) for line in cli.ok("logs", "--context", "trace-one", "-o", "json").splitlines()]
    equal("in the order of time", [item["time"] for item in items], sorted(item["time"] for item in items))
    equal("from every layer", {item["source"] for item in items}, {"log", "event", "task", "output"})
    order = [next(i for i, item in enumerate(items) if part in item["message"]) for part in ("Job/one created", "hello from one first", "hello from one last", "it breaks")]
    equal("earlier lines come first", order, sorted(order))
    equal("the same by the job's name", cli.ok("logs", "--job", "one"), text)
    check("by level", all(" warn " in line or " error " in line for line in cli.ok("logs", "--job", "one", "--level", "warn").splitlines()))
    contains("without a context: the server's lines and events", cli.ok("logs", "--since", "1h"), "url=http://", "Job/two created")
    equal("a context without lines is reported", cli("logs", "--context", "nothing").err, "no lines\n")

    forged = api.post("/v1/jobs", job("three", hook.url), **{"X-Request-Id": "a b\"; rm -rf"})["object"]["status"]["context"]
    check("a malformed id is replaced by a generated one", re.fullmatch("[0-9a-f]{16}", forged), forged)
    api.refused("a malformed context is refused", 400, "GET", "/v1/logs?context=a%20b")
    viewer = server.api(token=cli.ok("token", "create", "reader", "--role", "viewer").strip())
    viewer.refused("a viewer may not read the server's log", 403, "GET", "/v1/logs")

    follow = Process("follow", [given.orrery, "logs", "--follow", "--context", "trace-four"], cli.environment)
    api.post("/v1/jobs", job("four", hook.url), **{"X-Request-Id": "trace-four"})
    wait_until("new lines are followed", lambda: "it breaks" in follow.log_text() and "Job/four failed" in follow.log_text(), 20)
    follow.kill()
    shown = follow.log_text()
    equal("and shown once", shown.count("hello from four first"), 1)

    explains(cli, api, free_port())
    equal("it stops on SIGTERM", server.stop(), 0)
    equal("without an error in its log", server.error_lines(), [])


if __name__ == "__main__":
    run(main)

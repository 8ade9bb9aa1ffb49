#!/usr/bin/python3
"""Jobs with a Consul as the catalog: a submission waits for its answer, so that a barrier that nothing can open is refused at once. The Consul is the Consul facade of
a second server; tests/conformance/consul compares it with the real one."""
import http.client
import json
import os
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from orrery_lab import Cli, Server, check, contains, equal, free_port, run, scratch, wait_until, write_file  # noqa: E402

JOB = """\
kind: Job
name: %s
spec:
  tasks:
    - {name: use, wait: {service: %s}, with: {at: "${service.%s.endpoints}"}, run: {local: {program: note, arguments: ["at ${with.at}"]}}}
"""


def put(port, path, body):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    connection.request("PUT", path, json.dumps(body))
    equal(f"Consul accepts {path}", connection.getresponse().status, 200)
    connection.close()


def main(given):
    ran = os.path.join(scratch(), "ran")
    note = write_file(os.path.join(scratch("programs"), "note"), f"#!/bin/sh\necho \"$1\" >>{ran}\n", 0o700)
    port = free_port()
    consul = Server(given.orrery, "consul", arguments=["--catalog-http-listen", f"127.0.0.1:{port}", "--catalog-http-anonymous", "operator"])
    consul.start()
    server = Server(given.orrery, "jobs", arguments=["--catalog-consul-url", f"http://127.0.0.1:{port}", "--jobs-programs", f"note={note}"])
    server.start()
    cli = Cli(given.orrery, server, HOME=scratch("home"), XDG_CONFIG_HOME=scratch("home")).login(server)

    def submit(name, service):
        return cli("job", "submit", "-f", "-", stdin=JOB % (name, service, service))

    refused = submit("closed", "nobody")
    equal("a barrier on a service that Consul does not have is refused at submission: 7", refused.status, 7)
    contains("with its reason", refused.err, "spec.tasks[0].wait[0]: task use: cannot open: nothing in the plan provides nobody, and it is not registered")
    equal("and its name is not taken", cli("get", "job", "closed").status, 3)

    follows = "{kind: Job, name: follows, spec: {tasks: [{name: a, rerun_on: ghost, run: {local: {program: note, arguments: [x]}}}]}}"
    for command in ("submit", "plan"):
        refused = cli("job", command, "-f", "-", stdin=follows)
        equal(f"job {command}: so is a re-run for a service that Consul does not have: 7", refused.status, 7)
        contains(f"job {command}: with its reason", refused.err, "task a: there is no service ghost")
    waits = cli("job", "plan", "-f", "-", stdin=JOB % ("planned", "unheard", "unheard"))
    equal("a plan waits for the answer of Consul, too: 7", waits.status, 7)
    put(port, "/v1/catalog/register", {"Node": "n1", "Address": "192.0.2.1", "Service": {"Service": "web", "Port": 80}})
    accepted = submit("open", "web")
    equal("a service that is registered there can be waited for", (accepted.status, accepted.err), (0, ""))
    contains("and the task runs with its endpoint", cli.ok("job", "wait", "open"), "job open succeeded")
    with open(ran) as file:
        equal("as Consul has it", file.read(), "at 192.0.2.1:80\n")

    equal("Consul stops", consul.stop(), 0)
    begin = time.monotonic()
    unknown = submit("unknown", "later")
    equal("without an answer of Consul a job is accepted", unknown.status, 0)
    check("after some seconds at most", time.monotonic() - begin < 10, time.monotonic() - begin)
    contains("with a warning", unknown.err, "warning: whether 1 of later passing can be reached is not known")
    contains("it waits without evidence", cli.ok("job", "why", "unknown", "use"), "no evidence", "evidence: none")
    consul.start()
    put(port, "/v1/catalog/register", {"Node": "n2", "Address": "192.0.2.2", "Service": {"Service": "later", "Port": 81}})
    wait_until("and runs when Consul is back and has the service", lambda: server.api().get("/v1/jobs/unknown")["status"]["state"] == "succeeded", 60)
    equal("it stops on SIGTERM", server.stop(), 0)
    equal("without an error in its log", server.error_lines(), [])


if __name__ == "__main__":
    run(main)

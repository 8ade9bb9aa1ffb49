#!/usr/bin/python3 -B
"""Checks that are commands on real hosts, over SSH: the meaning of their exit codes, arguments without a shell, and an unreachable host as no
evidence."""
import os
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import orrery_lab as lab  # noqa: E402
from hosts import Hosts  # noqa: E402

PROBE = """#!/bin/sh
echo "$(date +%s%N) $#" >>/srv/checks
[ -e /srv/hangs ] && exec sleep 1000
echo "depth $(cat /srv/depth) of $1"
exit $(cat /srv/code)
"""


def main(options):
    hosts = Hosts(2)
    hosts.enter()
    server = lab.Server(options.orrery)
    server.start()
    api = server.api()
    api.put("/v1/secrets/lab-key", {"kind": "Secret", "name": "lab-key", "spec": {"values": {"private_key": hosts.private_key()}}})
    for host in hosts:
        lab.write_file(os.path.join(host.folder, "srv", "probe"), PROBE, 0o755)
        api.put(f"/v1/nodes/{host.name}", hosts.node(host))

    def set_up(host, code, depth=1):
        lab.write_file(os.path.join(host.folder, "srv", "depth"), f"{depth}\n")
        lab.write_file(os.path.join(host.folder, "srv", "code"), f"{code}\n")

    for host in hosts:
        set_up(host, 0)
    api.put("/v1/services/queue", {"kind": "Service", "name": "queue", "spec": {"checks": [
        {"name": "depth", "kind": "command", "command": ["/srv/probe", "a b; touch /srv/shell $(touch /srv/shell)"], "interval": "2s", "timeout": "2s", "rise": 1, "fall": 1}]}})
    for host in hosts:
        api.put(f"/v1/instances/queue-{host.name}", {"kind": "Instance", "name": f"queue-{host.name}", "spec": {"service": "queue", "node": host.name}})
    status = lambda name="h1": api.get(f"/v1/instances/queue-{name}").get("status", {})  # noqa: E731
    state = lambda name="h1": status(name).get("state")  # noqa: E731
    message = lambda name="h1": "".join(one.get("output", "") for one in status(name).get("checks", {}).values())  # noqa: E731

    begin = time.monotonic()
    lab.wait_until("commands on two hosts exit with 0: both pass", lambda: state("h1") == "passing" and state("h2") == "passing", 15)
    lab.log(f"      {time.monotonic() - begin:.1f} s after they were registered")
    lab.contains("its output is kept", message(), "depth 1 of a b; touch /srv/shell $(touch /srv/shell)")
    lab.equal("each argument arrives as one argument", {line.split()[1] for line in hosts[0].run("cat", "/srv/checks").splitlines()}, {"1"})
    lab.equal("and no shell interpreted it", hosts[0].run("sh", "-c", "ls /srv | grep -c shell || true").strip(), "0")
    set_up(hosts[0], 1, 70)
    lab.wait_until("exit code 1 warns: the instance is usable, no longer passing", lambda: state() == "usable" and "depth 70" in message(), 10)
    set_up(hosts[0], 2, 900)
    lab.wait_until("any other exit code is critical", lambda: state() == "registered" and "depth 900" in message(), 10)
    lab.equal("on its own host only", state("h2"), "passing")
    lab.contains("and its service lacks an instance, with the reason", api.get("/v1/services/queue")["status"]["message"], "on h1", "depth 900")
    set_up(hosts[0], 0)
    lab.wait_until("it passes again", lambda: state() == "passing", 10)

    # A host that cannot be asked is evidence of nothing.
    before = server.metrics()["orrery_checks_local_errors_total"]
    hosts[1].cut()
    lab.wait_until("an isolated host cannot be checked", lambda: server.metrics()["orrery_checks_local_errors_total"] >= before + 2, 30)
    lab.equal("and its state stays", state("h2"), "passing")
    hosts[1].heal()
    set_up(hosts[1], 2)
    lab.wait_until("until it can be checked again", lambda: state("h2") == "registered", 60)

    # A command that hangs is ended on its host, and not joined by another at every interval.
    lab.write_file(os.path.join(hosts[0].folder, "srv", "hangs"), "")
    lab.wait_until("a command that does not end within its timeout is critical", lambda: state() == "registered" and "did not end" in message(), 15)
    time.sleep(4)
    running = [line for line in hosts[0].processes() if line.startswith("sleep 1000")]
    lab.check(f"and commands do not accumulate on the host ({len(running)} run)", len(running) <= 1, running)
    os.unlink(os.path.join(hosts[0].folder, "srv", "hangs"))
    lab.wait_until("and it passes again", lambda: state() == "passing", 15)
    lab.equal("the server stops cleanly", server.stop(), 0)


lab.run(main)

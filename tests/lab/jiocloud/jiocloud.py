#!/usr/bin/python3 -B
"""examples/jiocloud.yaml unchanged, on ten hosts: it converges, knows that it is done, follows its members without storms, and wakes immediately."""
import os
import statistics
import subprocess
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import orrery_lab  # noqa: E402
from hosts import Hosts  # noqa: E402
from orrery_lab import Cli, Etcd, Server, check, equal, log, run, scratch  # noqa: E402

EXAMPLE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "..", "examples", "jiocloud.yaml")
MACHINES = {"bootstrap1": "bootstrap", "stmonleader1": "stmonleader", "stmon1": "stmon", "stmon2": "stmon", "ct1": "ct", "ocdb1": "ocdb", "oc1": "oc",
            "haproxy1": "haproxy", "cp1": "cp", "cp2": "cp"}


class Site:
    """Ten hosts, a server among them (or several that share an etcd), and a login."""

    def __init__(self, orrery, servers=1, **hosts):
        self.hosts = Hosts(len(MACHINES), **hosts)
        self.hosts.enter()
        self.by_name = dict(zip(MACHINES, self.hosts))
        if servers == 1:
            self.servers = [Server(orrery)]
        else:
            self.etcd = Etcd(1)
            key = os.path.join(scratch("shared"), "secrets.key")
            self.servers = [Server(orrery, name, store_url=self.etcd.url("lab"), arguments=["--secrets-key-file", key])
                            for name in ("alpha", "beta", "gamma", "delta", "epsilon")[:servers]]
        self.server = self.servers[0]
        self.server.start()
        for other in self.servers[1:]:
            other._token = self.server.token()
            other.start()
        self.api = self.server.api()
        self.api.put("/v1/secrets/lab-key", {"kind": "Secret", "name": "lab-key", "spec": {"values": {"private_key": self.hosts.private_key()}}})
        for name, host in self.by_name.items():
            node = self.hosts.node(host)
            labels = {"role": MACHINES[name], **({"api": "yes"} if MACHINES[name] in ("oc", "ocdb") else {})}
            self.api.put(f"/v1/nodes/{name}", {**node, "name": name, "labels": labels})
        self.cli = Cli(orrery, self.server).login(self.server)

    def ran(self, name):
        """(task, attempt) of each body that ran on a node, in order."""
        return [tuple(line.split()) for line in self.by_name[name].run("sh", "-c", "cat /srv/ran 2>/dev/null || true").splitlines()]

    def reruns(self):
        return sum(1 for task, _ in self.ran("haproxy1") if task.startswith("pools"))

    def wait_for(self, what, condition, seconds):
        end = time.monotonic() + seconds
        while not condition():
            if time.monotonic() > end:
                raise orrery_lab.Failed(f"{what}: not within {seconds} s")
            time.sleep(0.1)
        log(f"ok    {what}")

    def wait_job(self, name, seconds=120):
        try:
            done = self.cli("job", "wait", name, seconds=seconds)
        except subprocess.TimeoutExpired:
            raise orrery_lab.Failed(f"job {name} is not done after {seconds} s: {self.cli('job', 'wait', name, '--now').out}") from None
        check(f"job {name} is done", done.status == 0, f"{done}\n{self.cli('job', 'show', name)}")

    def quiet_reruns(self, seconds=8.0):
        """How often the pools were created, once the number is stable."""
        last, since = self.reruns(), time.monotonic()
        while time.monotonic() - since < seconds:
            time.sleep(0.2)
            if self.reruns() != last:
                last, since = self.reruns(), time.monotonic()
        return last


def converges(site):
    begun = time.monotonic()
    applied = site.cli("apply", "-f", EXAMPLE, "--reason", "the lab")
    check("the example is accepted unchanged", applied.status == 0, str(applied))
    site.wait_job("jiocloud")
    log(f"      ten hosts, 12 groups of tasks: {time.monotonic() - begun:.1f} s")
    equal("nothing is missing", site.api.get("/v1/jobs/jiocloud/missing")["missing"], [])
    for name in MACHINES:
        ran = site.ran(name)
        equal(f"no attempt ran twice on {name}", len(ran), len(set(ran)))
        once = [task for task, _ in ran if not task.startswith(("pools", "monmap"))]
        equal(f"no body ran twice on {name}", len(once), len(set(once)))
    equal("the followers' monitors are on the leader's map", site.by_name["stmonleader1"].run("cat", "/srv/monmap").count("10.77."), 3)
    equal("both identity servers are behind the load balancer", site.by_name["haproxy1"].run("cat", "/srv/pool-keystone").count(":5000"), 2)


def one_more_member(site):
    before = site.quiet_reruns()
    site.by_name["cp1"].run("sh", "-c", "setsid python3 -m http.server --directory /srv 5000 >/dev/null 2>&1 </dev/null &")
    site.api.put("/v1/instances/keystone-cp1", {"kind": "Instance", "name": "keystone-cp1", "spec": {"service": "keystone", "node": "cp1", "tags": ["real"]}})
    site.wait_for("the new member is in the pool", lambda: site.by_name["haproxy1"].run("cat", "/srv/pool-keystone").count(":5000") == 3, 30)
    equal("a new member: the pools are created again exactly once", site.quiet_reruns() - before, 1)


def flapping(site):
    before = site.quiet_reruns(1.0)
    begun = time.monotonic()
    for i in range(20):
        site.api.patch("/v1/instances/keystone-cp1", {"spec": {"maintenance": i % 2 == 0}})
        time.sleep(max(0.0, begun + (i + 1) * 0.5 - time.monotonic()))
    log(f"      20 changes in {time.monotonic() - begun:.1f} s")
    again = site.quiet_reruns() - before
    check(f"a member that flaps 20 times in 10 s: the pools are created again {again} times, at most 3", again <= 3, again)


def wakes_at_once(site):
    """From the write of an instance until the task that waited for it runs on its host. The median of several: a busy host can delay one."""
    took = []
    for i in range(7):
        beacon, job = f"beacon-{i}", f"wake-{i}"
        site.api.put(f"/v1/services/{beacon}", {"kind": "Service", "name": beacon, "spec": {"port": 1}})
        site.api.put(f"/v1/jobs/{job}", {"kind": "Job", "name": job, "spec": {"tasks": [
            {"name": "lit", "provides": beacon},
            {"name": "seen", "on": ["cp2"], "wait": beacon, "run": f"date +%s%N >/srv/seen-{i}"}]}})
        site.wait_for("the task waits", lambda: site.api.get(f"/v1/jobs/{job}/why?task=seen@cp2")["state"] == "waiting", 10)
        lit = time.time()
        site.api.put(f"/v1/instances/{beacon}-cp1", {"kind": "Instance", "name": f"{beacon}-cp1", "spec": {"service": beacon, "node": "cp1"}})
        site.wait_job(job, 20)
        took.append(int(site.by_name["cp2"].run("cat", f"/srv/seen-{i}")) / 1e9 - lit)
    log("      " + ", ".join(f"{each * 1000:.0f}" for each in took) + " ms")
    median = statistics.median(took)
    check(f"a barrier's task runs {median * 1000:.0f} ms after the catalog changed, less than 100", median < 0.1, took)


def main(given):
    site = Site(given.orrery)
    converges(site)
    one_more_member(site)
    flapping(site)
    wakes_at_once(site)
    equal("the server stops cleanly", site.server.stop(), 0)


if __name__ == "__main__":
    run(main)

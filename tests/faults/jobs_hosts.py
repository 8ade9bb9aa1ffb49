#!/usr/bin/python3 -B
"""Jobs on ten hosts with the problems that hosts have: three of ten are cut off for a while, one has a full disk, one another host key, one allows few
sessions, one few logins. The other hosts continue, messages name the problem, and after the repair nothing was lost and nothing ran twice. --cut 60 is the
long version."""
import os
import socket
import subprocess
import sys
import time

sys.path[:0] = [os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lab")]
import orrery_lab  # noqa: E402
from hosts import Hosts  # noqa: E402
from orrery_lab import Cli, Server, check, contains, equal, log, run, wait_until  # noqa: E402

RAN = 'echo "$ORRERY_TASK" >>/srv/ran\n'


def options(parser):
    parser.add_argument("--cut", type=float, default=10, help="seconds for which three hosts are cut off")


class Site:
    def __init__(self, orrery):
        def each(number):
            return {7: ["MaxStartups 2:100:2"], 8: ["MaxSessions 10"]}.get(number, ["MaxSessions 64", "MaxStartups 100:30:200"])
        self.hosts = Hosts(10, settings=(), each=each, small=lambda number: "2m" if number == 6 else None)
        self.hosts.enter()
        self.server = Server(orrery)
        self.server.start()
        self.api = self.server.api()
        self.api.put("/v1/secrets/lab-key", {"kind": "Secret", "name": "lab-key", "spec": {"values": {"private_key": self.hosts.private_key()}}})
        for host in self.hosts:
            self.api.put(f"/v1/nodes/{host.name}", {**self.hosts.node(host), "labels": {"role": "web"}})
        self.cli = Cli(orrery, self.server).login(self.server)

    def restart(self):
        """Restarts the server, so that it has no connections."""
        equal("the server stops cleanly", self.server.stop(), 0)
        self.server.start()
        self.api = self.server.api()

    def submit(self, name, tasks, **spec):
        self.api.put(f"/v1/jobs/{name}", {"kind": "Job", "name": name, "spec": {"tasks": tasks, **spec}})

    def states(self, name, task=None):
        """{node: state} of the instances of one task, or {task: state} of all."""
        tasks = self.api.get(f"/v1/jobs/{name}/tasks?limit=5000")["tasks"]
        return {one["node"] if task else one["task"]: one["state"] for one in tasks if not task or one["name"] == task}

    def why(self, name, task):
        return self.cli.ok("job", "why", name, task)

    def output(self, name, task):
        return "".join(piece["text"] for piece in self.api.get(f"/v1/jobs/{name}/output?task={task}")["pieces"] if piece["stream"] == "out")

    def wait_done(self, name, seconds=60):
        ended = self.cli("job", "wait", name, seconds=seconds)
        check(f"job {name} succeeds", ended.status == 0, f"{ended}\n{self.cli('job', 'show', name)}")

    def ran_once(self, what, host, *tasks):
        ran = host.run("cat", "/srv/ran").split()
        equal(what, [ran.count(task) for task in tasks], [1] * len(tasks))


def cut_off(site, seconds):
    lines = 12
    body = RAN + f"for i in $(seq {lines}); do echo line $i of {lines}; sleep 0.25; done\n"
    site.submit("cut", [{"name": "first", "on": "web", "timeout": "10m", "run": body}, {"name": "second", "on": "web", "after": "first", "same_host": True, "run": RAN}])
    wait_until("all ten hosts run the task", lambda: all(host.run("cat", "/srv/ran", check=False) for host in site.hosts), 20)
    cut, rest = site.hosts[0:3], site.hosts[3:10]
    for host in cut:
        host.cut()
    begun = time.monotonic()
    wait_until("the seven other hosts are done", lambda: all(site.states("cut", "second")[host.name] == "succeeded" for host in rest), 30)
    took = time.monotonic() - begun
    log(f"ok    with three of ten hosts cut off, the seven others were done {took:.1f} s later")
    equal("the tasks of the three hosts are still running", [site.states("cut", "first")[host.name] for host in cut], ["running"] * 3)
    message = ""
    while time.monotonic() < begun + seconds:
        message = message or next((text for host in cut if "is unreachable" in (text := site.why("cut", f"first@{host.name}"))), "")
        time.sleep(0.5)
    if seconds > 62:  # a connection is closed after 45 s without an answer
        contains("`why` has the problem", message, "is unreachable", "tries to reach it again")
    log(f"      {message.splitlines()[0] if message else 'the connection was not closed in this time'}")
    for host in cut:
        host.heal()
    healed = time.monotonic()
    site.wait_done("cut", 120)
    log(f"      the three were reattached and done {time.monotonic() - healed:.1f} s after {seconds:.0f} s without a network")
    for host in site.hosts:
        equal(f"the output of {host.name} is complete", site.output("cut", f"first@{host.name}"), "".join(f"line {i} of {lines}\n" for i in range(1, lines + 1)))
        site.ran_once(f"nothing ran twice on {host.name}", host, f"first@{host.name}", f"second@{host.name}")
    wait_until("nothing of the job is left on the hosts", lambda: site.api.get("/v1/jobs/cut")["status"].get("cleaned"), 90)


def lost_for_good(site):
    """The long version only: it waits for a minute."""
    host = site.hosts[9]
    site.submit("gone", [{"name": "long", "on": [host.name], "timeout": "5s", "run": RAN + "sleep 20"}])
    wait_until("the task runs", lambda: "long" in host.run("cat", "/srv/ran"), 20)
    host.cut()
    ended = site.cli("job", "wait", "gone", seconds=150)
    check("a job on a host that stays unreachable fails", ended.status != 0, str(ended))
    equal("its task is lost", site.states("gone"), {f"long@{host.name}": "lost"})
    contains("with a message", site.why("gone", f"long@{host.name}"), "it did not end within 5s", "cannot be ended")
    host.heal()


def never_reached(site):
    host = site.hosts[9]
    host.cut()
    site.restart()
    site.submit("away", [{"name": "reach", "on": [site.hosts[8].name, host.name], "retries": {"times": 20, "delay": "500ms", "max_delay": "1s", "on": ["connect"]}, "run": RAN}])
    wait_until("the other host is done", lambda: site.states("away", "reach")[site.hosts[8].name] == "succeeded", 20)
    wait_until("a message names the unreachable host", lambda: "next try" in site.why("away", f"reach@{host.name}"), 40)
    equal("nothing was started there", f"reach@{host.name}" in host.run("cat", "/srv/ran"), False)
    log("      " + site.why("away", f"reach@{host.name}").splitlines()[0])
    host.heal()
    site.wait_done("away", 90)
    site.ran_once("the task ran once", host, f"reach@{host.name}")


def disk_full(site):
    host = site.hosts[6]
    host.run("sh", "-c", "head -c 10000000 /dev/zero >/root/fill; true", check=False)
    site.submit("full", [{"name": "write", "on": "web", "run": RAN}])
    ended = site.cli("job", "wait", "full", seconds=40)
    check("a job with a host whose disk is full fails", ended.status != 0, str(ended))
    states = site.states("full", "write")
    equal("on that host, and on no other", {name: state for name, state in states.items() if state != "succeeded"}, {host.name: "failed"})
    message = site.why("full", f"write@{host.name}")
    contains("`why` names the disk", message, f"the disk of {host.name} is full", "free space there")
    log("      " + message.splitlines()[0])
    host.run("rm", "/root/fill")
    site.cli.ok("job", "retry", "full")
    site.wait_done("full")
    for one in site.hosts:
        site.ran_once(f"the task ran once on {one.name}", one, f"write@{one.name}")
    site.submit("filling", [{"name": "fill", "on": [host.name], "run": "echo begun; head -c 10000000 /dev/zero; exit 9"}])
    site.cli("job", "wait", "filling", seconds=40)
    message = site.why("filling", f"fill@{host.name}")
    contains("a task that fills the disk itself has its exit code and the reason", message, "exit code 9", "disk is full")
    check("and its output until then", site.output("filling", f"fill@{host.name}").startswith("begun\n"))
    wait_until("its files are removed", lambda: host.run("sh", "-c", "ls /root/.orrery/attempts") == "", 20)


def changed_key(site):
    host = site.hosts[5]
    before = host.host_key
    host.change_key()

    def fingerprint(key):
        return subprocess.run(["ssh-keygen", "-lf", "-"], input=key, capture_output=True, text=True).stdout.split()[1]
    site.submit("key", [{"name": "do", "on": "web", "run": RAN}])
    ended = site.cli("job", "wait", "key", seconds=40)
    check("a job with a host whose key changed fails", ended.status != 0, str(ended))
    equal("on that host, and on no other", {name: state for name, state in site.states("key", "do").items() if state != "succeeded"}, {host.name: "failed"})
    message = site.why("key", f"do@{host.name}")
    contains("`why` shows both fingerprints", message, fingerprint(before), fingerprint(host.host_key))
    log("      " + message.splitlines()[0])
    equal("nothing ran there", "do@" in host.run("cat", "/srv/ran"), False)
    site.api.put(f"/v1/nodes/{host.name}", {**site.hosts.node(host), "labels": {"role": "web"}})
    site.cli.ok("job", "retry", "key")
    site.wait_done("key")
    site.ran_once("with the new key in its Node the task runs, once", host, f"do@{host.name}")


def few_sessions(site):
    host = site.hosts[8]
    tasks = [{"name": f"t{i}", "on": [host.name], "run": RAN + "echo done; sleep 0.3"} for i in range(40)]
    site.submit("sessions", tasks, limits={"per_host": 40})
    site.wait_done("sessions")
    names = [f"t{i}@{host.name}" for i in range(40)]
    site.ran_once("40 tasks at once on a host with MaxSessions 10: each ran once", host, *names)
    equal("the output of each is there", [site.output("sessions", name) for name in names], ["done\n"] * 40)


def few_logins(site):
    host = site.hosts[7]
    # Two connections that send nothing use up the allowed logins.
    site.restart()
    held = [socket.create_connection((host.address, 22)) for _ in range(2)]
    for one in held:
        one.recv(100)
    site.submit("logins", [{"name": "enter", "on": "web", "retries": {"times": 20, "delay": "500ms", "max_delay": "1s", "on": ["connect"]}, "run": RAN}])
    others = [one.name for one in site.hosts if one is not host]
    wait_until("the other nine hosts are done", lambda: all(site.states("logins", "enter")[name] == "succeeded" for name in others), 30)
    message = wait_until("a message reports that the host refuses logins", lambda: (text := site.why("logins", f"enter@{host.name}")) and "next try" in text and text, 30)
    contains("a task on a host that refuses logins (MaxStartups 2) waits, with the reason", message, "waiting", "MaxStartups")
    log("      " + message.splitlines()[0])
    for one in held:
        one.close()
    site.wait_done("logins")
    site.ran_once("when logins are possible again, the task runs, once", host, f"enter@{host.name}")


def main(given):
    site = Site(given.orrery)
    cut_off(site, given.cut)
    never_reached(site)
    disk_full(site)
    changed_key(site)
    few_sessions(site)
    few_logins(site)
    if given.cut >= 45:
        lost_for_good(site)
    equal("the server stops cleanly", site.server.stop(), 0)
    equal("the log has no errors", site.server.error_lines(), [])


if __name__ == "__main__":
    run(main, options)

#!/usr/bin/python3
"""Barriers may never open wrongly: a real server, real listeners on loopback, programs on the server as tasks."""
import contextlib
import json
import os
import socket
import socketserver
import sys
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from orrery_lab import Cli, Failed, Server, check, contains, equal, free_port, log, run, scratch, wait_until, write_file  # noqa: E402

BASE = f"127.{40 + os.getpid() % 180}.{os.getpid() // 180 % 250}"
PG, WEB = 15432, 18080
CHECK = "checks: [{id: up, kind: tcp, interval: 1s, timeout: 1s, rise: 1, fall: 2}]"


class Listener:
    """Accepts connections on one address and port, until it is closed."""

    def __init__(self, address, port):
        self.socket = socket.socket()
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.socket.bind((address, port))
        self.socket.listen(64)
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        with contextlib.suppress(OSError):
            while True:
                self.socket.accept()[0].close()

    def close(self):
        with contextlib.suppress(OSError):
            self.socket.shutdown(socket.SHUT_RDWR)
        self.socket.close()


def encoded(name):
    return b"".join(len(label).to_bytes(1, "big") + label.encode() for label in name.split(".")) + b"\0"


class Names(socketserver.BaseRequestHandler):
    """A DNS server with the A records that `addresses` holds at one name, and the SRV records that `targets` holds at another; any other name does not exist."""

    name, addresses = "db.example.org", []
    service, targets = "_pg._tcp.example.org", []

    def handle(self):
        query, sock = self.request
        end = query.index(b"\0", 12) + 5
        asked, at = [], 12
        while query[at]:
            asked.append(query[at + 1:at + 1 + query[at]].decode())
            at += 1 + query[at]
        name, type_asked = ".".join(asked).lower(), query[end - 3]
        data = []
        if name == self.name and type_asked == 1:
            data = [socket.inet_aton(one) for one in self.addresses]
        if name == self.service and type_asked == 33:
            data = [b"\0\0\0\0" + port.to_bytes(2, "big") + encoded(target) for target, port in self.targets]
        known = name in (self.name, self.service)
        head = query[:2] + (b"\x81\x80" if known else b"\x81\x83") + b"\0\1" + len(data).to_bytes(2, "big") + b"\0\0\0\0"
        answers = b"".join(b"\xc0\x0c\0" + bytes([type_asked]) + b"\0\1\0\0\0\0" + len(one).to_bytes(2, "big") + one for one in data)
        sock.sendto(head + query[12:end] + answers, self.client_address)


class Site:
    def __init__(self, orrery):
        self.folder = scratch("tasks")
        program = write_file(os.path.join(scratch("programs"), "note"), f"""#!/bin/sh
echo "$1 begins $2" >>{self.folder}/order
sleep "${{3:-0}}"
echo "$1 ends" >>{self.folder}/order
""", 0o700)
        self.names_port = free_port()
        self.names = socketserver.ThreadingUDPServer(("127.0.0.1", self.names_port), Names)
        threading.Thread(target=self.names.serve_forever, daemon=True).start()
        arguments = ["--jobs-programs", f"note={program}", "--jobs-slots", "2"]
        if b"jobs.name_servers" in open(orrery, "rb").read():  # one that does not know the setting is tried too, by hand
            arguments += ["--jobs-name-servers", f"127.0.0.1:{self.names_port}"]
        self.server = Server(orrery, arguments=arguments)
        self.server.start()
        self.cli = Cli(orrery, self.server, HOME=scratch("home"), XDG_CONFIG_HOME=scratch("home")).login(self.server)
        self.listeners = {}
        self.apply("\n---\n".join(f"{{kind: Node, name: n{i}, labels: {{role: db}}, spec: {{address: {BASE}.{10 + i}}}}}" for i in (1, 2, 3)))
        self.apply(f"{{kind: Service, name: pg, spec: {{port: {PG}, {CHECK}}}}}")
        self.apply("\n---\n".join(f"{{kind: Instance, name: pg-n{i}, spec: {{service: pg, node: n{i}}}}}" for i in (1, 2, 3)))

    def apply(self, text):
        self.cli.ok("apply", "-f", "-", stdin=text)

    def submit(self, name, tasks):
        return self.cli("job", "submit", "-f", "-", stdin=f"kind: Job\nname: {name}\nspec:\n  limits: {{per_host: 9}}\n  tasks:\n" + "".join(f"    - {task}\n" for task in tasks))

    def accepted(self, name, tasks):
        out = self.submit(name, tasks)
        check(f"job {name} is accepted", out.status == 0, str(out))

    def api(self):
        return self.server.api()

    def task(self, job, task):
        tasks = self.api().get(f"/v1/jobs/{job}/tasks")["tasks"]
        return next(one for one in tasks if one["task"] == task)

    def why(self, job, task):
        return self.cli.ok("job", "why", job, task)

    def passing(self, service="pg"):
        return self.api().get(f"/v1/services/{service}")["status"].get("passing", 0)

    def listen(self, port=PG, nodes=(1, 2, 3)):
        for i in nodes:
            self.listeners[i, port] = Listener(f"{BASE}.{10 + i}", port)

    def hush(self):
        for one in self.listeners.values():
            one.close()
        self.listeners.clear()

    def order(self):
        with open(os.path.join(self.folder, "order")) as file:
            return file.read().splitlines()

    def stays(self, what, job, task, state, seconds):
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            seen = self.task(job, task)["state"]
            if seen != state:
                raise Failed(f"{what}: it is {seen}, not {state}")
            time.sleep(0.2)
        log(f"ok    {what}")

    def over(self, job, state="succeeded", seconds=30):
        wait_until(f"job {job} is {state}", lambda: self.api().get(f"/v1/jobs/{job}")["status"].get("state") == state, seconds)

    def cancel(self, job):
        self.cli("job", "cancel", job)
        wait_until(f"{job} has ended", lambda: self.api().get(f"/v1/jobs/{job}")["status"]["state"] in ("cancelled", "succeeded", "failed"), 20)


def note(name, argument="", seconds=0):
    argument = f"at {argument}" if argument else ""  # a text: a value alone would be a list
    return f"run: {{local: {{program: note, arguments: [{name}, \"{argument}\", \"{seconds}\"]}}}}"


def a_service_in_use_stays(site):
    site.accepted("uses", ["{name: use, wait: {service: pg, count: 3}, with: {list: '${service.pg.endpoints}'}, " + note("uses", "${with.list}") + "}"])
    refused = site.cli("delete", "service", "pg")
    check("a Service that instances and a job use is not deleted", refused.status != 0, str(refused))
    contains("with the list of them", refused.err, "Instance/pg-n1", "Instance/pg-n3", "Job/uses: task use waits for it")
    refused = site.cli("delete", "node", "n1")
    check("nor is a Node with an instance", refused.status != 0, str(refused))
    contains("with the list", refused.err, "Instance/pg-n1")
    site.apply(f"{{kind: Node, name: n4, spec: {{address: {BASE}.14}}}}")
    site.accepted("waits", ["{name: use, on: [n4], wait: {service: pg, count: 3}, " + note("waits") + "}"])
    refused = site.cli("delete", "node", "n4")
    check("nor is a Node with a waiting task", refused.status != 0, str(refused))
    contains("with the task", refused.err, "Job/waits (task use runs on it)")
    site.cancel("waits")
    site.stays("the barrier stays closed", "uses", "use", "waiting", 1)
    wrong = site.cli("apply", "-f", "-", stdin="{kind: Service, name: typo, spec: {wantd: 1}}\n---\n{kind: Instance, name: typo-n1, spec: {service: typo, node: n1}}")
    check("an invalid Service is refused, and its Instance with it", wrong.status != 0, str(wrong))
    contains("both are named", wrong.err + wrong.out, "spec.wantd", "refers to Service \"typo\", which does not exist")
    equal("no Instance was created", [one["name"] for one in site.api().get("/v1/instances")["items"] if "typo" in one["name"]], [])
    site.cancel("uses")


def evidence_is_fresh(site):
    site.listen()
    wait_until("all three pass", lambda: site.passing() == 3, 20)
    equal("the server stops", site.server.stop(), 0)
    site.hush()
    site.server.start()
    site.accepted("after", ["{name: use, wait: {service: pg, count: 3}, with: {list: '${service.pg.endpoints}'}, " + note("after", "${with.list}") + "}"])
    site.stays("a task does not start on observations from before the restart", "after", "use", "waiting", 4)
    site.listen()
    site.over("after")
    contains("it starts when all three pass again", "\n".join(site.order()), f"after begins at {BASE}.11:{PG},{BASE}.12:{PG},{BASE}.13:{PG}")
    site.hush()
    wait_until("none passes", lambda: site.passing() == 0, 20)
    site.accepted("late", ["{name: use, wait: {service: pg, count: 3, deadline: 10s}, " + note("late") + "}"])
    wait_until("it waits", lambda: site.task("late", "use")["state"] == "waiting", 5)
    site.server.kill()
    time.sleep(11)
    site.listen()
    site.server.start()
    site.over("late")
    log("ok    a deadline does not run while no server does")


def a_rerun_has_its_barrier(site):
    wait_until("all three pass", lambda: site.passing() == 3, 20)
    site.accepted("pool", ["{name: pool, wait: {service: pg, count: 3}, rerun_on: {service: pg, debounce: 200ms, min_interval: 200ms}, with: {list: '${service.pg.endpoints}'}, "
                           + note("pool", "${with.list}") + "}"])
    site.over("pool", "converged")
    site.hush()
    wait_until("none passes", lambda: site.passing() == 0, 20)
    wait_until("the re-run waits for its barrier", lambda: site.task("pool", "pool")["state"] == "waiting", 10)
    equal("the job is not converged", site.api().get("/v1/jobs/pool/progress")["state"], "running")
    contains("and gives the reason", site.why("pool", "pool"), "3 of pg passing", "0 of 3 seen")
    equal("it ran once, with all three", [line for line in site.order() if line.startswith("pool begins")], [f"pool begins at {BASE}.11:{PG},{BASE}.12:{PG},{BASE}.13:{PG}"])
    site.cancel("pool")


def without_a_check(site):
    site.apply("{kind: Service, name: quiet, spec: {port: 1}}")
    site.apply("{kind: Instance, name: quiet-n1, spec: {service: quiet, node: n1}}")
    tasks = ["{name: start, on: [n1], provides: quiet, " + note("start", "", 1.5) + "}", "{name: use, wait: quiet, " + note("use") + "}"]
    plan = site.cli.ok("job", "plan", "-f", "-", stdin="kind: Job\nname: quiet\nspec:\n  tasks:\n" + "".join(f"    - {task}\n" for task in tasks))
    contains("the plan names the service without a check", plan, "service quiet has no check")
    site.accepted("quiet", tasks)
    site.over("quiet")
    lines = [line.strip() for line in site.order() if line.startswith(("start ", "use "))]
    equal("its dependants run after its provider has ended", lines, ["start begins", "start ends", "use begins", "use ends"])


def barriers_that_can_open(site):
    site.apply(f"{{kind: Service, name: web, spec: {{port: {WEB}, {CHECK}}}}}")
    site.accepted("web", ["{name: start, on: [n2], provides: web, " + note("web-start") + "}", "{name: use, wait: web, with: {at: '${service.web.endpoints}'}, " + note("web-use", "${with.at}") + "}"])
    wait_until("the task that provides it has ended", lambda: site.task("web", "start@n2")["state"] == "succeeded", 10)
    contains("`why` names its provider", site.why("web", "use"), "n2 is registered", "provided by: start@n2 (succeeded)")
    site.listen(WEB, [2])
    site.over("web")
    contains("the instance that `provides` registered has its node's address and its service's port", "\n".join(site.order()), f"web-use begins at {BASE}.12:{WEB}")
    site.hush()
    wait_until("pg is down", lambda: site.passing() == 0, 20)
    wait_until("and so is web", lambda: site.passing("web") == 0, 20)
    cycle = site.submit("cycle", ["{name: a, on: [n1], wait: web, provides: pg, " + note("a") + "}", "{name: b, on: [n2], wait: {service: pg}, provides: web, " + note("b") + "}",
                                  "{name: c, on: [n2, n3], wait: web, provides: pg, " + note("c") + "}"])
    check("a cycle of barriers over registered instances is refused", cycle.status != 0, str(cycle))
    contains("and named", cycle.err, "a waits for web, which b provides", "b waits for pg, which")
    site.apply(f"{{kind: Service, name: nowhere, spec: {{port: {WEB}, {CHECK}}}}}")
    no_node = site.submit("nowhere", ["{name: start, provides: nowhere, " + note("nowhere-start") + "}", "{name: use, wait: nowhere, " + note("nowhere-use") + "}"])
    contains("a task that provides a service on no node is warned of", no_node.err, "warning: start provides nowhere and runs on no node")
    site.cancel("nowhere")
    site.apply(f"{{kind: Service, name: outside, spec: {{port: {WEB}, wanted: 1, {CHECK}}}}}")
    site.accepted("outside", ["{name: use, wait: outside, " + note("outside") + "}"])
    contains("a service that others register later can be waited for", site.why("outside", "use"), "external service", "no instance of it is registered")
    site.apply("{kind: Instance, name: outside-n3, spec: {service: outside, node: n3}}")
    site.listen(WEB, [3])
    site.over("outside")
    site.hush()


def dns_names(site):
    Names.addresses = []
    site.accepted("named", ["{name: use, wait: {dns: db.example.org, count: 2}, " + note("named") + "}"])
    site.stays("a task waits for a DNS name", "named", "use", "waiting", 1)
    Names.addresses = ["192.0.2.1"]
    wait_until("one address of two is seen", lambda: "2 A records of db.example.org (1 of 2 seen)" in site.why("named", "use"), 15)
    Names.addresses = ["192.0.2.1", "192.0.2.2"]
    site.over("named")
    log("ok    it runs when the name has two addresses")
    Names.targets = [("a.example.org", PG)]
    site.accepted("srv", ["{name: use, wait: {dns: _pg._tcp.example.org, type: SRV, count: 2}, " + note("srv") + "}"])
    wait_until("one SRV record of two is seen", lambda: "2 SRV records of _pg._tcp.example.org (1 of 2 seen)" in site.why("srv", "use"), 15)
    Names.targets = [("a.example.org", PG), ("b.example.org", PG)]
    site.over("srv")


def slots_go_round(site):
    site.accepted("a-many", [f"{{name: t{i}, " + note("many", "", 0.5) + "}" for i in range(12)])
    site.accepted("b-one", ["{name: t, " + note("one") + "}"])
    site.over("b-one", seconds=2.5)
    equal("a job does not wait for all tasks of the job before it", site.api().get("/v1/jobs/a-many/progress")["state"], "running")
    site.over("a-many")


PARTS = [a_service_in_use_stays, evidence_is_fresh, a_rerun_has_its_barrier, without_a_check, barriers_that_can_open, dns_names, slots_go_round]


def main(given):
    if not given.each:
        site = Site(given.orrery)
        for part in PARTS:
            log(f"--- {part.__name__.replace('_', ' ')}")
            part(site)
        equal("without an error in the log", site.server.error_lines(), [])
        return
    for part in PARTS:  # each on a server of its own, whatever became of those before
        log(f"--- {part.__name__.replace('_', ' ')}")
        site = Site(given.orrery)
        try:
            if part is a_rerun_has_its_barrier:
                site.listen()
            part(site)
            log(f"HOLDS {part.__name__}")
        except (Failed, KeyError, StopIteration, json.JSONDecodeError) as error:
            log(f"DOES NOT HOLD {part.__name__}: {error}")
        site.hush()
        site.server.kill()
        os.remove(os.path.join(site.folder, "order")) if os.path.exists(os.path.join(site.folder, "order")) else None
        __import__("shutil").rmtree(site.server.folder, ignore_errors=True)


if __name__ == "__main__":
    run(main, lambda parser: parser.add_argument("--each", action="store_true", help="tries every part by itself and names which hold"))

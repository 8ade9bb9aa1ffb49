"""A real Consul as the catalog: members are read from it and instances are written to it. A failure of Consul is never taken for an empty service."""
import contextlib
import http.client
import json
import os
import queue
import signal
import socket
import subprocess
import threading
import time

import differential
import orrery_lab as lab

MASTER = "11111111-2222-3333-4444-555555555555"


class Follower:
    """consul_follow: what the driver receives, line by line."""

    def __init__(self, build, url, service, token="", wait=60, grace=10):
        program = os.path.join(build, "tests", "conformance", "consul_follow")
        self.child = subprocess.Popen([program, url, service, token, str(wait), str(grace)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.lines = queue.Queue()
        self.seen = []  # all that was taken from the queue
        threading.Thread(target=lambda: [self.lines.put(line.strip()) for line in self.child.stdout], daemon=True).start()

    def expect(self, what, begins, seconds=15):
        """Waits for a line that begins with the text, or is just "members": the service is empty."""
        end = time.monotonic() + seconds
        seen = []
        while time.monotonic() < end:
            try:
                line = self.lines.get(timeout=0.2)
            except queue.Empty:
                continue
            seen.append(line)
            self.seen.append(line)
            if line.startswith(begins) if begins != "members" else line == "members":
                lab.log(f"ok    {what}: {line[:140]}")
                return line
        raise lab.Failed(f"{what}: wanted {begins!r}, saw {seen}")

    def quiet(self, what, seconds):
        time.sleep(seconds)
        lab.check(what, self.lines.empty(), "saw " + " | ".join(self.lines.queue))

    def stop(self):
        self.child.stdin.close()
        self.child.wait(10)


class Relay:
    """A relay between a server and its Consul that can be cut: then nothing that was sent arrives."""

    def __init__(self, address, target):
        self.address, self.target, self.open = (address, 18501), target, True
        self.url = f"http://{address}:18501"
        self.pairs = []
        self.listener = socket.create_server(self.address)
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            try:
                client, _ = self.listener.accept()
            except OSError:
                return
            with contextlib.suppress(OSError):
                if not self.open:
                    client.close()
                    continue
                server = socket.create_connection(self.target)
                self.pairs.append((client, server))
                for a, b in ((client, server), (server, client)):
                    threading.Thread(target=self.pump, args=(a, b), daemon=True).start()

    @staticmethod
    def pump(source, sink):
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                sink.sendall(data)
        for end in (source, sink):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def cut(self):
        self.open = False
        for pair in self.pairs:
            for end in pair:
                with contextlib.suppress(OSError):
                    end.shutdown(socket.SHUT_RDWR)
        self.pairs = []

    def heal(self):
        self.open = True


def put(consul, path, body):
    status, _, text = differential.request(consul.http, "PUT", path, body)
    if status != 200:
        raise lab.Failed(f"Consul refused {path} with {status}: {text}")


def get(consul, path):
    return differential.as_value(differential.request(consul.http, "GET", path)[2])


def web(status, **more):
    return {"Node": "n1", "Address": "10.0.0.1", "Service": {"Service": "web", "Port": 80}, "Check": {"CheckID": "c", "Name": "c", "Status": status, "ServiceID": "web"}, **more}


def members(build, make_consul, address):
    consul = make_consul(address)
    put(consul, "catalog/register", web("passing"))
    follower = Follower(build, consul.http, "web")
    follower.expect("members are read", "members n1=10.0.0.1:80/passing")
    begin = time.monotonic()
    put(consul, "catalog/register", web("critical"))
    follower.expect("a change is seen", "members n1=10.0.0.1:80/registered")
    lab.log(f"      {1000 * (time.monotonic() - begin):.0f} ms after it was made")
    put(consul, "kv/unrelated", "x")
    follower.quiet("changes of other services are not reported", 1)
    consul.process.kill()
    follower.expect("a Consul that is gone is no evidence", "unavailable")
    consul = make_consul(address)  # it comes back empty
    follower.expect("when it answers again, what it says counts", "members")
    follower.stop()
    # One that takes questions and answers none.
    put(consul, "catalog/register", web("passing"))
    follower = Follower(build, consul.http, "web", wait=2, grace=1)
    follower.expect("members are read", "members n1=10.0.0.1:80/passing")
    os.kill(consul.process.pid, signal.SIGSTOP)
    follower.expect("a Consul that hangs is no evidence either, once its answer is overdue", "unavailable", 6)
    os.kill(consul.process.pid, signal.SIGCONT)
    follower.expect("until it continues", "members n1=10.0.0.1:80/passing", 20)
    lab.check("no member was ever reported as removed", "members" not in follower.seen, follower.seen)
    follower.stop()
    consul.process.kill()


def acls(build, make_consul, address):
    consul = make_consul(address, extra=["-hcl", f'acl {{ enabled = true default_policy = "deny" tokens {{ initial_management = "{MASTER}" agent = "{MASTER}" }} }}'])

    def call(method, path, body=None):
        connection = http.client.HTTPConnection(address, 18500, timeout=10)
        with contextlib.closing(connection):
            connection.request(method, "/v1/" + path, json.dumps(body) if body is not None else None, {"X-Consul-Token": MASTER})
            answer = connection.getresponse()
            return answer.status, differential.as_value(answer.read())

    all_rights = 'service_prefix "" { policy = "read" } node_prefix "" { policy = "read" }'
    lab.wait_until("ACLs are up", lambda: call("PUT", "catalog/register", web("passing"))[0] == 200, 30, 0.3)
    lab.equal("a policy that sees services without their nodes", call("PUT", "acl/policy", {"Name": "blind", "Rules": 'service "web" { policy = "read" }'})[0], 200)
    status, seeing_policy = call("PUT", "acl/policy", {"Name": "seeing", "Rules": all_rights})
    lab.equal("and one that sees all", status, 200)
    tokens = {name: call("PUT", "acl/token", {"Policies": [{"Name": name}]})[1]["SecretID"] for name in ("blind", "seeing")}
    seeing = Follower(build, consul.http, "web", tokens["seeing"])
    seeing.expect("with the right token", "members n1=")
    blind = Follower(build, consul.http, "web", tokens["blind"])
    blind.expect("an answer that the token's rights emptied is an error", "unavailable Consul left out entries that the token must not see")
    wrong = Follower(build, consul.http, "web", "99999999-2222-3333-4444-555555555555")
    wrong.expect("and so is a token that Consul does not know", "unavailable Consul answered 403")
    without_token = Follower(build, consul.http, "web")
    without_token.expect("and none at all, though Consul then keeps silent about what it left out", "unavailable Consul denies by default")
    # Rights that go while we follow: Consul then answers 200 with an empty list.
    lab.equal("the permissions are revoked", call("PUT", f"acl/policy/{seeing_policy['ID']}", {"Name": "seeing", "Rules": 'service "web" { policy = "read" }'})[0], 200)
    changes = threading.Event()

    def change():
        port = 80
        while not changes.wait(0.5):
            port += 1
            call("PUT", "catalog/register", web("passing", Service={"Service": "web", "Port": port}))

    threading.Thread(target=change, daemon=True).start()
    # Consul does not inform waiting clients; the answer that ends the wait (a minute) is the first to show it.
    seeing.expect("rights that went are noticed", "unavailable Consul left out entries that the token must not see", 90)
    changes.set()
    for follower in (seeing, blind, wrong, without_token):
        lab.check("no member was ever reported as removed", "members" not in follower.seen + list(follower.lines.queue), follower.seen)
        follower.stop()
    consul.process.kill()


def job(build, make_consul, address, relay_address):
    """A job that waits for services of a real Consul, and a task that follows its members."""
    consul = make_consul(address)
    relay = Relay(relay_address, (address, 18500))
    ran = os.path.join(lab.scratch(), "ran")
    step = lab.write_file(os.path.join(lab.scratch("programs"), "step"), f"#!/bin/sh\necho \"$MEMBERS\" >>{ran}\n", 0o700)
    lines = lambda: [",".join(json.loads(line)) for line in open(ran)] if os.path.exists(ran) else []  # noqa: E731
    server = lab.Server(os.path.join(build, "orrery"), "waits", arguments=["--catalog-consul-url", relay.url, "--catalog-consul-allow-plaintext", "--jobs-programs", f"step={step}"])
    server.start()
    api = server.api()
    api.put("/v1/services/web", {"kind": "Service", "name": "web", "spec": {"port": 80}})
    api.put("/v1/jobs/waits", {"kind": "Job", "name": "waits", "spec": {"tasks": [
        {"name": "lit", "provides": "web"},
        {"name": "pool", "wait": {"service": "web", "count": 1}, "with": {"members": "${service.web.endpoints}"}, "env": {"MEMBERS": "${with.members}"},
         "rerun_on": {"service": "web", "debounce": "100ms", "min_interval": "100ms"}, "run": {"local": {"program": "step"}}}]}})
    why = lambda: json.dumps(api.get("/v1/jobs/waits/why?task=pool"))  # noqa: E731
    lab.wait_until("the task waits for a service that does not exist", lambda: '"waiting"' in why() and "unavailable" not in why(), 15)
    relay.cut()
    lab.wait_until("without Consul it keeps waiting, with the reason", lambda: '"waiting"' in why() and relay.url in why(), 20)
    lab.log(f"      {why()[:300]}")
    relay.heal()
    put(consul, "catalog/register", web("passing"))
    lab.wait_until("it runs when the service exists", lambda: lines() == ["10.0.0.1:80"], 40)
    put(consul, "catalog/register", {"Node": "n2", "Address": "10.0.0.2", "Service": {"Service": "web", "Port": 80}})
    lab.wait_until("it runs again for a second member", lambda: lines() == ["10.0.0.1:80", "10.0.0.1:80,10.0.0.2:80"], 20)
    relay.cut()
    time.sleep(3)
    relay.heal()
    time.sleep(3)
    lab.equal("but not after an outage of Consul", len(lines()), 2)
    put(consul, "catalog/deregister", {"Node": "n1"})
    lab.wait_until("but again when a member is removed", lambda: lines()[-1] == "10.0.0.2:80" and len(lines()) == 3, 40)
    server.stop()
    relay.cut()
    consul.process.kill()


def mirror(build, make_consul, address, ours_address):
    consul = make_consul(address)
    relay = Relay(ours_address, (address, 18500))
    server = lab.Server(os.path.join(build, "orrery"), "mirror", arguments=["--catalog-consul-url", relay.url, "--catalog-consul-allow-plaintext"])
    server.start()
    api = server.api()
    listener = socket.create_server((ours_address, 8089))
    api.put("/v1/nodes/agentless", lab.node("agentless", address=ours_address))
    api.put("/v1/services/api", {"kind": "Service", "name": "api", "spec": {"port": 8089, "checks": [{"kind": "tcp", "interval": "1s", "timeout": "1s", "rise": 1, "fall": 1}]}})
    instance = lambda name, **spec: api.put(f"/v1/instances/{name}", {"kind": "Instance", "name": name, "spec": {"service": "api", "node": "agentless", **spec}})  # noqa: E731
    instance("api-1", tags=["real"])
    seen = lambda query="": get(consul, "health/service/api" + query)  # noqa: E731
    ids = lambda: sorted(one["Service"]["ID"] for one in seen())  # noqa: E731
    lab.wait_until("our instance is in Consul, and passes", lambda: len(seen("?passing")) == 1, 20)
    lab.equal("with its address", seen()[0]["Node"]["Address"], ours_address)
    lab.equal("and tags", seen()[0]["Service"]["Tags"], ["real"])
    begin = time.monotonic()
    listener.close()
    lab.wait_until("its failure is in Consul", lambda: seen("?passing") == [] and len(seen()) == 1, 20)
    lab.log(f"      {time.monotonic() - begin:.1f} s after it went (it is looked at every second)")
    listener = socket.create_server((ours_address, 8089))
    lab.wait_until("and its recovery", lambda: len(seen("?passing")) == 1, 20)
    instance("api-1", tags=["real"], maintenance=True, maintenance_reason="disks")
    lab.wait_until("maintenance is a critical check there", lambda: seen("?passing") == [] and any(c["Notes"] == "disks" for c in seen()[0]["Checks"]), 10)
    instance("api-1", tags=["real"])
    lab.wait_until("which ends with the maintenance", lambda: len(seen("?passing")) == 1 and len(seen()[0]["Checks"]) == 1, 10)
    api.put("/v1/catalognodes/agentless", {"kind": "CatalogNode", "name": "agentless", "spec": {"node": "agentless", "checks": [{"id": "power", "name": "power", "kind": "external", "initial": "critical"}]}})
    lab.wait_until("a critical check of the node makes its instances critical in Consul, too", lambda: seen("?passing") == [], 10)
    api.delete("/v1/catalognodes/agentless")
    lab.wait_until("and ends", lambda: len(seen("?passing")) == 1, 10)
    # Another id and another node: the old place is left.
    api.put("/v1/nodes/other", lab.node("other", address=ours_address))
    api.put("/v1/instances/api-1", {"kind": "Instance", "name": "api-1", "spec": {"service": "api", "node": "other"}})
    lab.wait_until("an instance that moved is only on its new node", lambda: [one["Node"]["Node"] for one in seen()] == ["other"], 10)
    instance("api-1", tags=["real"])
    lab.wait_until("and back", lambda: [one["Node"]["Node"] for one in seen()] == ["agentless"], 10)
    # Others' services on a node of ours are others'.
    put(consul, "catalog/register", {"Node": "agentless", "Address": ours_address, "SkipNodeUpdate": True, "Service": {"Service": "theirs", "Port": 1}})
    # Removed while Consul was unavailable, by a server that then died: found by its mark.
    relay.cut()
    api.delete("/v1/instances/api-1")
    time.sleep(0.5)
    server.kill()
    relay.heal()
    lab.equal("Consul still has it", len(seen()), 1)
    server.start()
    lab.wait_until("instances removed during a restart are deregistered", lambda: seen() == [], 30)
    lab.equal("registrations of others stay", len(get(consul, "catalog/service/theirs")), 1)
    api = server.api()
    # Changes that Consul missed, while the server lived.
    relay.cut()
    instance("api-2", id="api-2")
    instance("api-3", id="api-3", tags=["later"])
    time.sleep(1)
    relay.heal()
    lab.wait_until("changes during an outage of Consul are caught up on", lambda: ids() == ["api-2", "api-3"], 40)
    # A host with an agent is the agent's.
    api.put("/v1/nodes/agent1", lab.node("agent1", address=address))
    api.put("/v1/services/own", {"kind": "Service", "name": "own", "spec": {"port": 8090}})
    api.put("/v1/instances/own", {"kind": "Instance", "name": "own", "spec": {"service": "own", "node": "agent1"}})
    time.sleep(2)
    lab.equal("a node that runs a Consul agent is not changed", get(consul, "catalog/service/own"), [])
    # It comes back without anything.
    consul.process.kill()
    consul = make_consul(address)
    begin = time.monotonic()
    lab.wait_until("an empty Consul gets all instances again", lambda: ids() == ["api-2", "api-3"], 90)
    lab.log(f"      {time.monotonic() - begin:.0f} s after it was back")
    for name in ("api-2", "api-3"):
        api.delete(f"/v1/instances/{name}")
    lab.wait_until("a removed instance is deregistered", lambda: seen() == [], 10)
    lab.wait_until("and its node with the last instance", lambda: "agentless" not in [node["Node"] for node in get(consul, "catalog/nodes")], 90)
    server.stop()
    relay.cut()
    consul.process.kill()

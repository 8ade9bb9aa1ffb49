"""A real Consul as our catalog: members are read from it, our instances written to it, and whatever is wrong with it is never taken for an empty service."""
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


class Follower:
    """consul_follow: what our driver sees, line by line."""

    def __init__(self, build, url, service, token=None):
        program = os.path.join(build, "tests", "conformance", "consul_follow")
        self.child = subprocess.Popen([program, url, service] + ([token] if token else []), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.lines = queue.Queue()
        threading.Thread(target=lambda: [self.lines.put(line.strip()) for line in self.child.stdout], daemon=True).start()

    def expect(self, what, begins, seconds=15):
        end = time.monotonic() + seconds
        seen = []
        while time.monotonic() < end:
            try:
                line = self.lines.get(timeout=0.2)
            except queue.Empty:
                continue
            seen.append(line)
            if line.startswith(begins) if begins != "members" else line == "members":
                lab.say(f"ok    {what}: {line[:140]}")
                return line
        raise lab.Failed(f"{what}: wanted {begins!r}, saw {seen}")

    def quiet(self, what, seconds):
        time.sleep(seconds)
        lab.check(what, self.lines.empty(), "saw " + " | ".join(self.lines.queue))

    def stop(self):
        self.child.stdin.close()
        self.child.wait(10)


def members(build, make_consul, address):
    consul = make_consul(address)
    put = lambda path, body: differential.request(consul.http, "PUT", path, body)
    put("catalog/register", {"Node": "n1", "Address": "10.0.0.1", "Service": {"Service": "web", "Port": 80}, "Check": {"CheckID": "c", "Name": "c", "Status": "passing", "ServiceID": "web"}})
    follower = Follower(build, consul.http, "web")
    follower.expect("members are read", "members n1=10.0.0.1:80/passing")
    begin = time.monotonic()
    put("catalog/register", {"Node": "n1", "Address": "10.0.0.1", "Check": {"CheckID": "c", "Name": "c", "Status": "critical", "ServiceID": "web"}})
    follower.expect("a change is seen", "members n1=10.0.0.1:80/registered")
    lab.say(f"      {1000 * (time.monotonic() - begin):.0f} ms after it was made")
    put("kv/unrelated", "x")
    follower.quiet("what does not concern it is not told", 1)
    consul.process.kill()
    follower.expect("a Consul that is gone is no evidence", "unavailable")
    consul = make_consul(address)  # it comes back empty
    follower.expect("when it answers again, what it says counts", "members")
    os.kill(consul.process.pid, signal.SIGSTOP)
    follower.quiet("a Consul that hangs is not yet news while a query waits", 1)
    os.kill(consul.process.pid, signal.SIGCONT)
    follower.stop()
    consul.process.kill()


def acls(build, make_consul, address):
    consul = make_consul(address, extra=["-hcl", 'acl { enabled = true default_policy = "deny" tokens { initial_management = "11111111-2222-3333-4444-555555555555" agent = "11111111-2222-3333-4444-555555555555" } }'])
    master = "11111111-2222-3333-4444-555555555555"

    def call(method, path, body=None):
        import http.client
        connection = http.client.HTTPConnection(address, 18500, timeout=10)
        connection.request(method, "/v1/" + path, json.dumps(body) if body is not None else None, {"X-Consul-Token": master})
        answer = connection.getresponse()
        return answer.status, answer.read()

    lab.wait_until("ACLs are up", lambda: call("PUT", "catalog/register", {"Node": "n1", "Address": "10.0.0.1", "Service": {"Service": "web", "Port": 80}})[0] == 200, 30, 0.3)
    call("PUT", "acl/policy", {"Name": "blind", "Rules": 'service "web" { policy = "read" }'})
    call("PUT", "acl/policy", {"Name": "seeing", "Rules": 'service_prefix "" { policy = "read" } node_prefix "" { policy = "read" }'})
    tokens = {name: json.loads(call("PUT", "acl/token", {"Policies": [{"Name": name}]})[1])["SecretID"] for name in ("blind", "seeing")}
    seeing = Follower(build, consul.http, "web", tokens["seeing"])
    seeing.expect("with the right token", "members n1=")
    blind = Follower(build, consul.http, "web", tokens["blind"])  # may see the service, but not its nodes: Consul filters all away
    time.sleep(2)
    lab.check("an answer that the token's rights emptied is not taken for an empty service", all(not line.startswith("members") for line in blind.lines.queue), list(blind.lines.queue))
    for follower in (seeing, blind):
        follower.stop()
    consul.process.kill()


def mirror(build, make_consul, address, ours_address):
    consul = make_consul(address)
    server = lab.Server(os.path.join(build, "orrery"), "mirror", arguments=["--catalog-consul-url", consul.http])
    server.start()
    api = server.api()
    listener = socket.create_server((ours_address, 8089))
    api.put("/v1/nodes/agentless", lab.node("agentless", address=ours_address))
    api.put("/v1/services/api", {"kind": "Service", "name": "api", "spec": {"port": 8089, "checks": [{"kind": "tcp", "interval": "1s", "timeout": "1s", "rise": 1, "fall": 1}]}})
    api.put("/v1/instances/api-1", {"kind": "Instance", "name": "api-1", "spec": {"service": "api", "node": "agentless", "tags": ["real"]}})
    seen = lambda query="": differential.as_value(differential.request(consul.http, "GET", "health/service/api" + query)[2])
    lab.wait_until("our instance is in Consul, and passes", lambda: len(seen("?passing")) == 1, 20)
    lab.equal("with its address", seen()[0]["Node"]["Address"], ours_address)
    lab.equal("and tags", seen()[0]["Service"]["Tags"], ["real"])
    listener.close()
    lab.wait_until("when it fails, Consul knows", lambda: seen("?passing") == [] and len(seen()) == 1, 20)
    # Removed while Consul could not be told, by a server that then died: found by its mark.
    os.kill(consul.process.pid, signal.SIGSTOP)
    api.delete("/v1/instances/api-1")
    server.kill()
    os.kill(consul.process.pid, signal.SIGCONT)
    lab.equal("Consul still has it", len(seen()), 1)
    server.start()
    api = server.api()
    api.put("/v1/instances/api-2", {"kind": "Instance", "name": "api-2", "spec": {"service": "api2", "node": "agentless"}})
    lab.wait_until("what is not ours any more is taken out after a restart", lambda: seen() == [], 30)
    # A host with an agent is the agent's.
    api.put("/v1/nodes/agent1", lab.node("agent1", address=address))
    api.put("/v1/instances/own", {"kind": "Instance", "name": "own", "spec": {"service": "own", "node": "agent1"}})
    time.sleep(2)
    lab.equal("a host that runs an agent is left to it", differential.as_value(differential.request(consul.http, "GET", "catalog/service/own")[2]), [])
    server.stop()
    consul.process.kill()

#!/usr/bin/python3
"""A server that loses etcd silently: dropped packets, a connection that is dead on the side of etcd, a watch that stalls, an etcd that hangs. The server notices within 5 s, reports it in
/readyz, metrics, answers and logs, answers DNS as dns.stale has it, and follows again seconds after the network is back.

etcd is at 198.18.0.1; two servers are in a network of their own, whose route to etcd is cut both ways."""
import contextlib
import http.client
import os
import signal
import socket
import subprocess
import sys
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
sys.dont_write_bytecode = True
import orrery_lab as lab  # noqa: E402
from networks import Network, ip, own_network  # noqa: E402

ETCD = "198.18.0.1"
SOON = 5  # seconds in which a loss is noticed
BACK = 8  # seconds in which normal operation resumes, once the network is back
QUIET = 25  # seconds without a change before each fault: a client that limits its keep-alive pings has stopped them by then


class FarServer(lab.Server):
    """A server in another network."""

    def __init__(self, network, *arguments, **named):
        super().__init__(*arguments, **named)
        self.network = network
        self.dns = lab.free_port()
        self.url = f"http://{network.address}:{self.port}"

    def command(self):
        line = super().command()
        line[line.index(f"127.0.0.1:{self.port}")] = f"{self.network.address}:{self.port}"
        return self.network.within([*line, "--server-allow-plaintext", "--server-anonymous-metrics", "always", "--dns-listen", f"{self.network.address}:{self.dns}", "--dns-rate-limit", "0"])

    def connect(self, seconds=30):
        return http.client.HTTPConnection(self.network.address, self.port, timeout=seconds)

    def answers(self):
        """(status, addresses) as DNS clients get them."""
        done = subprocess.run(["dig", f"@{self.network.address}", "-p", str(self.dns), "www.gslb.test", "+tries=1", "+time=2"], capture_output=True, text=True)
        status = done.stdout.partition("status: ")[2].partition(",")[0]
        return status, sorted(line.split()[4] for line in done.stdout.splitlines() if line.startswith("www.gslb.test.") and "\tA\t" in line)


class Wire:
    """The route between etcd and the remote network, which can silently drop all packets."""

    def __init__(self, network):
        self.network = network
        nowhere = network.address.rsplit(".", 1)[0] + ".98"
        ip("route", "add", "default", "via", nowhere, "table", "100")
        # Neighbours with addresses of no machine: without them the kernel would report that there is no route.
        ip("neigh", "add", nowhere, "lladdr", "02:00:00:00:00:98", "dev", network.name, "nud", "permanent")
        ip("neigh", "add", network.dead_end, "lladdr", "02:00:00:00:00:99", "dev", "eth0", "nud", "permanent", inside=network.holder.pid)

    def cut(self):
        self.network.cut(f"{ETCD}/32")
        ip("rule", "add", "from", ETCD, "to", self.network.address, "lookup", "100")

    def restore(self):
        ip("rule", "del", "from", ETCD, "to", self.network.address, "lookup", "100")
        self.network.restore(f"{ETCD}/32")

    def forget(self, port):
        """Destroys etcd's end of the connections; the resets are dropped."""
        subprocess.run(["ss", "-K", "dst", self.network.address, "sport", "=", f":{port}"], capture_output=True)


class Relay:
    """Relays connections to etcd. Those that carry a watch can be frozen: they stay open, without data."""

    def __init__(self, port):
        self.target, self.frozen = port, set()
        self.watches, self.count = set(), 0
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def freeze_watches(self):
        self.frozen |= self.watches

    def _accept(self):
        while True:
            client = self.listener.accept()[0]
            server = socket.create_connection((ETCD, self.target))
            self.count += 1
            for source, sink in ((client, server), (server, client)):
                threading.Thread(target=self._pass, args=(source, sink, self.count), daemon=True).start()

    def _pass(self, source, sink, number):
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                if b"etcdserverpb.Watch" in data:
                    self.watches.add(number)
                if number not in self.frozen:
                    sink.sendall(data)
            sink.shutdown(socket.SHUT_WR)


def not_ready(server):
    try:
        return server.probe("/readyz", 2)[0] == 503
    except OSError:
        return False


def seconds_until(what, holds, limit):
    begin = time.monotonic()
    lab.wait_until(what, holds, limit + 3, 0.1)
    took = time.monotonic() - begin
    lab.check(f"{what}: after {took:.1f} s, within {limit}", took <= limit, f"{took:.1f} s")


def override(api, state):
    member = api.get("/v1/members/m2")
    spec = {**member["spec"]}
    spec.pop("override", None)
    if state:
        spec["override"] = {"state": state}
    api.put("/v1/members/m2", {"kind": "Member", "name": "m2", "spec": spec})


BOTH, ONE = ("NOERROR", ["192.0.2.1", "192.0.2.2"]), ("NOERROR", ["192.0.2.1"])


def packets_vanish(near, far, strict, wire):
    lab.log("all packets between the far servers and etcd are dropped, after a quiet time")
    time.sleep(QUIET)
    api, far_api = near.api(), far.api(seconds=20)
    wire.cut()
    override(api, "down")
    seconds_until("/readyz of a server that silently lost etcd is 503", lambda: not_ready(far), SOON)
    lab.contains("with the reason", far.probe("/readyz")[1], "etcd")
    lab.wait_until("it logs that its copy is stale", lambda: "store copy is stale" in far.log_text(), 5)
    lab.check("the age of the copy is a metric", far.metrics().get("orrery_store_copy_age_seconds", 0) >= 4, far.metrics().get("orrery_store_copy_age_seconds"))
    lab.equal("it does not claim to be connected", far.metrics()["orrery_store_etcd_connected"], 0)
    lab.equal("the server beside etcd has a fresh copy", near.metrics()["orrery_store_copy_age_seconds"] < 4, True)
    items = far_api.get("/v1/members")["items"]
    lab.check("a read is answered from the stale copy, and carries its age", len(items) == 2 and int(far_api.headers["Orrery-Copy-Age"] or 0) >= 4, dict(far_api.headers))
    far_api.get("/v1/members/m2")
    lab.check("also of a single object", int(far_api.headers["Orrery-Copy-Age"] or 0) >= 4, dict(far_api.headers))
    begin = time.monotonic()
    far_api.refused("a consistent read is refused", 503, "GET", "/v1/members?consistent=true")
    far_api.refused("a write is refused", 503, "PUT", "/v1/nodes/n", lab.node("n"))
    lab.check("in seconds", time.monotonic() - begin < 12, f"{time.monotonic() - begin:.1f} s")
    lab.equal("by default DNS clients get the last answer", far.answers(), BOTH)
    lab.wait_until("with dns.stale: servfail they get SERVFAIL", lambda: strict.answers() == ("SERVFAIL", []), 8, 0.2)
    lab.equal("and a metric reports it", strict.metrics()["orrery_zone_suspended"], 1)
    wire.restore()
    begin = time.monotonic()
    seconds_until("the network is back: the change made meanwhile is answered", lambda: far.answers() == ONE, BACK)
    seconds_until("also by the one that answered SERVFAIL", lambda: strict.answers() == ONE, BACK)
    far.wait_ready(BACK)
    lab.check(f"normal operation resumes {time.monotonic() - begin:.1f} s after", time.monotonic() - begin < BACK)
    far_api.get("/v1/members")
    lab.equal("answers no longer carry an age", far_api.headers["Orrery-Copy-Age"], None)
    override(api, None)
    lab.wait_until("and changes are followed immediately", lambda: far.answers() == BOTH, 3, 0.1)


def the_other_end_dies(near, far, wire, etcd):
    lab.log("etcd's end of the connections dies silently, after a quiet time")
    time.sleep(QUIET)
    wire.cut()
    wire.forget(etcd.clients[0])
    time.sleep(0.2)
    wire.restore()
    override(near.api(), "down")
    seconds_until("a change made afterwards is answered", lambda: far.answers() == ONE, BACK)
    far.wait_ready(BACK)
    begin = time.monotonic()
    far.api().put("/v1/nodes/n", lab.node("n"))
    lab.check(f"a write works ({time.monotonic() - begin:.1f} s)", time.monotonic() - begin < 3)
    override(near.api(), None)
    lab.wait_until("changes are followed", lambda: far.answers() == BOTH, 3, 0.1)


def the_watch_stalls(near, behind, relay):
    lab.log("a watch no longer delivers, while requests are answered")
    begin = time.monotonic()
    relay.freeze_watches()
    override(near.api(), "down")
    state = lambda: behind.api().get("/v1/members/m2")["spec"].get("override")  # noqa: E731
    lab.wait_until("the change is seen", lambda: state() is not None, BACK, 0.1)
    lab.check(f"the watch begins again on a new connection: the change is seen {time.monotonic() - begin:.1f} s later", time.monotonic() - begin < BACK)
    lab.check("a metric counts that", behind.metrics()["orrery_store_etcd_watch_stalls_total"] >= 1)
    lab.contains("and the log has it", behind.log_text(), "watch stalled")
    behind.wait_ready(BACK)
    override(near.api(), None)
    lab.wait_until("changes are followed", lambda: state() is None, 3, 0.1)


def etcd_hangs(servers, etcd):
    lab.log("etcd hangs (SIGSTOP)")
    etcd.processes[0].signal(signal.SIGSTOP)
    begin = time.monotonic()
    lab.wait_until("/readyz of all servers is 503", lambda: all(not_ready(one) for one in servers), SOON + 3, 0.1)
    took = time.monotonic() - begin
    lab.check(f"/readyz follows a hung etcd: after {took:.1f} s, within {SOON}", took <= SOON, f"{took:.1f} s")
    etcd.processes[0].signal(signal.SIGCONT)
    seconds_until("etcd continues: all are ready", lambda: not any(not_ready(one) for one in servers), BACK)


def main(given):
    own_network(__file__)
    lab.program("dig", "bind9-dnsutils")
    lab.program("ss", "iproute2")
    ip("addr", "add", f"{ETCD}/32", "dev", "lo")
    network = Network("far", 1)
    wire = Wire(network)
    try:
        etcd = lab.Etcd(1, host=ETCD)
        key = ["--secrets-key-file", os.path.join(lab.scratch("shared"), "secrets.key")]
        near = lab.Server(given.orrery, "near", store_url=etcd.url("lab"), arguments=key)
        near.start()
        far = FarServer(network, given.orrery, "far", store_url=etcd.url("lab"), arguments=key)
        stale = [] if given.old else ["--dns-stale", "servfail", "--dns-stale-after", "5s"]
        strict = FarServer(network, given.orrery, "strict", store_url=etcd.url("lab"), arguments=[*key, *stale])
        for server in (far, strict):
            server._token = near.token()
            server.start()
        api = near.api()
        api.post("/v1/zones", {"name": "gslb", "spec": {"origin": "gslb.test", "nameservers": ["ns1.example.net"]}})
        api.post("/v1/pools", {"name": "web", "spec": {"min_healthy": 1}})
        for i in (1, 2):
            api.post("/v1/members", {"name": f"m{i}", "spec": {"pool": "web", "addresses": [f"192.0.2.{i}"]}})
        api.post("/v1/loadbalancers", {"name": "www", "spec": {"fqdn": "www.gslb.test", "pools": [{"pool": "web"}], "answers": "all"}})
        for server in (far, strict):
            lab.wait_until(f"{server.name} answers", lambda server=server: server.answers() == BOTH, 10, 0.1)
        packets_vanish(near, far, strict, wire)
        the_other_end_dies(near, far, wire, etcd)
        relay = Relay(etcd.clients[0])
        behind = lab.Server(given.orrery, "behind", store_url=f"etcd://127.0.0.1:{relay.port}/lab", arguments=key)
        behind._token = near.token()
        behind.start()
        the_watch_stalls(near, behind, relay)
        etcd_hangs([near, far, strict, behind], etcd)
        for server in (near, far, strict, behind):
            lab.equal(f"{server.name}'s log has no errors", server.error_lines(), [])
    finally:
        network.end()


if __name__ == "__main__":
    lab.run(main, lambda parser: parser.add_argument("--old", action="store_true", help="a program without dns.stale"))

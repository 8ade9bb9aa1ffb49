#!/usr/bin/python3 -B
"""Three servers on one etcd are vantages of each other; two of them are in network namespaces whose route to the members can be cut. One is cut off, then
two: they are quarantined, that is recorded, and no server withdraws a healthy member. Then a member really fails. A fourth server runs the API only: it
probes nothing, and gives the same answers as the others."""
import os
import sys
import time

sys.path[:0] = [os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lab", part) for part in ("", "server")]
import http.client  # noqa: E402

from gslb_faults import Member, ask  # noqa: E402
import orrery_lab as lab  # noqa: E402
from networks import Network, ip, own_network  # noqa: E402
from orrery_lab import check, contains, equal, log, wait_until  # noqa: E402

HOME, PORT, DNS = "198.18.0.1", 8080, 5353
MEMBERS = {f"m{i}": f"198.18.1.{i}" for i in range(1, 7)}


class Far(lab.Server):
    """A server in its own network namespace, with a veth pair to the lab's."""

    def __init__(self, orrery, name, number, **more):
        super().__init__(orrery, name, **more)
        self.network = Network(name, number)
        self.host = self.network.address
        self.arguments += ["--server-listen", f"{self.host}:{self.port}", "--server-allow-plaintext", "--dns-listen", f"{self.host}:{DNS}", "--dns-rate-limit", "0"]

    def command(self):
        return self.network.within(super().command())

    def connect(self, seconds=30):
        return http.client.HTTPConnection(self.host, self.port, timeout=seconds)

    def cut(self):
        """Cuts the route to the members; the route to etcd stays."""
        self.network.cut("198.18.1.0/24")

    def end(self):
        self.network.end()


class Site:
    def __init__(self, orrery):
        self.etcd = lab.Etcd(host=HOME)
        self.members = {name: Member(address, PORT) for name, address in MEMBERS.items()}
        key = os.path.join(lab.scratch("shared"), "secrets.key")
        common = {"store_url": self.etcd.url("lab")}
        self.home = lab.Server(orrery, "s0", arguments=["--secrets-key-file", key, "--dns-listen", f"{HOME}:{DNS}", "--dns-rate-limit", "0"], **common)
        self.far = [Far(orrery, f"s{i}", i, arguments=["--secrets-key-file", key], **common) for i in (1, 2)]
        self.front = lab.Server(orrery, "front", arguments=["--secrets-key-file", key, "--run", "api", "--dns-listen", f"{HOME}:{DNS + 1}", "--dns-rate-limit", "0"], **common)
        self.servers = [self.home, *self.far, self.front]
        self.doors = {"s0": (HOME, DNS), "s1": (self.far[0].host, DNS), "s2": (self.far[1].host, DNS), "front": (HOME, DNS + 1)}
        for server in self.servers:
            server.start()
            server._token = self.home.token()
        self.api = self.home.api()

    def seen(self):
        return {name: ask(port, "www.gslb.test", host) for name, (host, port) in self.doors.items()}

    def always(self, what, seconds, addresses):
        end, count = time.monotonic() + seconds, 0
        while time.monotonic() < end:
            for name, one in self.seen().items():
                if one != addresses:
                    equal(f"{what}, at {name}", one, addresses)
                count += 1
            time.sleep(0.01)
        check(f"{what} ({count} answers)", count > 0)

    def everywhere(self, what, addresses, seconds=15):
        wait_until(f"{what}: {addresses} at every server, and not {self.seen()}", lambda: all(one == addresses for one in self.seen().values()), seconds)
        check(f"{what}, on every server", True)

    def vantages(self, server=None):
        return {one["name"]: one for one in (server or self.home).api().get("/v1/health/vantages")["items"]}

    def records(self):
        return [one["spec"] for one in self.api.get("/v1/loadbalancers/www/decisions?limit=50")["items"]]


def main(given):
    own_network(__file__)
    for address in (HOME, *MEMBERS.values()):
        ip("addr", "add", f"{address}/32", "dev", "lo")
    site = Site(given.orrery)
    try:
        check_all(site)
    finally:
        for one in site.far:
            one.end()


def check_all(site):
    all_members = sorted(MEMBERS.values())
    for kind, name, spec in (("zones", "gslb", {"origin": "gslb.test", "nameservers": ["ns1.gslb.test"], "contact": "host@gslb.test", "records": "ns1 A 127.0.0.1\n"}),
                             ("monitors", "tcp", {"kind": "tcp", "port": PORT, "interval": "1s", "timeout": "500ms", "rise": 1, "fall": 2}), ("pools", "all", {"monitors": ["tcp"]}),
                             *(("members", name, {"pool": "all", "addresses": [address]}) for name, address in MEMBERS.items()),
                             ("loadbalancers", "www", {"fqdn": "www.gslb.test", "pools": [{"pool": "all"}], "answers": "all", "max_answers": 32})):
        site.api.put(f"/v1/{kind}/{name}", {"spec": spec})
    for server in (site.home, *site.far):
        wait_until(f"{server.name} has the reports of the others", lambda s=server: sum(1 for one in site.vantages(s).values() if one["kind"] == "server" and one.get("ready", True) and one["targets"] == len(MEMBERS)) == 3, 20)
    check("the three servers are vantages of each other", True)
    equal("the server that runs the API only is not a vantage", "front" in site.vantages(), False)
    equal("and probes nothing", site.front.metrics().get("orrery_gslb_probe_targets"), 0)
    site.everywhere("all members are answered", all_members)
    time.sleep(3)  # time for each vantage to probe the new targets

    for count, server in enumerate(site.far, 1):
        before = len(site.records())
        server.cut()
        log(f"{server.name} is cut off")
        site.always(f"{count} of three vantages cut off: no member is withdrawn", 6, all_members)
        quarantined = wait_until("the vantage is quarantined", lambda s=server: next((one for one in [site.vantages()[s.name]] if not one["trusted"]), None), 5)
        contains("with the reason", quarantined["message"], "targets failed")
        held = wait_until("the exclusion is recorded", lambda: next((one for one in site.records()[: len(site.records()) - before] if not one["changed"] and one["cause"] == "vantage_excluded"), None), 10) if count == 1 else \
            next(one for one in site.records() if one["cause"] == "vantage_excluded")
        contains("with the vantage that is excluded", held["withheld"][0]["message"], "is quarantined", "targets failed")
    site.members["m1"].down()
    began = time.monotonic()
    site.everywhere("a member that really fails is withdrawn", sorted(set(all_members) - {MEMBERS["m1"]}))
    log(f"{time.monotonic() - began:.1f} s after it failed, by the one remaining vantage, on all servers")
    record = wait_until("the withdrawal is recorded", lambda: next((one for one in site.records() if one["changed"] and one.get("trigger", {}).get("member") == "m1"), None), 10)
    equal("with its cause", (record["cause"], record["trigger"]["to"]), ("probe", "down"))
    equal("no other member was withdrawn", [one["trigger"]["member"] for one in site.records() if one["changed"] and one.get("trigger", {}).get("to") == "down"], ["m1"])
    for server in site.servers:
        equal(f"{server.name} stops cleanly", server.stop(), 0)
        equal(f"{server.name}'s log has no errors", server.error_lines(), [])


if __name__ == "__main__":
    lab.run(main)

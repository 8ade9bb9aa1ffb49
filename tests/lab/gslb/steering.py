#!/usr/bin/python3
"""Answers by the location of clients, drains before work, and an import from gdnsd, which runs beside orrery.

Everything is on loopback: nodes are addresses in 127.0.0.0/8."""
import datetime
import os
import re
import socket
import subprocess
import sys
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
sys.dont_write_bytecode = True
import mmdb  # noqa: E402
import orrery_lab as lab  # noqa: E402

EU, US = "198.51.100.1", "203.0.113.1"
GEO = """
kind: Zone
name: geo
spec: {origin: geo.example, nameservers: [ns1.geo.example], records: "ns1 A 127.0.0.1"}
---
{kind: Pool, name: eu, spec: {location: {latitude: 52.4, longitude: 4.9}}}
---
{kind: Pool, name: us, spec: {location: {latitude: 40.7, longitude: -74.0}}}
---
{kind: Member, name: eu-1, spec: {pool: eu, addresses: [198.51.100.1]}}
---
{kind: Member, name: us-1, spec: {pool: us, addresses: [203.0.113.1]}}
---
kind: LoadBalancer
name: near
spec:
  fqdn: near.geo.example
  zone: geo.example
  pools: [{pool: eu}, {pool: us}]
  steering: geo
  geo: {rules: [{country: DE, pools: [us], strict: true}], nearest: true}
---
kind: LoadBalancer
name: cdn
spec: {fqdn: "*.cdn.geo.example", zone: geo.example, pools: [{pool: eu}, {pool: us}], steering: spread, answers: sticky-by-name}
"""


def seconds(time_of_day):
    return datetime.datetime.fromisoformat(time_of_day.replace("Z", "+00:00")).timestamp()


def dig(port, name, *more, short=True):
    done = subprocess.run(["dig", *(["+short"] if short else []), "+tries=1", "+time=2", "-p", str(port), "@127.0.0.1", name, *more], capture_output=True, text=True, timeout=10)
    return sorted(done.stdout.split()) if short else done.stdout


def subnet(port, prefix):
    """The answer for a subnet, and its scope."""
    out = dig(port, "near.geo.example", f"+subnet={prefix}", short=False)
    scope = re.search(r"CLIENT-SUBNET: \S+/\d+/(\d+)", out)
    return re.findall(r"\bA\s+(\d+\.\d+\.\d+\.\d+)$", out.split("ANSWER SECTION:")[1].split("\n\n")[0], re.M) if "ANSWER SECTION:" in out else [], int(scope.group(1)) if scope else None


class FirstAnswer(threading.Thread):
    """Queries every millisecond until there is an answer, and keeps it: (code, how many records)."""

    def __init__(self, port, name):
        super().__init__(daemon=True)
        self.answer = None
        self.query = b"\x12\x34\0\0\0\x01\0\0\0\0\0\0" + b"".join(bytes([len(p)]) + p.encode() for p in name.split(".")) + b"\0\0\x01\0\x01"
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.socket.settimeout(0.001)
        self.socket.connect(("127.0.0.1", port))
        self.start()

    def run(self):
        while self.answer is None:
            try:
                self.socket.send(self.query)
                got = self.socket.recv(4096)
                self.answer = (got[3] & 15, int.from_bytes(got[6:8], "big"))
            except TimeoutError:
                pass
            except OSError:  # no server listens yet
                time.sleep(0.001)

    def wait(self):
        self.join(20)
        return self.answer


def put_database(file, networks):
    with open(file + ".new", "wb") as out:
        out.write(mmdb.database(networks))
    os.rename(file + ".new", file)


def geo(server, cli, api, port, file):
    cli.ok("apply", "-f", "-", stdin=GEO)
    lab.wait_until("the name is answered", lambda: dig(port, "near.geo.example"), 5)
    lab.equal("a client in the Netherlands: Amsterdam, for all of its /25", subnet(port, "192.0.2.0/24"), ([EU], 25))
    lab.equal("a client in New York: New York", subnet(port, "192.0.3.0/24"), ([US], 24))
    lab.equal("a client in Germany: the pool of the rule", subnet(port, "192.0.2.128/25"), ([US], 25))
    lab.equal("also over IPv6", subnet(port, "2001:db8:1::/48")[0], [EU])
    lab.equal("an unknown client: the pools as listed", dig(port, "near.geo.example"), [EU])
    why = cli.ok("gslb", "why", "near", "--client", "192.0.2.130")
    lab.contains("why", why, "geo databases: Test-City of 2023-11-14", "us-1 203.0.113.1")
    lab.log(why.strip())
    what = api.get("/v1/loadbalancers/near/whatif?down=us-1")
    lab.check("what if New York failed: its clients would get Amsterdam, those of the strict rule would not", [c["pools"] for c in what["after"]["classes"]][-1] == ["eu"], what["after"]["classes"])

    shops = {n: dig(port, f"shop{n}.cdn.geo.example") for n in range(24)}
    lab.equal("a wildcard's names are spread over both sites, each on one", sorted({tuple(one) for one in shops.values()}), [(EU,), (US,)])
    lab.equal("for every client, in any letter case", {n: dig(port, f"SHOP{n}.cdn.geo.example", "+subnet=192.0.3.0/24") for n in shops}, shops)
    server.kill()
    api.close()
    first = FirstAnswer(port, "near.geo.example")
    server.start()
    lab.equal("after kill -9 the very first answer that leaves the server is right: NOERROR, one address", first.wait(), (0, 1))
    lab.equal("and by location", subnet(port, "192.0.3.0/24"), ([US], 24))
    lab.equal("and each shop keeps its site", {n: dig(port, f"shop{n}.cdn.geo.example") for n in shops}, shops)

    with open(file + ".new", "w") as out:
        out.write("not a database")
    os.rename(file + ".new", file)
    lab.wait_until("an invalid file is refused, and reported", lambda: server.metrics().get("orrery_gslb_geo_databases_failed") == 1, 20)
    lab.contains("with a message", server.log_text(), "this is no MaxMind DB file", "the previous version stays in use")
    lab.equal("and the last good file stays in use", subnet(port, "192.0.3.0/24"), ([US], 24))
    put_database(file, {"192.0.3.0/24": mmdb.city("EU", "NL", 52.4, 4.9)})
    began = time.monotonic()
    lab.wait_until("a new file is loaded", lambda: subnet(port, "192.0.3.0/24")[0] == [EU], 20)
    lab.log(f"within {time.monotonic() - began:.1f} s")
    record = lab.wait_until("and has a record", lambda: next((d["spec"] for d in api.get("/v1/loadbalancers/near/decisions?limit=1")["items"] if d["spec"].get("trigger", {}).get("geo_databases")), None), 5)
    lab.equal("with its cause", record["cause"], "config")


WORK = """
kind: Job
name: %s
spec:
  tasks:
    - {name: leave, on: web, run: {gslb: {drain: new kernel}}, batch: {serial: 1, through: return}}
    - {name: work, on: web, after: {task: leave, same_host: true}, run: {local: {program: work}}}
    - {name: return, on: web, after: {task: work, same_host: true}, run: {gslb: {undrain: true}}}
"""


def drained(cli, api, port, ran):
    """Two nodes behind one name; a job that works on them one at a time."""
    for number in (1, 2):
        api.put(f"/v1/nodes/web-{number}", {"kind": "Node", "name": f"web-{number}", "labels": {"role": "web"}, "spec": {"address": f"127.0.1.{number}"}})
    api.put("/v1/pools/web", {"kind": "Pool", "name": "web", "spec": {}})
    for number in (1, 2):
        api.put(f"/v1/members/web-{number}", {"kind": "Member", "name": f"web-{number}", "spec": {"pool": "web", "node": f"web-{number}", "capacity": 100}})
    api.put("/v1/loadbalancers/web", {"kind": "LoadBalancer", "name": "web", "spec": {"fqdn": "web.geo.example", "zone": "geo.example", "pools": [{"pool": "web"}], "demand": 80, "ttl": {"max": "2s", "min": "2s"}}})
    both = ["127.0.1.1", "127.0.1.2"]
    lab.wait_until("both nodes answer", lambda: dig(port, "web.geo.example") == both, 5)
    cli.ok("job", "submit", "-f", "-", stdin=WORK % "kernels")
    seen = []

    def over():
        now = dig(port, "web.geo.example")
        if not seen or seen[-1][1] != now:
            seen.append((time.time(), now))
        return api.get("/v1/jobs/kernels").get("status", {}).get("state") in ("succeeded", "failed", "cancelled", "refused")

    lab.wait_until("the job has ended", over, 60, 0.02)
    lab.equal("it succeeded", api.get("/v1/jobs/kernels")["status"]["state"], "succeeded")
    lab.wait_until("both answer again", lambda: over() and seen[-1][1] == both, 5)
    lab.log("; ".join(f"{at - seen[0][0]:.1f} s {', '.join(a.rsplit('.', 1)[1] for a in answer)}" for at, answer in seen))
    # Between the two both are there for a moment, which is too short to be seen every time.
    alone = [(at, answer) for at, answer in seen if answer != both]
    lab.equal("one node at a time was drained, and the other answered", [answer for _, answer in alone], [[both[1]], [both[0]]])
    with open(ran) as file:
        worked = [line.split() for line in file]
    lab.equal("both were worked on", [host for host, _ in worked], ["web-1", "web-2"])
    for (host, at), (left, _) in zip(worked, alone):
        lab.check(f"work on {host} began {float(at) - left:.1f} s after its name changed: not before cached answers had expired (2 s)", float(at) - left >= 1.9, (at, left))
    triggers = []
    for record in (d["spec"] for d in api.get("/v1/loadbalancers/web/decisions?limit=20")["items"] if d["spec"]["cause"] == "admin"):
        triggers.append({**record["trigger"], "actor": record.get("actor"), "reason": record.get("reason")})
        triggers += record["trigger"].get("also", [])  # what came in the same few milliseconds
    lab.equal("the records show the actor and the reason of each drain and undrain", sorted((w["member"], w["override"], w.get("actor"), w.get("reason")) for w in triggers),
              [(f"web-{number}", override, "job/kernels", f"job kernels: {why}") for number in (1, 2) for override, why in (("drain", "new kernel"), ("none", "its work is done"))])

    api.patch("/v1/nodes/web-1", {"spec": {"maintenance": {"enabled": True, "reason": "disk"}}})
    lab.wait_until("maintenance of a node drains it", lambda: dig(port, "web.geo.example") == ["127.0.1.2"], 5)
    status = lab.wait_until("and its status reports it", lambda: next((s for s in [api.get("/v1/members/web-1")["status"]] if s["state"] == "drained"), None), 5)
    lab.contains("why", status.get("message", ""), "maintenance")
    lab.equal("and when cached answers have expired", seconds(status["drained_at"]) - seconds(status["since"]), 2)
    began = next(d["spec"] for d in api.get("/v1/loadbalancers/web/decisions?limit=1")["items"])
    lab.equal("and the record names the actor", (began["cause"], began.get("actor"), began.get("reason")), ("admin", "admin", "Node web-1 is in maintenance: disk"))
    api.patch("/v1/nodes/web-1", {"spec": {"maintenance": {"enabled": False}}})
    lab.wait_until("and its end undrains it", lambda: dig(port, "web.geo.example") == both, 5)
    ended = lab.wait_until("with a record", lambda: next((d["spec"] for d in api.get("/v1/loadbalancers/web/decisions?limit=1")["items"] if d["spec"]["seq"] > began["seq"]), None), 5)
    lab.equal("with the actor who ended it, and its reason", (ended.get("actor"), ended["trigger"]["cleared"]["reason"]), ("admin", "Node web-1 is in maintenance: disk"))

    api.put("/v1/loadbalancers/web", {"kind": "LoadBalancer", "name": "web", "spec": {"fqdn": "web.geo.example", "zone": "geo.example", "pools": [{"pool": "web"}], "demand": 180, "ttl": {"max": "2s", "min": "2s"}}})
    cli.ok("job", "submit", "-f", "-", stdin=WORK % "too-much")
    lab.wait_until("if one node alone cannot carry the load, the job stops", lambda: api.get("/v1/jobs/too-much").get("status", {}).get("state") == "failed", 30)
    lab.equal("and no node was drained", dig(port, "web.geo.example"), both)


GDNSD = """options => {{ listen => [ 127.0.0.1:{dns} ], run_dir => "{folder}/run", state_dir => "{folder}/state" }}
service_types => {{ web => {{ plugin => http_status, port => {web}, url_path => /up, interval => 2, timeout => 1, up_thresh => 2, ok_thresh => 1, down_thresh => 2 }} }}
plugins => {{
  http_status => {{}}
  multifo => {{ service_types => web, up_thresh => 0.5
    pub => {{ addrs_v4 => {{ a => 127.0.2.1, b => 127.0.2.2 }} }} }}
  simplefo => {{ two => {{ primary => 127.0.2.1, secondary => 127.0.2.2, service_types => web }} }}
  weighted => {{ multi => true, lb => {{ a => [ 127.0.2.1, 10 ], b => [ 127.0.2.2, 10 ], service_types => web }} }}
}}
"""
ZONE = """@ SOA ns1 hostmaster 1 7200 900 604800 60
@ NS ns1
ns1 A 127.0.0.1
www 20/10 DYNA multifo!pub
two 20 DYNA simplefo!two
lb 20 DYNA weighted!lb
plain A 192.0.2.80
"""


def taken_over(cli, port):
    """gdnsd's own configuration: gdnsd accepts it, orrery imports it, and both give the same answers while members change."""
    folder = lab.scratch("gdnsd")
    for part in ("zones", "run", "state"):
        os.makedirs(os.path.join(folder, part), exist_ok=True)
    web, dns = lab.free_port(), lab.free_port()
    config = os.path.join(folder, "config")
    lab.write_file(config, GDNSD.format(dns=dns, web=web, folder=folder))
    zone = os.path.join(folder, "zones", "moved.example")
    lab.write_file(zone, ZONE)
    done = subprocess.run(["gdnsd", "-c", folder, "checkconf"], capture_output=True, text=True)
    lab.check("gdnsd accepts the configuration", done.returncode == 0, done.stderr)
    webs = [lab.Web(address, web) for address in ("127.0.2.1", "127.0.2.2")]
    theirs = lab.Process("gdnsd", ["gdnsd", "-c", folder, "start"])
    imported = cli("gslb", "import", "gdnsd", config, zone)
    lab.check("orrery imports it", imported.status == 0, imported)
    lab.log(imported.err.strip())
    cli.ok("apply", "-f", "-", stdin=imported.out)
    names = ["www", "two", "lb", "plain", "ns1"]

    def both():
        return [(dig(dns, f"{n}.moved.example"), dig(port, f"{n}.moved.example")) for n in names]

    def alike(expected):
        return lambda: all(a == b for a, b in both()) and dig(port, "www.moved.example") == expected

    one, two = "127.0.2.1", "127.0.2.2"
    try:
        lab.wait_until("both give the same answers: all members up", alike([one, two]), 20, 0.2)
        lab.equal("failover: the first", dig(port, "two.moved.example"), [one])
        webs[0].status = 500
        lab.wait_until("the first fails: the same answers", alike([two]), 20, 0.2)
        lab.equal("failover: the second", dig(port, "two.moved.example"), [two])
        webs[1].status = 500
        lab.wait_until("all fail: both servers give the same answers", alike([one, two]), 20, 0.2)
        webs[0].status = webs[1].status = 200
        lab.wait_until("all return: the same answers", alike([one, two]), 30, 0.2)
        lab.log("; ".join(f"{n}: {', '.join(a)}" for n, (a, _) in zip(names, both())))
    finally:
        theirs.kill()


def main(options):
    for name, package in (("dig", "bind9-dnsutils"), ("gdnsd", "gdnsd")):
        lab.program(name, package)
    file = os.path.join(lab.scratch("places"), "city.mmdb")
    put_database(file, {"192.0.2.0/25": mmdb.city("EU", "NL", 52.4, 4.9, "NH"), "192.0.2.128/25": mmdb.city("EU", "DE", 52.5, 13.4),
                        "192.0.3.0/24": mmdb.city("NA", "US", 40.7, -74.0), "2001:db8::/32": mmdb.city("EU", "NL", 52.4, 4.9)})
    ran = os.path.join(lab.scratch(), "worked")
    work = lab.write_file(os.path.join(lab.scratch("programs"), "work"), f'#!/bin/sh\necho "${{ORRERY_TASK#*@}} $(date +%s.%N)" >>{ran}\nsleep 1\n', 0o700)
    port = lab.free_port()
    server = lab.Server(options.orrery, arguments=["--dns-listen", f"127.0.0.1:{port}", "--dns-geo-databases", file, "--jobs-programs", f"work={work}"])
    server.start()
    cli, api = lab.Cli(options.orrery, server).login(server), server.api()
    geo(server, cli, api, port, file)
    api = server.api()
    drained(cli, api, port, ran)
    taken_over(cli, port)
    lab.check("the server stops on SIGTERM", server.stop() == 0)


if __name__ == "__main__":
    lab.run(main)

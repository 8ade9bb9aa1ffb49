#!/usr/bin/python3
"""examples/gslb/ unchanged: two sites, three vantages, one site cut off. DNS answers, why, whatif, and the state after kill -9.

The lab has a network of its own: the server at 198.18.0.53, each site behind a link that can be cut, and two checkers elsewhere that probe as well."""
import json
import os
import random
import socket
import subprocess
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
sys.dont_write_bytecode = True
import orrery_lab as lab  # noqa: E402
from networks import Checker, ip, own_network, vantages  # noqa: E402

HERE = os.path.dirname(os.path.abspath(__file__))
EXAMPLE = os.path.join(HERE, "..", "..", "..", "examples", "gslb", "site.yaml")
AMS, NYC = ["198.18.1.11", "198.18.1.12"], ["198.18.2.11", "198.18.2.12"]
SERVER = "198.18.0.53"


SITE = """
import http.server, socketserver, sys, threading
class Good(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def do_GET(self):
        self.send_response(200); self.send_header("Content-Length", "2"); self.end_headers(); self.wfile.write(b"ok")
    def log_message(self, *words): pass
class Quiet(http.server.ThreadingHTTPServer):
    def handle_error(self, *words): pass
    def server_bind(self):  # without asking DNS for its own name
        socketserver.TCPServer.server_bind(self)
        self.server_name, self.server_port = self.server_address
sys.stdin.readline()
for address in sys.argv[1:]:
    threading.Thread(target=Quiet((address, 8080), Good).serve_forever).start()
print("up", flush=True)
"""


class Site:
    """A network namespace with web servers, on a link to the server."""

    def __init__(self, name, number, addresses):
        self.name = name
        self.process = subprocess.Popen(["unshare", "--net", sys.executable, "-c", SITE, *addresses], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        lab.wait_until(f"{name} has a network of its own", lambda: os.readlink(f"/proc/{self.process.pid}/ns/net") != os.readlink("/proc/self/ns/net"), 10, 0.01)
        ip("link", "add", name, "type", "veth", "peer", "name", "eth0", "netns", str(self.process.pid))
        ip("addr", "add", f"198.18.{number}.1/24", "dev", name)
        ip("link", "set", name, "up")
        self.gateway = f"198.18.{number}.1"
        for words in (["link", "set", "lo", "up"], *(["addr", "add", f"{a}/24", "dev", "eth0"] for a in addresses)):
            self.inside(*words)
        self.restore()
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        lab.equal(f"{name} is up", self.process.stdout.readline().strip(), "up")

    def inside(self, *words):
        subprocess.run(["nsenter", "--net", "--target", str(self.process.pid), "ip", *words], check=True, capture_output=True)

    def cut(self):
        """At the remote end: a failure of the local interface would be no evidence."""
        self.inside("link", "set", "eth0", "down")

    def restore(self):
        self.inside("link", "set", "eth0", "up")
        self.inside("route", "add", "default", "via", self.gateway)

    def end(self):
        self.process.kill()


def dig(name, *more):
    """Runs dig as a user does."""
    done = subprocess.run(["dig", "+short", "+tries=1", "+time=2", f"@{SERVER}", name, *more], capture_output=True, text=True, timeout=10)
    return sorted(done.stdout.split()) if done.returncode == 0 else []


def ask(name):
    """The same for frequent queries: addresses of one answer over UDP."""
    query = b"\x12\x34\x00\x00\x00\x01\x00\x00\x00\x00\x00\x00" + b"".join(bytes([len(p)]) + p.encode() for p in name.split(".")) + b"\0\0\x01\0\x01"
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as client:
        client.settimeout(1)
        client.sendto(query, (SERVER, 53))
        try:
            answer = client.recv(4096)
        except OSError:
            return None
    count = int.from_bytes(answer[6:8], "big")
    return sorted(".".join(str(b) for b in answer[i + 12:i + 16]) for i in range(len(query), len(query) + 16 * count, 16))


def changes(api, name):
    """Records with a changed answer, the newest first. On a busy host one vantage may briefly find a member too slow; the record of that has no changed answer."""
    return [one["spec"] for one in api.get(f"/v1/loadbalancers/{name}/decisions?limit=50")["items"] if one["spec"]["changed"]]


class Terminal:
    """Prints what a user would see, for the documentation."""

    def __init__(self, cli):
        self.cli, self.seen = cli, []

    def orrery(self, *words):
        return self.add(f"orrery {' '.join(words)}", self.cli.ok(*words))

    def dig(self, name):
        self.add(f"dig +short @{SERVER} {name}", "".join(f"{address}\n" for address in dig(name)))

    def add(self, command, output):
        self.seen.append(f"$ {command}\n{output}")
        return output

    def show(self):
        print("".join(self.seen), flush=True)


def cut_off(server, cli, api, ams):
    terminal = Terminal(cli)
    terminal.orrery("gslb", "vantages")
    terminal.dig("www.gslb.example")
    lab.equal("dig: the name is answered with Amsterdam", dig("www.gslb.example"), AMS)
    lab.equal("also over TCP", dig("www.gslb.example", "+tcp"), AMS)
    lab.equal("one member for a sticky client", len(dig("api.gslb.example")), 1)
    lab.equal("static records are served as well", dig("ns1.gslb.example"), [SERVER])
    why = cli.ok("gslb", "why", "www")
    lab.contains("why", why, "www.gslb.example answers from ams", "pool ams is usable: 2 of 2", "clients leave a failed address within")
    lab.log(why.strip())
    before = api.get("/v1/loadbalancers/www/why")["at"]

    foreseen = json.loads(cli("gslb", "whatif", "www", "--down", "ams-1", "--down", "ams-2", "-o", "json").out)
    terminal.orrery("gslb", "whatif", "www", "--down", "ams-1", "--down", "ams-2")
    lab.equal("what if Amsterdam failed: New York would answer, and could carry it", (foreseen["verdict"], sorted(foreseen["after"]["answers"])), ("safe", NYC))
    watch = lab.Process("watch", [cli.orrery, "gslb", "watch", "www"], cli.environment)
    time.sleep(0.5)
    ams.cut()
    cut = time.monotonic()
    while ask("www.gslb.example") != NYC:
        if time.monotonic() - cut > 15:
            raise lab.Failed(f"15 s after Amsterdam was cut off the name is {ask('www.gslb.example')}")
        time.sleep(0.002)
    lab.log(f"from the cut to New York on the wire: {time.monotonic() - cut:.2f} s (two probes a second apart, half a second each)")
    lab.equal("dig shows it", dig("www.gslb.example"), NYC)
    lab.wait_until("the record is written", lambda: changes(api, "www")[0]["after"]["pool"] == "nyc", 5)
    now = api.get("/v1/loadbalancers/www/why")
    lab.equal("the result equals the prediction", now["decision"]["classes"], foreseen["after"]["classes"])
    record = changes(api, "www")[0]
    lab.check("the record has its trigger", record["cause"] == "probe" and record["trigger"]["member"] in ("ams-1", "ams-2"), record)
    lab.log(json.dumps({key: record[key] for key in ("at", "cause", "trigger", "before", "messages")})[:900])
    seen = "web: timeout_connect (HTTP GET http://198.18.1.11:8080/healthz: no answer in time), 3 of 3 down, need 2"
    lab.wait_until("all three vantages report it", lambda: seen in cli.ok("gslb", "why", "www"), 10)
    terminal.add("(Amsterdam is cut off)", "")
    terminal.dig("www.gslb.example")
    why = terminal.orrery("gslb", "why", "www")
    lab.contains("why gives the reason", why, "answers from nyc", "pool ams is not usable: 0 of 2 healthy", seen)
    lab.contains("why --at reports the earlier decision", cli.ok("gslb", "why", "www", "--at", before), "answers from ams")
    lab.wait_until("watch showed it as it happened", lambda: f"probe: {', '.join(NYC)} (from nyc" in watch.log_text(), 5)
    terminal.add("orrery gslb watch www", watch.log_text())
    watch.kill()

    # The pool's guard withdraws whichever member failed first and holds the other one in.
    withdrawn = lambda: [m for m in ("ams-1", "ams-2") if api.get(f"/v1/members/{m}")["status"].get("state") == "down"]
    lab.wait_until("the statuses are written", lambda: api.get("/v1/loadbalancers/www")["status"].get("pool") == "nyc" and len(withdrawn()) == 1, 5)
    last = changes(api, "www")[0]["seq"]
    server.kill()
    api.close()
    server.start()
    first = lab.wait_until("it answers again", lambda: ask("www.gslb.example"), 5, 0.002)
    lab.equal("after kill -9 the first answer is the last one", first, NYC)
    time.sleep(2)
    lab.equal("and stays so", dig("www.gslb.example"), NYC)
    lab.equal("no decision was repeated", changes(api, "www")[0]["seq"], last)

    sticky = dig("api.gslb.example")
    ams.restore()
    held = lab.wait_until("the return is withheld for three seconds, and that is a record", lambda: next((d["spec"] for d in api.get("/v1/loadbalancers/www/decisions?limit=10")["items"] if d["spec"]["cause"] == "failback"), None), 10)
    lab.check("with its message", "usable again" in held["withheld"][0]["message"] or held["withheld"][0]["message"], held["withheld"])
    lab.log(held["withheld"][0]["message"])
    lab.wait_until("then clients return", lambda: dig("www.gslb.example") == AMS, 15)
    lab.equal("but clients of api do not: the failback is not approved", dig("api.gslb.example"), sticky)
    cli.ok("gslb", "failback", "api")
    lab.wait_until("after the approval they do", lambda: dig("api.gslb.example")[0] in AMS, 5)
    terminal.show()


def drained(cli, api):
    """An administrator's override, first simulated and then applied."""
    out = cli("gslb", "whatif", "www", "--drain", "ams-1")
    lab.check("the drain of one of two is not called safe: each carries 60 of 100", out.status != 0 and "unsafe" in out.out, out)
    foreseen = api.get("/v1/loadbalancers/www/whatif?drain=ams-1")
    cli.ok("apply", "-f", "-", stdin="{kind: Member, name: ams-1, spec: {pool: ams, addresses: [198.18.1.11], capacity: 60, override: {state: drain, reason: new kernel}}}")
    lab.wait_until("it is drained on the wire", lambda: dig("www.gslb.example") == ["198.18.1.12"], 5)
    lab.equal("as predicted", api.get("/v1/loadbalancers/www/why")["decision"]["classes"], foreseen["after"]["classes"])
    record = lab.wait_until("with actor and reason", lambda: next((d["spec"] for d in api.get("/v1/loadbalancers/www/decisions?limit=10")["items"] if d["spec"]["cause"] == "admin"), None), 5)
    lab.equal("with actor and reason", (record["actor"], record["reason"]), ("admin", "new kernel"))


def randomised(api, seed):
    """A hundred decisions of a random run, each decided again from its record, through the API."""
    dice = random.Random(seed)
    for pool in ("r0", "r1", "r2"):
        api.put(f"/v1/pools/{pool}", {"kind": "Pool", "name": pool, "spec": {"site": pool, "min_healthy": dice.choice(["50%", 1, 2])}})
        for i in range(3):
            api.put(f"/v1/members/{pool}-{i}", member(pool, i, dice.choice([0, 1, 2, 5]), None))
    uses = [{"pool": "r0"}, {"pool": "r1"}, {"pool": "r2", "tier": "passive"}]
    names = {"fail": {"steering": "failover", "answers": "weighted"}, "spread": {"steering": "spread", "answers": "weighted-many", "all_down": {"answer": "last-good"}},
             "topo": {"steering": "topology", "answers": "subset", "max_answers": 2, "topology": [{"name": "west", "prefixes": ["198.51.100.0/24"], "pools": ["r1"]}]},
             "none": {"answers": "all", "all_down": {"answer": "nodata"}}}
    for name, how in names.items():
        api.put(f"/v1/loadbalancers/{name}", {"kind": "LoadBalancer", "name": name, "spec": {"fqdn": f"{name}.gslb.example", "pools": uses, **how}})
    foreseen_right = 0

    def all_records():
        return [d["spec"] for name in names for d in api.get(f"/v1/loadbalancers/{name}/decisions?limit=1000")["items"]]

    while len(all_records()) < 102:
        pool, i = dice.choice(["r0", "r1", "r2"]), dice.randrange(3)
        what = dice.choice(["up", "down", "drain", None])
        foreseen = None
        name = dice.choice(list(names))
        if what == "drain":
            foreseen = api.get(f"/v1/loadbalancers/{name}/whatif?drain={pool}-{i}")["after"]["classes"]
        api.put(f"/v1/members/{pool}-{i}", member(pool, i, dice.choice([0, 1, 2, 5]) if what != "drain" else None, what, api))
        if foreseen is not None:
            seen = lab.wait_until("the result equals the prediction", lambda: api.get(f"/v1/loadbalancers/{name}/why")["decision"]["classes"] == foreseen, 3, 0.01)
            foreseen_right += 1 if seen else 0
    time.sleep(0.2)
    records = all_records()
    again, later = 0, 0
    for record in records:
        then = api.get(f"/v1/loadbalancers/{record['loadbalancer']}/why?at={record['at']}")
        if any(other["loadbalancer"] == record["loadbalancer"] and other["at"] == record["at"] and other["seq"] > record["seq"] for other in records):
            later += 1  # two within one millisecond: the later one applied
            continue
        lab.check(f"{record['loadbalancer']} #{record['seq']} is decided again exactly", then["replayed_exactly"] and then["decision"] == record["after"], then) if not (then["replayed_exactly"] and then["decision"] == record["after"]) else None
        again += 1
    lab.check(f"why --at: {again} of {len(records)} recorded decisions of a random run (seed {seed}) decided again exactly; {foreseen_right} predictions matched the result", again + later == len(records) and again >= 100)


def member(pool, i, weight, state, api=None):
    spec = {"pool": pool, "addresses": [f"203.0.113.{int(pool[1]) * 10 + i}"]}
    if weight is None and api:
        weight = api.get(f"/v1/members/{pool}-{i}")["spec"].get("weight", 1)
    spec["weight"] = weight
    if state:
        spec["override"] = {"state": state, "reason": "dice"}
    return {"kind": "Member", "name": f"{pool}-{i}", "spec": spec}


def measured(api, rounds):
    """From the deciding probe response to the changed DNS answer."""
    web = lab.Web("198.18.0.1", 8081)
    turn = {"n": 0}

    def alternate():
        turn["n"] += 1
        return 500 if turn["n"] % 2 == 0 else 200

    web.status = alternate
    api.put("/v1/monitors/fast", {"kind": "Monitor", "name": "fast", "spec": {"kind": "http", "port": 8081, "interval": "1s", "timeout": "1s", "rise": 1, "fall": 1}})
    api.put("/v1/pools/quick", {"kind": "Pool", "name": "quick", "spec": {"monitors": ["fast"]}})
    api.put("/v1/pools/other", {"kind": "Pool", "name": "other", "spec": {}})
    api.put("/v1/members/quick-1", {"kind": "Member", "name": "quick-1", "spec": {"pool": "quick", "addresses": ["198.18.0.1"]}})
    api.put("/v1/members/other-1", {"kind": "Member", "name": "other-1", "spec": {"pool": "other", "addresses": ["203.0.113.99"]}})
    api.put("/v1/loadbalancers/quick", {"kind": "LoadBalancer", "name": "quick", "spec": {"fqdn": "quick.gslb.example", "pools": [{"pool": "quick"}, {"pool": "other"}]}})
    took = []
    last = None
    end = time.monotonic() + 3 * rounds + 10
    while len(took) < rounds and time.monotonic() < end:
        seen = ask("quick.gslb.example")
        at = time.monotonic()
        if last is not None and seen and seen != last and web.answered:
            took.append(1000 * (at - web.answered[-1][0]))
        last = seen or last
        time.sleep(0.0005)
    for path in ("loadbalancers/quick", "members/quick-1", "members/other-1", "pools/quick", "pools/other", "monitors/fast"):
        api.delete(f"/v1/{path}")
    took.sort()
    lab.check(f"{len(took)} changes: from the deciding probe response to the changed DNS answer {took[len(took) // 2]:.1f} ms (median), {took[-1]:.1f} ms at most", len(took) >= rounds and took[len(took) // 2] < 50, took)


def main(options):
    lab.program("dig", "bind9-dnsutils")
    own_network(__file__)
    with open("/proc/sys/net/ipv4/ip_forward", "w") as file:  # of this network alone: checkers probe the sites through it
        file.write("1")
    for address in (SERVER, "198.18.0.1"):
        ip("addr", "add", f"{address}/32", "dev", "lo")
    sites = [Site("ams", 1, AMS), Site("nyc", 2, NYC)]
    try:
        server = lab.Server(options.orrery, "home", arguments=["--dns-listen", f"{SERVER}:53", "--dns-rate-limit", "0", "--server-listen", f"{SERVER}:8421", "--server-allow-plaintext"])
        server.start()
        cli, api = lab.Cli(options.orrery, server).login(server), server.api()
        cli.ok("apply", "-f", EXAMPLE)
        lab.wait_until("members were probed", lambda: all(api.get(f"/v1/members/{m}")["status"].get("verdict") == "up" for m in ("ams-1", "ams-2", "nyc-1", "nyc-2")), 10)
        measured(api, options.rounds)
        token = lab.write_file(os.path.join(lab.scratch(), "checker.token"), server.token() + "\n")
        sites += [Checker(options.orrery, name, number, f"http://{SERVER}:8421", token) for number, name in enumerate(("london", "tokyo"), 1)]
        lab.wait_until("three vantages probe all members", lambda: [one["targets"] for one in vantages(api).values()] == [4, 4, 4], 20)
        time.sleep(3)  # each has had the time to find out
        cut_off(server, cli, api, sites[0])
        drained(cli, api)
        randomised(api, options.seed)
        lab.check("the server stops on SIGTERM", server.stop() == 0)
    finally:
        for site in sites:
            site.end()


def add_options(parser):
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 30))
    parser.add_argument("--rounds", type=int, default=8)


if __name__ == "__main__":
    lab.run(main, add_options)

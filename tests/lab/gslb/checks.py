#!/usr/bin/python3
"""Results of checks, their messages, and their effect on answers: evidence with its reason, checks that cannot run, checkers that leave, pools that fail at once,
both address families, signed answers that a resolver validates. Everything is on loopback: nodes are addresses in 127.0.0.0/8."""
import contextlib
import os
import signal
import socket
import ssl
import subprocess
import sys
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
sys.dont_write_bytecode = True
import orrery_lab as lab  # noqa: E402

PORT = 8088
RECORDS = r"""ns1 A 127.0.0.1
*.wild A 192.0.2.77
svc HTTPS 1 . alpn="h2,h3" port=8443 ipv4hint=192.0.2.1
_dns SVCB 1 svc alpn=dot
"""
QUICK = {"kind": "tcp", "port": PORT, "interval": "1s", "timeout": "500ms", "rise": 1, "fall": 2}


def dig(port, name, kind="A", *more):
    done = subprocess.run(["dig", "+short", "+tries=1", "+time=2", "-p", str(port), "@127.0.0.1", name, kind, *more], capture_output=True, text=True, timeout=10)
    return sorted(line for line in done.stdout.splitlines() if line and not line.startswith(";"))


class Site:
    """A server, its resources, and its answers."""

    def __init__(self, orrery):
        folder = lab.scratch("programs")
        for open_to_all in (lab.scratch(), folder):  # programs run as nobody
            os.chmod(open_to_all, 0o755)
        program = lambda name, text, mode=0o755: lab.write_file(os.path.join(folder, name), text, mode)  # noqa: E731
        self.programs = {"unknown": program("unknown", "#!/bin/sh\necho 'UNKNOWN - no data'\nexit 3\n"),
                         "not-executable": program("plain", "#!/bin/sh\nexit 0\n", 0o644),
                         "missing": os.path.join(folder, "missing"),
                         "critical": program("critical", "#!/bin/sh\necho 'CRITICAL - 3 of 4 disks|free=1'\nexit 2\n")}
        self.own_program = program("check-site", "#!/bin/sh\necho OK\n")
        self.port = lab.free_port()
        self.server = lab.Server(orrery, arguments=["--dns-listen", f"127.0.0.1:{self.port}", "--health-programs", ";".join(f"{k}={v}" for k, v in self.programs.items())])
        self.server.start()
        self.api = self.server.api()
        self.cli = lab.Cli(orrery, self.server).login(self.server)
        self.token_file = lab.write_file(os.path.join(lab.scratch(), "checker.token"), self.server.token() + "\n")
        self.orrery = orrery

    def put(self, plural, name, **spec):
        return self.api.put(f"/v1/{plural}/{name}", {"spec": spec})

    def pool(self, name, addresses, monitor=None, lb=None, **spec):
        """A pool, its members, and a load balancer below names.example."""
        self.put("pools", name, **({"monitors": [monitor]} if monitor else {}), **spec)
        for at, address in enumerate(addresses, 1):
            self.put("members", f"{name}-{at}", pool=name, addresses=address if isinstance(address, list) else [address])
        self.put("loadbalancers", name, fqdn=f"{name}.names.example", zone="names.example", pools=[{"pool": name}], ttl={"max": "2s", "min": "1s"}, **(lb or {}))

    def status(self, plural, name):
        return self.api.get(f"/v1/{plural}/{name}").get("status", {})

    def answers(self, name, kind="A"):
        return dig(self.port, f"{name}.names.example", kind)

    def why(self, name):
        return self.cli.ok("gslb", "why", name)

    def events(self):
        return self.cli.ok("events", "--since", "1h")

    def records(self, name):
        return [one["spec"] for one in self.api.get(f"/v1/loadbalancers/{name}/decisions?limit=20")["items"]]

    @contextlib.contextmanager
    def checker(self, name, *arguments):
        process = lab.Process(name, [self.orrery, "checker", "--join", self.server.url, "--token-file", self.token_file, "--name", name, "--outbound-allow", lab.LOOPBACK[0],
                                     "--outbound-allow", lab.LOOPBACK[1], *arguments])
        try:
            lab.wait_until(f"checker {name} has joined", lambda: name in self.vantages(), 15)
            yield process
        finally:
            process.stop()

    def vantages(self):
        return {one["name"]: one for one in self.api.get("/v1/health/vantages")["items"]}


def evidence_says_why(site):
    nothing = {"all_down": {"answer": "nodata"}}
    web = lab.Web("127.73.0.1", PORT)
    site.put("monitors", "web", **{**QUICK, "kind": "http", "path": "/up"})
    site.pool("web", ["127.73.0.1"], "web", lb=nothing)
    lab.wait_until("the web member is up", lambda: site.status("members", "web-1").get("verdict") == "up", 10)
    watch = lab.Process("watch", [site.orrery, "gslb", "watch"], site.cli.environment)
    time.sleep(1)
    web.status = 503
    lab.wait_until("it is withdrawn", lambda: not site.answers("web"), 10)
    reason_is_everywhere(site, watch, "web", "a status code", "web: bad_status (HTTP GET http://127.73.0.1:8088/up: 503 X")
    web.close()
    site.put("monitors", "pushed", kind="push", ttl="2s")
    site.pool("pushed", ["127.73.0.2"], "pushed", lb=nothing)
    site.api.put("/v1/members/pushed-1/health/pushed", {"state": "down", "message": "db broken", "ttl": "1m"})
    reason_is_everywhere(site, watch, "pushed", "the text of a push", "pushed: failed (db broken)")
    site.api.put("/v1/members/pushed-1/health/pushed", {"state": "up"})
    lab.wait_until("an expired push is reported as such, not with the text of the last one", lambda: "pushed: failed (no status was pushed within " in site.why("pushed"), 10)
    site.put("monitors", "disk", kind="plugin", command=["critical"], interval="1s", fall=1)
    site.pool("disk", ["127.73.0.3"], "disk", lb=nothing)
    reason_is_everywhere(site, watch, "disk", "the output of a plugin", "disk: failed (CRITICAL - 3 of 4 disks)")
    load_says_its_effect(site, watch)
    watch.kill()


def reason_is_everywhere(site, watch, name, what, text):
    """Of a name whose only member fails: in `why`, the record with its evidence, `watch` and the events."""
    lab.wait_until(f"{what} is in why, with the member's name", lambda: f"{name}-1 in {name}: {text}" in site.why(name), 10)
    record = lab.wait_until("there is a record", lambda: next((one for one in site.records(name) if one.get("trigger", {}).get("to") == "down"), None), 5)
    lab.contains(f"{what} is in the record", record["trigger"]["message"], text)
    lab.contains(f"{what} is in the record's evidence", f"{name}: {record['trigger']['evidence'][0]['class']} ({record['trigger']['evidence'][0]['message']})", text)
    lab.wait_until(f"{what} is in watch, with the member's name", lambda: f"  {name}-1: {text}" in watch.log_text(), 5)
    lab.wait_until(f"{what} is in the events", lambda: f"LoadBalancer/{name} all-down" in site.events() and f"{name}-1 in {name}: {text}" in site.events(), 5)


def load_says_its_effect(site, watch):
    site.pool("busy", ["127.73.0.4", "127.73.0.5"], load={"low": 50, "high": 90, "step": "100%", "interval": "1s"})
    lab.wait_until("both members answer", lambda: len(site.answers("busy")) == 2, 5)
    site.api.put("/v1/members/busy-1/load", {"load": 99, "ttl": "1m"})
    lab.wait_until("a busy member gets no clients", lambda: site.answers("busy") == ["127.73.0.5"], 5)
    lab.contains("and why reports that its load is the reason", site.why("busy"), "busy-1 in busy: load 99 (from 50 to 90) leaves it 0 % of its weight")
    lab.wait_until("which is the cause of the record, too", lambda: site.records("busy")[0]["cause"] == "load", 5)
    lab.equal("with the effect on the weight", site.records("busy")[0]["trigger"]["message"], "load 99 changes its weight from 100 % to 0 %")
    lab.wait_until("watch has it, with the member's name", lambda: "  busy-1: load 99 changes its weight from 100 % to 0 %" in watch.log_text(), 5)
    site.api.put("/v1/members/busy-2/load", {"load": 99, "ttl": "1m"})
    lab.wait_until("if all members are busy they share equally, and why reports it", lambda: len(site.answers("busy")) == 2 and "they share equally" in site.why("busy"), 5)
    site.api.put("/v1/members/busy-2/load", {"load": 0, "ttl": "1m"})
    for body in ({"load": -1}, {"load": 1e308}, {"load": 5, "ttl": "0s"}, {"load": 5, "hold": "1m"}):
        site.api.refused(f"the load {body} is refused", 400, "PUT", "/v1/members/busy-1/load", body)
    lab.wait_until("the other member answers alone again", lambda: site.answers("busy") == ["127.73.0.5"], 8)
    site.api.put("/v1/members/busy-1/load", {"load": 99, "ttl": "1s"})
    lab.wait_until("a load that is not repeated expires", lambda: len(site.answers("busy")) == 2, 8)


def a_check_that_cannot_run_is_visible(site):
    for name in ("unknown", "not-executable", "missing", "check-site"):
        site.put("monitors", f"by-{name}", kind="plugin", command=[name], interval="1s", fall=1, rise=1)
        site.pool(f"by-{name}", ["127.73.1.1"], f"by-{name}")
    wanted = {"unknown": "exit code 3: UNKNOWN - no data", "not-executable": "may not be executed", "missing": "there is no program", "check-site": "has no program check-site"}
    for name, reason in wanted.items():
        lab.wait_until(f"{name}: the member reports that it cannot be checked", lambda n=name: "unchecked" in site.status("members", f"by-{n}-1"), 10)
        status = site.status("members", f"by-{name}-1")
        lab.equal(f"{name}: it is not reported as up", status["state"], "unknown")
        lab.contains(f"{name}: and why", status["unchecked"], reason)
        warnings = lab.wait_until(f"{name}: the load balancer warns", lambda n=name: site.status("loadbalancers", f"by-{n}").get("failover_time", {}).get("warnings"), 5)
        lab.contains(f"{name}: with the reason", str(warnings), "a check cannot run", reason)
    lab.equal("the metric counts them", site.server.metrics()["orrery_gslb_members_unchecked"], 4)
    with site.checker("own", "--program", f"check-site={site.own_program}"):
        lab.wait_until("a checker that has the program runs it", lambda: site.status("members", "by-check-site-1").get("state") == "up", 10)
        lab.check("and no member is reported as unchecked there", "unchecked" not in site.status("members", "by-check-site-1"))
    lab.wait_until("without the checker it is reported again", lambda: "unchecked" in site.status("members", "by-check-site-1"), 15)


def a_checker_that_leaves_does_not_delay_withdrawals(site):
    site.put("monitors", "quick", **QUICK)
    webs = {at: lab.Web(f"127.73.2.{at}", PORT) for at in (1, 2, 3, 4)}
    site.pool("left", [f"127.73.2.{at}" for at in webs], "quick", guard={"max_ejections": "100%"})
    for at, (how, number, limit) in enumerate((("SIGTERM", signal.SIGTERM, 6), ("SIGKILL", signal.SIGKILL, 14)), 1):
        with site.checker("fra") as checker:
            lab.wait_until("the checker probes", lambda: site.vantages()["fra"]["targets"] > 0, 10)
            time.sleep(2)
            worst = lab.wait_until("the failover time counts a vantage that dies", lambda: site.status("loadbalancers", "left").get("failover_time", {}).get("vantages"), 5)
            lab.equal("by three of its heartbeats and a second", worst, "7s")
            lab.contains("why shows it as a part of the sum", site.why("left"), "silent vantages 7s")
            checker.signal(number)
            began = time.monotonic()
            webs[at].close()
            lab.wait_until(f"{how}: the member is withdrawn", lambda a=at: f"127.73.2.{a}" not in site.answers("left"), limit)
            lab.log(f"{how}: after {time.monotonic() - began:.1f} s")
            if number == signal.SIGTERM:
                lab.check("a checker that signed off is not a vantage any more", "fra" not in site.vantages())
            else:
                lab.check("a silent checker does not count", not site.vantages()["fra"]["trusted"], site.vantages())
                lab.contains("vantages reports it, and the time of the last report", site.cli.ok("gslb", "vantages"), "LAST REPORT", "s ago", "silent for")


def pools_that_fail_at_once(site):
    webs = [lab.Web(f"127.73.3.{at}", PORT) for at in range(1, 11)]
    addresses = [f"127.73.3.{at}" for at in range(1, 11)]
    site.pool("guarded", addresses, "quick")
    site.pool("left-over", addresses, "quick", guard={"max_ejections": "100%"}, lb={"all_down": {"answer": "healthy"}})
    site.put("loadbalancers", "two-sites", fqdn="two.names.example", zone="names.example", pools=[{"pool": "guarded"}, {"pool": "second"}])
    lab.wait_until("all ten are up", lambda: all(site.status("members", f"{pool}-{at}").get("verdict") == "up" for at in range(1, 11) for pool in ("guarded", "left-over")), 15)
    for web in webs[:8]:
        web.close()
    lab.wait_until("at most half of a pool is withdrawn at once: the guard's default", lambda: len(site.answers("guarded")) == 5, 10)
    lab.wait_until("with all_down healthy the remaining members answer", lambda: site.answers("left-over") == ["127.73.3.10", "127.73.3.9"], 10)
    lab.equal("which is shown as panic", site.status("loadbalancers", "left-over")["state"], "panic")
    lab.wait_until("a guard does not keep clients from another site", lambda: dig(site.port, "two.names.example") == ["127.73.9.1"], 5)
    for web in webs[8:]:
        web.close()


def the_last_good_answer_excludes_removed_and_overridden_members(site):
    site.put("monitors", "told", kind="push", ttl="10m")
    site.pool("kept", ["127.73.4.1", "127.73.4.2", "127.73.4.3"], "told", min_healthy=3, lb={"all_down": {"answer": "last-good"}})
    for at in (1, 2, 3):
        site.api.put(f"/v1/members/kept-{at}/health/told", {"state": "up"})
    lab.wait_until("the last good answer is known", lambda: len(site.answers("kept")) == 3 and all(site.status("members", f"kept-{at}").get("verdict") == "up" for at in (1, 2, 3)), 10)
    site.api.put("/v1/members/kept-1/health/told", {"state": "down"})
    lab.wait_until("too few are healthy", lambda: site.status("loadbalancers", "kept").get("state") == "panic", 10)
    lab.equal("the last good answer stays", len(site.answers("kept")), 3)
    site.put("members", "kept-2", pool="kept", addresses=["127.73.4.2"], override={"state": "down", "reason": "broken disk"})
    lab.wait_until("without a member that has an override", lambda: site.answers("kept") == ["127.73.4.1", "127.73.4.3"], 5)
    site.api.delete("/v1/members/kept-1")
    lab.wait_until("without a member that was removed", lambda: site.answers("kept") == ["127.73.4.3"], 5)
    site.put("members", "kept-3", pool="kept", addresses=["127.73.4.33"])
    lab.wait_until("and with the present address of a member that moved", lambda: site.answers("kept") == ["127.73.4.33"], 5)


def a_flapping_member_is_held_down(site):
    site.put("monitors", "flap", kind="push", ttl="10m")
    site.pool("flap", ["127.73.7.1", "127.73.7.2"], "flap", min_healthy=1, hold_down={"changes": 2, "window": "1m", "hold": "4s", "max_hold": "8s"})
    push = lambda at, state: site.api.put(f"/v1/members/flap-{at}/health/flap", {"state": state})  # noqa: E731
    for at in (1, 2):
        push(at, "up")
    lab.wait_until("both members are up", lambda: all(site.status("members", f"flap-{at}").get("verdict") == "up" for at in (1, 2)), 10)
    for turn in (1, 2):
        push(1, "down")
        lab.wait_until(f"the member is withdrawn ({turn})", lambda: site.answers("flap") == ["127.73.7.2"], 5)
        push(1, "up")
        lab.wait_until("it is up again", lambda: site.status("members", "flap-1").get("verdict") == "up", 5)
        if turn == 1:
            lab.wait_until("after the first failure it returns at once", lambda: len(site.answers("flap")) == 2, 3)
    began = time.monotonic()
    record = lab.wait_until("after the second failure it is held down, with a record", lambda: next((one for one in site.records("flap") if one["cause"] == "flap_hold"), None), 3)
    lab.contains("with the reason", str(record["withheld"]), "flap-1")
    lab.equal("it does not answer, although it is up", site.answers("flap"), ["127.73.7.2"])
    lab.contains("and why reports it, with the member's name", site.why("flap"), "withheld (flap_hold): flap-1")
    lab.wait_until("it returns once it was up for the hold time", lambda: len(site.answers("flap")) == 2, 8)
    lab.check(f"after {time.monotonic() - began:.1f} s", 2 < time.monotonic() - began < 7)


def each_family_is_drawn_among_members_that_have_it(site):
    addresses = [["127.73.5.1", "fd00::1"], ["127.73.5.2", "fd00::2"], "127.73.5.3", "fd00::4"]
    for policy in ({"answers": "weighted"}, {"answers": "subset", "max_answers": 1}):
        name = f"dual-{policy['answers']}"
        site.pool(name, addresses, lb=policy)
        lab.wait_until("the name is answered", lambda n=name: site.answers(n), 5)
        for kind, expected in (("A", {"127.73.5.1", "127.73.5.2", "127.73.5.3"}), ("AAAA", {"fd00::1", "fd00::2", "fd00::4"})):
            seen = [site.answers(name, kind) for _ in range(40)]
            lab.check(f"{policy['answers']}: an answer for {kind} is never empty while a member has such an address", all(len(one) == 1 for one in seen), seen)
            lab.equal(f"{policy['answers']}: and each member that has one is drawn", {one[0] for one in seen}, expected)


class Unbound:
    """A resolver that validates names.example."""

    def __init__(self, zone_port, ds):
        self.port, folder = lab.free_port(), lab.scratch("unbound")
        text = f"""server:
 do-daemonize: no
 use-syslog: no
 chroot: ""
 username: ""
 directory: "{folder}"
 pidfile: "{folder}/pid"
 interface: 127.0.0.1@{self.port}
 do-not-query-localhost: no
 trust-anchor: "names.example. DS {ds}"
remote-control:
 control-enable: no
stub-zone:
 name: "names.example"
 stub-addr: 127.0.0.1@{zone_port}
"""
        self.process = lab.Process("unbound", [lab.program("unbound", "unbound"), "-d", "-c", lab.write_file(os.path.join(folder, "conf"), text)])
        lab.wait_until("unbound validates the zone", lambda: self.status("names.example", "SOA") == ("NOERROR", True), 15, 0.2)

    def status(self, name, kind):
        """(status, whether the answer is authenticated)"""
        done = subprocess.run(["dig", "+dnssec", "+tries=1", "-p", str(self.port), "@127.0.0.1", name, kind], capture_output=True, text=True, timeout=10).stdout
        return done.partition("status: ")[2].partition(",")[0], " ad" in done.partition("flags:")[2].partition(";")[0]


def signed_answers(site):
    key = lab.scratch() + "/zone.pem"
    subprocess.run(["openssl", "genpkey", "-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-256", "-out", key], check=True, capture_output=True)
    site.put("secrets", "empty", values={"other": "x"})
    with open(key, encoding="ascii") as file:
        site.put("secrets", "zone-key", values={"private_key": file.read()})
    zone = dict(origin="names.example", nameservers=["ns1.names.example"], records=RECORDS)
    site.api.refused("a signing key without private_key is refused", 400, "PUT", "/v1/zones/names", {"spec": {**zone, "signing_key": "empty"}})
    site.put("zones", "names", **zone, signing_key="zone-key")
    ds = lab.wait_until("the zone is signed", lambda: site.status("zones", "names").get("ds"), 10)
    tag, algorithm, digest, value = ds.split()
    anchor = lab.write_file(os.path.join(lab.scratch(), "anchor"), f'trust-anchors {{ "names.example." static-ds {tag} {algorithm} {digest} "{value}"; }};\n')
    unbound = Unbound(site.port, ds)
    for name in ("names.example", "kept.names.example", "nothing.names.example", "x.wild.names.example", "ns1.names.example"):
        for kind in ("NSEC", "A", "TXT"):
            done = subprocess.run(["delv", "-a", anchor, "+root=names.example", "-p", str(site.port), "@127.0.0.1", name, kind], capture_output=True, text=True, timeout=20)
            lab.check(f"delv validates {name} {kind}", "fully validated" in done.stdout + done.stderr, done.stdout + done.stderr)
            lab.equal(f"unbound validates {name} {kind}", unbound.status(name, kind), ("NOERROR", True))
        lab.equal(f"unbound accepts {name} RRSIG, which has no signature of its own", unbound.status(name, "RRSIG")[0], "NOERROR")
        done = subprocess.run(["dig", "+dnssec", "+tries=1", "-p", str(site.port), "@127.0.0.1", name, "RRSIG"], capture_output=True, text=True, timeout=10)
        lab.check(f"RRSIG at {name} is answered with a signature of just that name", f"{name}." in done.stdout.split("ANSWER SECTION")[-1] and "RRSIG\tNSEC" in done.stdout.replace(" ", "\t"), done.stdout)
    unbound.process.stop()
    below = subprocess.run(["dig", "+dnssec", "+noall", "+answer", "-p", str(site.port), "@127.0.0.1", "foo.wild.names.example", "NSEC"], capture_output=True, text=True, timeout=10).stdout
    lab.contains("the next name in an NSEC below a wildcard comes after its owner", " ".join(below.split()), r"IN NSEC \000.foo.wild.names.example.")
    lab.equal("HTTPS records are accepted in presentation format", dig(site.port, "svc.names.example", "HTTPS"), ['1 . alpn="h2,h3" port=8443 ipv4hint=192.0.2.1'])
    lab.equal("and SVCB records", dig(site.port, "_dns.names.example", "SVCB"), ['1 svc.names.example. alpn="dot"'])


def certificates_of_an_own_authority(site):
    folder = lab.scratch("tls")
    run = lambda *words: subprocess.run(["openssl", *words], check=True, capture_output=True, cwd=folder)  # noqa: E731
    run("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-keyout", "key.pem", "-out", "cert.pem", "-days", "30", "-subj", "/CN=own", "-addext", "subjectAltName=IP:127.73.6.1")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(os.path.join(folder, "cert.pem"), os.path.join(folder, "key.pem"))
    secure, silent, other, plain = (socket.create_server((address, 8443)) for address in ("127.73.6.1", "127.73.6.2", "127.73.6.3", "127.73.6.4"))

    def serve(listener):
        while True:
            try:
                client, _ = listener.accept()
                if listener is plain:
                    client.sendall(b"SSH-2.0-lab\r\n")
                    client.close()
                    continue
                with contextlib.suppress(OSError), client, context.wrap_socket(client, server_side=True) as wrapped:
                    wrapped.settimeout(2)
                    wrapped.recv(1)
            except OSError:
                return
    for listener in (secure, other, plain):
        threading.Thread(target=serve, args=(listener,), daemon=True).start()
    monitor = {"kind": "tls", "port": 8443, "interval": "1s", "timeout": "900ms", "fall": 1, "rise": 1}
    with open(os.path.join(folder, "cert.pem"), encoding="ascii") as file:
        site.put("monitors", "own-ca", **monitor, ca=file.read())
    site.put("monitors", "system-ca", **monitor)
    site.pool("trusted", ["127.73.6.1"], "own-ca")
    site.pool("foreign", ["127.73.6.1"], "system-ca")
    site.pool("silent", ["127.73.6.2"], "own-ca")
    site.pool("other", ["127.73.6.3"], "own-ca")
    site.pool("plain", ["127.73.6.4"], "own-ca")
    lab.wait_until("a certificate of the monitor's own authority is good", lambda: site.status("members", "trusted-1").get("verdict") in ("up", "degraded"), 10)
    lab.wait_until("with the CAs of the system it is not, and the reason is given", lambda: "tls_error" in site.why("foreign") and "self-signed certificate" in site.why("foreign"), 10)
    lab.wait_until("a target that accepts and stays silent fails in its handshake", lambda: "timeout_tls" in site.why("silent"), 10)
    lab.wait_until("a certificate of another address is reported as such", lambda: "tls_error" in site.why("other") and "IP address mismatch" in site.why("other"), 10)
    lab.wait_until("a target without TLS is reported as such", lambda: "tls_error" in site.why("plain") and "the handshake failed: wrong version number" in site.why("plain"), 10)
    for one in (secure, silent, other, plain):
        one.close()


def what_is_refused_or_said(site):
    site.put("pools", "wrong")
    for what, plural, spec, field in (("an end that is over", "pools", {"override": {"state": "drain", "until": "2020-01-01T00:00:00Z"}}, "spec.override.until"),
                                      ("a guard that allows no ejection", "pools", {"guard": {"max_ejections": "0%"}}, "spec.guard.max_ejections"),
                                      *((f"a member at {address}", "members", {"pool": "wrong", "addresses": [address]}, "spec.addresses[0]")
                                        for address in ("0.0.0.0", "::", "255.255.255.255", "224.0.0.1", "ff02::1", "::ffff:10.0.0.1", "fe80::1", "fe80::1%eth0")),
                                      ("a name server that is an address", "zones", {"origin": "o.example", "nameservers": ["192.0.2.1"]}, "spec.nameservers[0]"),
                                      ("a contact without @", "zones", {"origin": "o.example", "nameservers": ["ns.p.example"], "contact": "me.example"}, "spec.contact"),
                                      ("check_servers that are no addresses", "publishers", {"driver": "rfc2136", "server": "192.0.2.1", "zones": ["o.example"], "check_servers": ["bad host"]}, "spec.check_servers[0]")):
        answer = site.api.refused(f"{what} is refused", 400, "PUT", f"/v1/{plural}/refused", {"spec": spec})
        lab.contains(f"{what}: the field is named", str(answer), field)
    lab.contains("failback without a failover reports it", site.cli.ok("gslb", "failback", "kept"), "left a pool; nothing changed")
    site.put("secrets", "pdns", values={"key": "x"})
    site.put("publishers", "elsewhere", driver="powerdns", url="http://127.0.0.1:9", allow_plaintext=True, credentials="pdns", zones=["elsewhere.example"])
    site.put("loadbalancers", "elsewhere", fqdn="www.elsewhere.example", pools=[{"pool": "kept"}])
    paths = lambda: [one["target"] for one in site.status("loadbalancers", "elsewhere").get("published", [])]  # noqa: E731
    lab.wait_until("the status of a name that only a Publisher serves lists that Publisher only, without an error of this server", lambda: paths() and "this server" not in paths(), 10)


def main(given):
    for name, package in (("dig", "bind9-dnsutils"), ("delv", "bind9-dnsutils"), ("unbound", "unbound")):
        lab.program(name, package)
    site = Site(given.orrery)
    site.put("pools", "second")
    site.put("members", "second-1", pool="second", addresses=["127.73.9.1"])
    site.put("zones", "names", origin="names.example", nameservers=["ns1.names.example"], records=RECORDS)
    evidence_says_why(site)
    a_checker_that_leaves_does_not_delay_withdrawals(site)
    a_check_that_cannot_run_is_visible(site)
    pools_that_fail_at_once(site)
    the_last_good_answer_excludes_removed_and_overridden_members(site)
    a_flapping_member_is_held_down(site)
    each_family_is_drawn_among_members_that_have_it(site)
    signed_answers(site)
    certificates_of_an_own_authority(site)
    what_is_refused_or_said(site)
    site.server.stop()


lab.run(main)

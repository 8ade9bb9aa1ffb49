#!/usr/bin/python3
"""Decisions published to external DNS services: a real PowerDNS by its API and a real BIND by signed updates, through Publishers and Secrets."""
import base64
import contextlib
import http.client
import json
import os
import secrets
import sqlite3
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
sys.dont_write_bytecode = True
import orrery_lab as lab  # noqa: E402

ZONE = "gslb.test"
SCHEMA = "/usr/share/doc/pdns-backend-sqlite3/schema.sqlite3.sql"


class Powerdns:
    def __init__(self):
        self.program, self.key = lab.program("pdns_server", "pdns-server"), secrets.token_hex(16)
        lab.skip_unless(os.path.exists(SCHEMA), "PowerDNS's SQLite backend is not installed (Debian package pdns-backend-sqlite3)")
        self.folder, self.dns, self.api = lab.scratch("pdns"), lab.free_port(), lab.free_port()
        with open(SCHEMA) as schema, contextlib.closing(sqlite3.connect(os.path.join(self.folder, "db"))) as database:
            database.executescript(schema.read())
        lab.write_file(os.path.join(self.folder, "pdns.conf"), f"""launch=gsqlite3
gsqlite3-database={self.folder}/db
local-address=127.0.0.1
local-port={self.dns}
daemon=no
guardian=no
socket-dir={self.folder}
api=yes
api-key={self.key}
webserver=yes
webserver-address=127.0.0.1
webserver-port={self.api}
webserver-allow-from=127.0.0.0/8
cache-ttl=0
query-cache-ttl=0
negquery-cache-ttl=0
""")
        self.start()
        status = self.call("POST", "/zones", {"name": ZONE + ".", "kind": "Native", "nameservers": [f"ns1.{ZONE}."]})
        lab.equal("PowerDNS has the zone", status, 201)

    def start(self):
        self.process = lab.Process("pdns", [self.program, f"--config-dir={self.folder}"])
        lab.wait_until("PowerDNS answers", self.answers, 20)

    def answers(self):
        try:
            return self.call("GET", "") == 200
        except OSError:
            return False

    def call(self, method, path, body=None):
        connection = http.client.HTTPConnection("127.0.0.1", self.api, timeout=10)
        with contextlib.closing(connection):
            connection.request(method, "/api/v1/servers/localhost" + path, json.dumps(body) if body is not None else None, {"X-API-Key": self.key, "Content-Type": "application/json"})
            return connection.getresponse().status


class Bind:
    def __init__(self):
        self.program, self.secret = lab.program("named", "bind9"), base64.b64encode(secrets.token_bytes(32)).decode()
        self.folder, self.dns = lab.scratch("bind"), lab.free_port()
        os.chmod(self.folder, 0o777)
        lab.write_file(os.path.join(self.folder, "zone"), f"$TTL 60\n@ SOA ns1 host 1 60 60 60 5\n@ NS ns1\nns1 A 127.0.0.1\n")
        lab.write_file(os.path.join(self.folder, "named.conf"), f"""key orrery {{ algorithm hmac-sha256; secret "{self.secret}"; }};
options {{ directory "{self.folder}"; listen-on port {self.dns} {{ 127.0.0.1; }}; listen-on-v6 {{ none; }}; recursion no; pid-file none; session-keyfile none; dnssec-validation no; }};
controls {{ }};
zone "{ZONE}" {{ type primary; file "zone"; update-policy {{ grant orrery zonesub ANY; }}; }};
""")
        self.process = lab.Process("named", [self.program, "-g", "-c", os.path.join(self.folder, "named.conf")])
        lab.wait_until("BIND answers", lambda: dig(self.dns, f"ns1.{ZONE}") == ["127.0.0.1"], 20)


def dig(port, name, kind="A"):
    done = subprocess.run(["dig", "+short", "+tries=1", "+time=2", "-p", str(port), "@127.0.0.1", name, kind], capture_output=True, text=True, timeout=10)
    return sorted(done.stdout.split()) if done.returncode == 0 else None


def main(options):
    lab.program("dig", "bind9-dnsutils")
    pdns, bind = Powerdns(), Bind()
    server = lab.Server(options.orrery, "site1")
    server.start()
    cli, api = lab.Cli(options.orrery, server).login(server), server.api()
    documents = f"""
kind: Secret
name: pdns-api
spec: {{values: {{key: {pdns.key}}}}}
---
kind: Secret
name: bind-key
spec: {{values: {{secret: "{bind.secret}"}}}}
---
kind: Publisher
name: pdns
spec: {{driver: powerdns, url: "http://127.0.0.1:{pdns.api}", credentials: pdns-api, zones: [{ZONE}], check_servers: ["127.0.0.1:{pdns.dns}"]}}
---
kind: Publisher
name: bind
spec: {{driver: rfc2136, server: "127.0.0.1:{bind.dns}", tsig: {{key: orrery}}, credentials: bind-key, zones: [{ZONE}], check_servers: ["127.0.0.1:{bind.dns}"]}}
---
kind: Pool
name: p
spec: {{min_healthy: 1}}
---
kind: Member
name: a
spec: {{pool: p, addresses: [192.0.2.1, "2001:db8::1"]}}
---
kind: Member
name: b
spec: {{pool: p, addresses: [192.0.2.2]}}
---
kind: LoadBalancer
name: www
spec: {{fqdn: www.{ZONE}, pools: [{{pool: p}}]}}
"""
    cli.ok("apply", "-f", "-", stdin=documents)

    def published():
        return {one["target"]: one for one in api.get("/v1/loadbalancers/www")["status"].get("published", [])}

    def in_sync(*paths):
        seen = published()
        return all(seen.get(path, {}).get("state") == "IN_SYNC" for path in paths)

    lab.wait_until("both are in sync, confirmed by their name servers", lambda: in_sync("pdns", "bind"), 20)
    for name, port in (("PowerDNS", pdns.dns), ("BIND", bind.dns)):
        lab.equal(f"{name} answers with the decision", (dig(port, f"www.{ZONE}"), dig(port, f"www.{ZONE}", "AAAA")), (["192.0.2.1", "192.0.2.2"], ["2001:db8::1"]))
    lab.wait_until("the publishers report it", lambda: all(api.get(f"/v1/publishers/{p}")["status"].get("state") == "IN_SYNC" for p in ("pdns", "bind")), 5)

    drain = "{kind: Member, name: a, spec: {pool: p, addresses: [192.0.2.1, \"2001:db8::1\"], override: {state: drain, reason: lab}}}"
    cli.ok("apply", "-f", "-", stdin=drain)
    for name, port in (("PowerDNS", pdns.dns), ("BIND", bind.dns)):
        lab.wait_until(f"{name} follows", lambda: (dig(port, f"www.{ZONE}"), dig(port, f"www.{ZONE}", "AAAA")) == (["192.0.2.2"], []), 10)
    lab.wait_until("and the status confirms it", lambda: in_sync("pdns", "bind") and all(one["decision"] == api.get("/v1/loadbalancers/www")["status"]["decisions"] for one in published().values()), 10)
    lab.log("from the decision until the name server answered so: " + ", ".join(f"{path} {one['took_ms']} ms" for path, one in published().items()))

    pdns.process.kill()
    cli.ok("apply", "-f", "-", stdin=drain.replace("override: {state: drain, reason: lab}", "weight: 1"))
    lab.wait_until("BIND follows while PowerDNS is down", lambda: dig(bind.dns, f"www.{ZONE}") == ["192.0.2.1", "192.0.2.2"], 10)
    problem = lab.wait_until("which the status reports", lambda: published()["pdns"]["state"] != "IN_SYNC" and (published()["pdns"].get("message") or published()["pdns"].get("last_error")), 15)
    lab.log(problem)
    pdns.start()
    lab.wait_until("PowerDNS is updated after its return", lambda: dig(pdns.dns, f"www.{ZONE}") == ["192.0.2.1", "192.0.2.2"] and in_sync("pdns"), 40)

    server.kill()
    api.close()
    server.start()
    lab.wait_until("after kill -9 both are in sync again", lambda: in_sync("pdns", "bind"), 20)
    for what, text in (("publishers as they are shown", cli.ok("get", "publishers", "-o", "json")), ("secrets as they are shown", cli.ok("get", "secrets", "-o", "json")),
                       ("the log", server.process.log_text()), ("metrics", server.probe("/metrics")[1])):
        lab.check(f"no credential in {what}", pdns.key not in text and bind.secret not in text)
    cli.ok("delete", "loadbalancer", "www")
    for name, port in (("PowerDNS", pdns.dns), ("BIND", bind.dns)):
        lab.wait_until(f"a removed name is not answered by {name}", lambda: dig(port, f"www.{ZONE}") == [], 10)


if __name__ == "__main__":
    lab.run(main)

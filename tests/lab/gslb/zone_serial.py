#!/usr/bin/python3
"""The serial of a zone never goes back: BIND as a secondary follows over restarts, a migration of the store to etcd, and the restore of an older backup. A secondary
that has a later serial than ours is reported in the Zone's status, a metric and the log, with a remedy that works."""
import os
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
sys.dont_write_bytecode = True
import orrery_lab as lab  # noqa: E402

SOON = 15  # seconds: NOTIFYs of a zone are at least 5 s apart


def dig(port, *words):
    return subprocess.run(["dig", "@127.0.0.1", "-p", str(port), *words, "+short", "+tries=1", "+time=2"], capture_output=True, text=True, env=lab.clean_environment()).stdout.strip()


def serial(port):
    found = dig(port, "gslb.test", "SOA").split()
    return int(found[2]) if len(found) > 2 else None


class Bind:
    """A secondary of the zone."""

    def __init__(self, name, primary):
        self.name, self.folder, self.port = name, lab.scratch(name), lab.free_port()
        self.config = os.path.join(self.folder, "named.conf")
        lab.write_file(self.config, f"""options {{ directory "{self.folder}"; listen-on port {self.port} {{ 127.0.0.1; }}; listen-on-v6 {{ none; }}; recursion no; pid-file "{self.folder}/run";
  session-keyfile "{self.folder}/session"; dnssec-validation no; notify no; }};
controls {{ }};
zone "gslb.test" {{ type secondary; primaries port {primary} {{ 127.0.0.1; }}; file "gslb.test"; masterfile-format text; }};
""")

    def start(self):
        self.process = lab.Process(self.name, [lab.program("named", "bind9"), "-g", "-c", self.config])
        lab.wait_until(f"{self.name} runs", lambda: "SERVFAIL" in self.status() or "NOERROR" in self.status(), 20)

    def status(self):
        return subprocess.run(["dig", "@127.0.0.1", "-p", str(self.port), "gslb.test", "SOA", "+tries=1", "+time=2"], capture_output=True, text=True, env=lab.clean_environment()).stdout


def put_zone(api, version, **more):
    spec = {"origin": "gslb.test", "nameservers": ["ns1.gslb.test"], "ttl": "60s", "records": f"ns1 A 127.0.0.1\nversion TXT {version}\n", **more}
    api.put("/v1/zones/gslb", {"kind": "Zone", "name": "gslb", "spec": spec})


def follows(what, bind, dns, version, after):
    lab.wait_until(f"{what}: BIND has {version}", lambda: dig(bind.port, "version.gslb.test", "TXT") == f'"{version}"', SOON, 0.2)
    now = serial(dns)
    lab.check(f"{what}: the secondary follows; the serial went from {after} to {now}", now > after and serial(bind.port) == now, (after, now, serial(bind.port)))
    return now


def main(given):
    lab.program("dig", "bind9-dnsutils")
    lab.program("named", "bind9")
    dns = lab.free_port()
    bind = Bind("bind", dns)
    server = lab.Server(given.orrery, "primary", arguments=["--dns-listen", f"127.0.0.1:{dns}", "--dns-transfer-to", "127.0.0.0/8", "--dns-notify", f"127.0.0.1:{bind.port}"])
    server.start()
    api = server.api()
    for i in range(60):
        put_zone(api, f"v{i}")
    bind.start()
    last = follows("at first", bind, dns, "v59", 0)

    lab.log("the server is restarted")
    server.stop()
    server.start()
    api = server.api()
    put_zone(api, "restarted")
    last = follows("after a restart", bind, dns, "restarted", last)

    lab.log("an older backup is restored")
    backup = os.path.join(lab.scratch(), "backup")
    cli = lab.Cli(given.orrery, server).login(server)
    cli.ok("store", "backup", backup)
    for i in range(60):
        put_zone(api, f"lost{i}")
    last = follows("before the loss", bind, dns, "lost59", last)
    server.stop()
    done = subprocess.run([given.orrery, "store", "restore", backup, "--data-folder", server.folder, "--force"], capture_output=True, text=True, env=lab.clean_environment())
    lab.equal("the backup is restored", done.returncode, 0)
    server.start()
    server._token = None
    api = server.api()
    last = follows("after a restore", bind, dns, "restarted", last)
    put_zone(api, "changed")
    last = follows("after a restore and a change", bind, dns, "changed", last)

    lab.log("the store is migrated to etcd")
    etcd = lab.Etcd(1)
    cli.login(server)
    cli.ok("store", "migrate", "--to", etcd.url("lab"))

    def on_etcd():
        try:
            return server.probe("/readyz")[0] == 200 and "orrery_store_etcd_connected" in server.metrics()
        except OSError:
            return False
    lab.wait_until("the server is on etcd", on_etcd, 20, 0.2)
    api = server.api()
    put_zone(api, "migrated")
    last = follows("after a migration", bind, dns, "migrated", last)
    lab.equal("no secondary is ahead", server.metrics()["orrery_zone_secondaries_ahead"], 0)

    lab.log("the secondary has a later serial, from another primary")
    bind.process.stop()
    file = os.path.join(bind.folder, "gslb.test")
    with open(file) as zone:
        text = zone.read()
    lab.check("its copy has our serial", str(last) in text, text[:300])
    theirs = last + 500_000_000
    lab.write_file(file, text.replace(str(last), str(theirs)))
    bind.start()
    lab.wait_until("it serves that", lambda: serial(bind.port) == theirs, 10, 0.2)
    put_zone(api, "ignored")
    ahead = lab.wait_until("the Zone's status reports it", lambda: api.get("/v1/zones/gslb")["status"].get("secondaries_ahead"), SOON, 0.2)
    lab.equal("with its address and serial", ahead, [{"address": f"127.0.0.1:{bind.port}", "serial": theirs}])
    warning = api.get("/v1/zones/gslb")["status"]["warnings"][0]
    lab.contains("and a remedy", warning, str(theirs), "serial_offset")
    lab.log("      " + warning)
    lab.equal("a metric counts it", server.metrics()["orrery_zone_secondaries_ahead"], 1)
    lab.check("the log has it once", server.log_text().count(f"has serial {theirs}") == 1, server.log_text()[-2000:])
    put_zone(api, "followed", serial_offset=500_100_000)
    follows("after the remedy", bind, dns, "followed", theirs)
    lab.wait_until("nothing is reported any more", lambda: "secondaries_ahead" not in api.get("/v1/zones/gslb")["status"], SOON, 0.2)
    api.refused("an invalid offset is refused", 400, "PUT", "/v1/zones/gslb", {"kind": "Zone", "name": "gslb", "spec": {"origin": "gslb.test", "nameservers": ["ns1.gslb.test"], "serial_offset": -1}})
    lab.equal("the log has no errors", server.error_lines(), [])


if __name__ == "__main__":
    lab.run(main)

"""Secondaries of a real `orrery server`: Knot and BIND receive each NOTIFY, transfer the zone, signed or not, and serve records that validate."""
import os
import re
import socket
import subprocess
import threading
import time

import orrery_lab as lab
from servers import Resolver, write
from wire import holds

SOON = 12  # seconds; without NOTIFY they would refresh in an hour


def dig(port, of, qtype="A", *more, server="127.0.0.1"):
    return subprocess.run(["dig", f"@{server}", "-p", str(port), of, qtype, "+tries=1", "+time=3", *more], capture_output=True, text=True, timeout=30, env=lab.clean_environment()).stdout


def short(port, of, qtype="A"):
    return sorted(dig(port, of, qtype, "+short").split())


def serial(port, of):
    found = dig(port, of, "SOA", "+short").split()
    return int(found[2]) if len(found) > 2 and found[2].isdigit() else None


class Deaf:
    """A secondary that does not answer the first two NOTIFY messages of a change; then it does."""

    def __init__(self):
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.socket.bind(("127.0.0.1", 0))
        self.port = self.socket.getsockname()[1]
        self.received = []  # (time, packet)
        threading.Thread(target=self.run, daemon=True).start()

    def run(self):
        while True:
            packet, sender = self.socket.recvfrom(4096)
            self.received.append((time.monotonic(), packet))
            if sum(one[12:] == packet[12:] for _, one in self.received) > 2:
                self.socket.sendto(packet[:2] + bytes([packet[2] | 0x80]) + packet[3:], sender)


def zone(records, **more):
    return {"nameservers": ["ns1.{0}"], "contact": "host@example.test", "ttl": "60s", "negative_ttl": "5s", "records": "ns1 A 127.0.0.1\n" + records, **more}


def put_zone(api, name, records, **more):
    spec = {**zone(records, **more), "origin": name, "nameservers": [f"ns1.{name}"]}
    api.put(f"/v1/zones/{name.replace('.', '-')}", {"kind": "Zone", "name": name.replace(".", "-"), "spec": spec})


def start_secondaries(folder, primary, ports, zones):
    knot, bind = ports["Knot"], ports["BIND"]
    for part in ("knot2", "bind2"):
        os.makedirs(f"{folder}/{part}", exist_ok=True)
    write(f"{folder}/knot2.conf", f"""server:
  listen: 127.0.0.1@{knot}
  rundir: {folder}/knot2
database:
  storage: {folder}/knot2
remote:
  - id: orrery
    address: 127.0.0.1@{primary}
acl:
  - id: from_orrery
    address: 127.0.0.1
    action: notify
zone:
""" + "".join(f"  - domain: {one}\n    storage: {folder}/knot2\n    master: orrery\n    acl: from_orrery\n" for one in zones))
    write(f"{folder}/named2.conf", f"""options {{ directory "{folder}/bind2"; listen-on port {bind} {{ 127.0.0.1; }}; listen-on-v6 {{ none; }}; recursion no; pid-file "{folder}/bind2/run";
  session-keyfile "{folder}/bind2/session"; dnssec-validation no; notify no; }};
controls {{ }};
""" + "".join(f'zone "{one}" {{ type secondary; primaries port {primary} {{ 127.0.0.1; }}; file "{one}"; }};\n' for one in zones))
    lab.Process("knot2", ["/usr/sbin/knotd", "-c", f"{folder}/knot2.conf"])
    named = lab.Process("bind2", ["/usr/sbin/named", "-g", "-c", f"{folder}/named2.conf"])
    for name, port in ports.items():
        lab.wait_until(f"{name} runs", lambda port=port: "status:" in dig(port, zones[0], "SOA"), 20)
    # At its start BIND queries for its zones. It queues a NOTIFY that arrives meanwhile, and drops it if that first query fails.
    lab.wait_until("BIND has requested the zone before it exists", lambda: named.log_text().count("Transfer status: REFUSED") == len(zones), 20)


def run(build, folder):
    plain, signed, dns = "plain.test", "signed.test", lab.free_port()
    others = {"Knot": lab.free_port(), "BIND": lab.free_port()}
    deaf = Deaf()
    notified = [f"127.0.0.1:{port}" for port in (*others.values(), deaf.port)]
    server = lab.Server(os.path.join(build, "orrery"), "primary", arguments=["--dns-listen", f"*:{dns}", "--dns-rate-limit", "0", "--dns-transfer-to", "127.0.0.0/8", "--dns-notify", ",".join(notified)])
    server.start()
    start_secondaries(folder, dns, others, (plain, signed))
    api = server.api()

    def follow(what, seen, wanted):
        for name, port in others.items():
            begin = time.monotonic()
            while seen(port) != wanted and time.monotonic() < begin + SOON:
                time.sleep(0.1)
            holds(f"{name}: {what}", seen(port) == wanted, f"{seen(port)}, not {wanted}")

    put_zone(api, plain, "www A 192.0.2.1\n")
    follow("a new zone is there", lambda port: short(port, f"www.{plain}"), ["192.0.2.1"])
    before = serial(dns, plain)
    put_zone(api, plain, "www A 192.0.2.2\nwww A 192.0.2.3\n")
    follow("a changed record follows", lambda port: short(port, f"www.{plain}"), ["192.0.2.2", "192.0.2.3"])
    holds("the serial went up, and is the same everywhere", serial(dns, plain) > before and {serial(port, plain) for port in others.values()} == {serial(dns, plain)},
          (before, serial(dns, plain), [serial(port, plain) for port in others.values()]))

    # A name that follows its members: what was decided is what secondaries serve.
    for kind, name, spec in (("Pool", "web", {}), ("Member", "web-1", {"pool": "web", "addresses": ["198.51.100.1"]}),
                             ("LoadBalancer", "app", {"fqdn": f"app.{plain}", "zone": plain, "pools": [{"pool": "web"}]})):
        api.put(f"/v1/{kind.lower()}s/{name}", {"kind": kind, "name": name, "spec": spec})
    follow("a decided name is there", lambda port: short(port, f"app.{plain}"), ["198.51.100.1"])
    api.put("/v1/members/web-1", {"kind": "Member", "name": "web-1", "spec": {"pool": "web", "addresses": ["198.51.100.9"]}})
    follow("and follows what is decided", lambda port: short(port, f"app.{plain}"), ["198.51.100.9"])

    # Signed: a chain of names that a secondary can deny with, though it has no key.
    key = subprocess.run(["openssl", "ecparam", "-name", "prime256v1", "-genkey", "-noout"], check=True, capture_output=True, text=True).stdout
    api.put("/v1/secrets/zone-key", {"kind": "Secret", "name": "zone-key", "spec": {"values": {"private_key": key}}})
    records = "www A 192.0.2.1\nalias CNAME www\n*.wild A 192.0.2.77\na.b.c A 192.0.2.9\nsub NS ns.sub\nns.sub A 192.0.2.99\n"
    put_zone(api, signed, records, signing_key="zone-key")
    follow("a signed zone is there", lambda port: "RRSIG" in dig(port, f"www.{signed}", "A", "+dnssec"), True)
    ds = lab.wait_until("the status has the DS of the zone", lambda: api.get("/v1/zones/signed-test").get("status", {}).get("ds"), 10)
    for name, port in others.items():
        unbound = Resolver(folder, f"unbound-{name.lower()}", {signed: (ds, port)})
        for of, qtype, wanted in ((f"www.{signed}", "A", "NOERROR ad"), (f"www.{signed}", "MX", "NOERROR ad"), (f"nothing.{signed}", "A", "NXDOMAIN ad"),
                                  (f"x.wild.{signed}", "A", "NOERROR ad"), (f"b.c.{signed}", "A", "NOERROR ad"), (f"alias.{signed}", "A", "NOERROR ad"),
                                  (f"sub.{signed}", "DS", "NOERROR ad"), (signed, "DNSKEY", "NOERROR ad")):
            seen = unbound.resolve(of, qtype)
            holds(f"unbound validates the answers of {name}: {of} {qtype}", seen == wanted, seen)
    of_signed = lambda: [one for one in deaf.received if b"\6signed\4test\0" in one[1]]  # noqa: E731
    lab.wait_until("a secondary that does not answer is notified three times", lambda: len(of_signed()) >= 3, 10)
    put_zone(api, signed, records + "new A 192.0.2.5\n", signing_key="zone-key")
    follow("a change of a signed zone follows", lambda port: short(port, f"new.{signed}"), ["192.0.2.5"])

    # A secondary that does not answer is notified again: after 1 s, 2 s, ...
    first = of_signed()[:3]
    holds("a NOTIFY is one: opcode 4, AA, the SOA in the question", first[0][1][2:6] == b"\x24\0\0\1" and first[0][1].endswith(b"\x04test\0\0\6\0\1"), first[0][1].hex())
    gaps = [round(later[0] - earlier[0], 1) for earlier, later in zip(first, first[1:])]
    holds("lost ones are sent again after 1 s, then 2 s", len(gaps) == 2 and 0.9 <= gaps[0] <= 2 and 1.9 <= gaps[1] <= 3, gaps)
    holds("each with an id of its own", len({one[1][:2] for one in first}) == 3, [one[1][:2].hex() for one in first])
    lab.wait_until("all have confirmed", lambda: server.metrics().get("orrery_zone_notifies_pending") == 0, 30)
    metrics = server.metrics()
    holds("notifications are counted", metrics.get("orrery_zone_notifies_confirmed_total", 0) >= 12 and metrics.get("orrery_zone_notifies_given_up_total") == 0, {key: value for key, value in metrics.items() if "notif" in key})
    holds("no server complained", not [line for line in server.log_text().splitlines() if "refused the NOTIFY" in line], server.log_text()[-1500:])
    server.stop()

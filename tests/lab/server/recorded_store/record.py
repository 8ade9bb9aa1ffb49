#!/usr/bin/python3
"""Records a store: run by hand with the program whose stores a later one must read, and with the lab library of the same sources.

    record.py ORRERY LAB_FOLDER

It fills a server with resources of every kind, with decisions, finished and waiting jobs, events and overrides, stops it, and writes beside itself
store.db.gz (the SQLite store), secrets.key (the sealing key of this store only) and objects.json.gz (what the API showed last)."""
import gzip
import json
import os
import shutil
import socket
import sqlite3
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, sys.argv[2])
sys.dont_write_bytecode = True
import orrery_lab as lab  # noqa: E402

PLURALS = ("nodes", "secrets", "users", "tokens", "services", "instances", "jobs", "rollingrules", "monitors", "pools", "members", "loadbalancers", "zones",
           "publishers", "sources", "clusters", "decisions", "events")


def listeners(port, *addresses):
    return {address: socket.create_server((address, port)) for address in addresses}


def resources(port):
    up, down = ["127.0.91.1", "127.0.91.2"], "127.0.91.3"
    yield "secrets", "keys", {"values": {"password": "not a real one", "key": "c2VjcmV0", "secret": "c2VjcmV0"}}
    yield "users", "otto", {"role": "operator", "password": "a long enough password"}
    yield "tokens", "reader", {"role": "viewer", "user": "otto", "description": "reads"}
    for i, address in enumerate((*up, down), 1):
        yield "nodes", f"node-{i}", {"address": address, "ssh": {"user": "deploy", "port": 22}}
    yield "services", "db", {"port": port, "wanted": 2, "checks": [{"name": "port", "kind": "tcp", "interval": "1s", "timeout": "500ms", "rise": 1, "fall": 1}]}
    for i in (1, 2, 3):
        yield "instances", f"db-{i}", {"service": "db", "node": f"node-{i}"}
    yield "rollingrules", "db", {"limit": 1}
    yield "monitors", "web", {"kind": "http", "port": port, "interval": "1s", "timeout": "500ms", "fast": "1s", "slow": "30s", "rise": 1, "fall": 1, "forgive": 1}
    yield "monitors", "connects", {"kind": "tcp", "port": port, "interval": "1s", "timeout": "500ms", "rise": 1, "fall": 1}
    yield "monitors", "certificate", {"kind": "tls", "port": port, "least_left": "20d", "interval": "1h"}
    yield "sources", "metrics", {"driver": "prometheus", "url": f"http://127.0.0.1:{port}"}
    yield "monitors", "load", {"kind": "prometheus", "source": "metrics", "query": "up", "least": 1, "most": 2, "interval": "1h"}
    yield "monitors", "pushed", {"kind": "push", "ttl": "1h"}
    yield "zones", "gslb", {"origin": "gslb.test", "nameservers": ["ns1.example.net"], "contact": "hostmaster@example.net", "records": "fixed A 192.0.2.1\n"}
    yield "publishers", "adapter", {"driver": "externaldns", "url": f"http://127.0.0.1:{port}", "zones": ["other.test"], "look_every": "1h"}
    yield "clusters", "kubernetes", {"site": "ams", "domains": ["cluster.test"]}
    yield "pools", "eu", {"site": "ams", "monitors": ["connects"], "min_healthy": 1, "guard": {"most": "50%", "window": "30s"}}
    yield "pools", "us", {"site": "nyc", "min_healthy": 1, "load": {"low": 50, "high": 90}}
    for i, address in enumerate((*up, down), 1):
        yield "members", f"eu-{i}", {"pool": "eu", "addresses": [address], "weight": i}
    yield "members", "us-1", {"pool": "us", "addresses": ["127.0.91.9"], "port": port, "monitors": ["pushed"]}
    yield "members", "us-2", {"pool": "us", "node": "node-1"}
    yield "loadbalancers", "www", {"fqdn": "www.gslb.test", "pools": [{"pool": "eu"}, {"pool": "us", "tier": "passive"}], "failover_within": "60s", "demand": 10,
                                   "failback": {"mode": "delayed", "after": "5s"}, "ttl": {"max": "20s", "min": "5s"}}
    yield "loadbalancers", "near", {"fqdn": "near.gslb.test", "pools": [{"pool": "eu"}, {"pool": "us"}], "steering": "topology", "answers": "weighted",
                                    "topology": [{"name": "office", "prefixes": ["192.0.2.0/24"], "pools": ["us"]}]}


JOBS = {
    "finished": {"tasks": [{"name": "first", "run": {"local": {"program": "note", "arguments": ["one"]}}}, {"name": "second", "after": "first", "run": {"local": {"program": "note", "arguments": ["two"]}}}]},
    "failed": {"tasks": [{"name": "breaks", "run": {"local": {"program": "breaks"}}}, {"name": "never", "after": "breaks", "run": {"local": {"program": "note"}}}]},
    "waits": {"tasks": [{"name": "uses", "wait": [{"service": "db", "count": 3}], "run": {"local": {"program": "note", "arguments": ["${service.db.addresses}"]}}}]},
    "gates": {"tasks": [{"name": "prepared"}, {"name": "go", "after": "prepared", "approve": True}, {"name": "over", "after": "go"}]},
    "cancelled": {"tasks": [{"name": "gate", "approve": True}]},
}


def change(api, open_sockets):
    """What makes decisions and events: failures, overrides, a drain, a load."""
    lab.wait_until("answers", lambda: api.get("/v1/loadbalancers/www").get("status", {}).get("decisions", 0) >= 1, 20)
    time.sleep(3)
    api.patch("/v1/members/eu-2", {"spec": {"override": {"state": "drain", "reason": "a new disk"}}})
    time.sleep(2)
    for address in list(open_sockets):
        open_sockets.pop(address).close()
    time.sleep(4)
    api.post("/v1/members/us-1/load", {"load": 95})
    time.sleep(2)
    api.post("/v1/jobs/cancelled/cancel", {"because": "not needed"})
    api.patch("/v1/nodes/node-3", {"labels": {"rack": "a1"}})


def main():
    port = lab.free_port()
    programs = lab.scratch("programs")
    note = lab.write_file(os.path.join(programs, "note"), "#!/bin/sh\necho noted \"$@\"\n", 0o755)
    breaks = lab.write_file(os.path.join(programs, "breaks"), "#!/bin/sh\necho broken >&2\nexit 3\n", 0o755)

    server = lab.Server(sys.argv[1], "recorded", arguments=["--jobs-programs", f"note={note};breaks={breaks}", "--dns-listen", f"127.0.0.1:{lab.free_port()}"])
    server.start()
    api = server.api()
    sockets = listeners(port, "127.0.91.1", "127.0.91.2")
    for plural, name, spec in resources(port):
        api.put(f"/v1/{plural}/{name}", {"name": name, "labels": {"recorded": "yes"} if plural != "tokens" else {}, "spec": spec}, **{"X-Because": "recorded"})
    for name, spec in JOBS.items():
        api.put(f"/v1/jobs/{name}", {"name": name, "spec": spec})
    change(api, sockets)
    time.sleep(2)
    server.stop()
    # Stopped and started once: what the API shows is what the store holds. Nothing answers the checks any more.
    server.start()
    objects = {plural: list(server.api().all(plural)) for plural in PLURALS}
    objects["tasks"] = {name: server.api().get(f"/v1/jobs/{name}/tasks") for name in JOBS}
    server.stop()
    database = os.path.join(server.folder, "store.db")
    connection = sqlite3.connect(database)
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    connection.close()
    for source, target in ((database, "store.db.gz"), (None, "objects.json.gz")):
        with gzip.GzipFile(os.path.join(HERE, target), "wb", 9, mtime=0) as out:
            out.write(open(source, "rb").read() if source else json.dumps(objects, indent=1, sort_keys=True).encode())
    shutil.copy(os.path.join(server.folder, "secrets.key"), os.path.join(HERE, "secrets.key"))
    print({plural: len(found) for plural, found in objects.items()}, os.listdir(server.folder))


main()

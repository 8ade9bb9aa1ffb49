#!/usr/bin/python3
"""A running server is migrated from SQLite to etcd while clients write: no acknowledged write is lost and the server continues on etcd, also
after a restart with the same flags. A target that is not empty is refused. A server that is killed during a migration keeps its old store."""
import http.client
import os
import subprocess
import sys
import threading
import time

here = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(here, ".."), os.path.join(here, "..", "..", "faults")]
from orrery_lab import Cli, Etcd, Server, check, contains, equal, log, node, run, scratch  # noqa: E402
from server_writers import Writers, verify_accounts  # noqa: E402


def contents(server):
    """The contents of the store, without revisions and statuses."""
    api = server.api()
    return {plural: [{k: v for k, v in item.items() if k not in ("revision", "status")} for item in api.all(plural)] for plural in ("nodes", "secrets", "users")}


def fill(server, count):
    def work(part):
        api = server.api()
        for i in range(part, count, 8):
            api.put(f"/v1/nodes/filler-{i:05d}", node(f"filler-{i:05d}", {"number": str(i)}))
    threads = [threading.Thread(target=work, args=(i,)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def under_load(given, etcd):
    server = Server(given.orrery, "moving")
    server.start()
    api = server.api()
    fill(server, 2000)
    api.put("/v1/secrets/s1", {"kind": "Secret", "name": "s1", "spec": {"values": {"key": "a value"}}})
    api.put("/v1/users/alice", {"kind": "User", "name": "alice", "spec": {"role": "viewer", "password": "a-password-of-alice"}})
    before = api.get("/v1/store")
    equal("the server starts on SQLite", before["engine"], "sqlite")
    writers = Writers(server, 16, 1, pause=(0.001, 0.01), processes=2)
    time.sleep(1.5)
    cli = Cli(given.orrery, server).login(server)
    begin = time.monotonic()
    ran = cli("store", "migrate", "--to", etcd.url("moved"), seconds=120)
    check(f"orrery store migrate, under load: {time.monotonic() - begin:.1f} s", ran.status == 0, str(ran))
    log("      " + " / ".join((ran.out + ran.err).strip().splitlines()[-3:]))
    equal("the server is ready when the command ends", server.probe("/readyz")[0], 200)
    check("it is the same process", server.process.alive())
    time.sleep(1.5)
    accounts = writers.finish()
    after = server.api().get("/v1/store")
    equal("the server continues on etcd", after["engine"], "etcd")
    contains("at the given location", after["location"], "moved")
    verify_accounts(server, accounts)
    equal("a password still works", server.api(None).post("/v1/login", {"user": "alice", "password": "a-password-of-alice"})["user"], "alice")
    kept = contents(server)
    equal("the log has no errors", server.error_lines(), [])
    equal("the server stops on SIGTERM", server.stop(), 0)

    log("restart with the same flags")
    server.start()
    equal("the server is on etcd", server.api().get("/v1/store")["engine"], "etcd")
    equal("all resources exist", contents(server), kept)
    check("the log reports that the flags are out of date", "store was migrated" in server.log_text(), server.log_text()[-1000:])
    verify_accounts(server, accounts)
    verified = cli("store", "verify", os.path.join(server.folder, "store.db"))
    check("the old file has the new location", "moved" in verified.out + verified.err, str(verified))
    return server, cli


def refuses(given, etcd):
    log("a target that is not empty")
    server = Server(given.orrery, "second")
    server.start()
    server.api().put("/v1/nodes/n1", node("n1"))
    cli = Cli(given.orrery, server, HOME=scratch("home2"), XDG_CONFIG_HOME=scratch("home2")).login(server)
    ran = cli("store", "migrate", "--to", etcd.url("moved"))
    check("the migration is refused", ran.status != 0, str(ran))
    contains("with an error message", ran.err, "error:")
    log("      " + ran.err.strip().replace("\n", " / "))
    server.api().put("/v1/nodes/n2", node("n2"))
    equal("the server stays on its store", server.api().get("/v1/store")["engine"], "sqlite")
    ran = cli("store", "migrate", "--to", "etcd://127.0.0.1:9/nowhere", seconds=90)
    check("a target that does not answer is refused", ran.status != 0, str(ran))
    log("      " + ran.err.strip().replace("\n", " / "))
    server.api().put("/v1/nodes/n3", node("n3"))
    ran = cli("store", "migrate", "--to", "mysql://x")
    check("a target that is not a store is refused", ran.status != 0, str(ran))
    equal("all resources exist", [item["name"] for item in server.api().all("nodes")], ["n1", "n2", "n3"])
    server.stop()


def killed_in_the_middle(given, etcd):
    log("killed during the migration")
    server = Server(given.orrery, "third")
    server.start()
    fill(server, 6000)
    kept = contents(server)
    for attempt, wait in enumerate((0.0, 0.05, 0.3)):
        prefix = f"killed-{attempt}"
        connection = server.connect(60)
        connection.request("POST", "/v1/store/migrate", '{"to": "%s"}' % etcd.url(prefix), {"Authorization": f"Bearer {server.token()}", "Content-Type": "application/json"})
        seen = b""
        try:
            answer = connection.getresponse()
            while b"event:" not in seen:
                line = answer.readline()
                if not line:
                    break
                seen += line
        except (OSError, http.client.HTTPException):
            pass
        time.sleep(wait)
        server.kill()
        server.start()
        engine = server.api().get("/v1/store")["engine"]
        equal(f"killed {wait} s after the first progress event, the server starts, and nothing is lost", contents(server), kept)
        if engine == "sqlite":
            check("the server is on the old store", True)
            half = Server(given.orrery, f"half-{attempt}", store_url=etcd.url(prefix), arguments=["--secrets-key-file", os.path.join(server.folder, "secrets.key")])
            half.spawn()
            try:
                status = half.process.wait(8)
            except subprocess.TimeoutExpired:  # still running: then the target must be empty or complete
                status = None
            if status is None:
                # src/store/migrate.h: killed after the copy is complete and before the old store names the new one, the server leaves a complete copy
                # that nothing uses. A part of the contents must never be served.
                found = contents(half)
                check("the target is empty, or equal to the old store", not found["nodes"] or found == kept, f"{len(found['nodes'])} of {len(kept['nodes'])} nodes")
                half.stop()
            else:
                check("a server on the incomplete copy refuses to start", status != 0)
                log("      " + half.start_error())
        else:
            log(f"      the migration was complete after {wait} s; the server is on {engine}")
            return
        server.api().put(f"/v1/nodes/after-{attempt}", node(f"after-{attempt}"))
        kept = contents(server)
    server.stop()


def main(given):
    etcd = Etcd(1)
    under_load(given, etcd)[0].stop()
    refuses(given, etcd)
    killed_in_the_middle(given, etcd)


if __name__ == "__main__":
    run(main)

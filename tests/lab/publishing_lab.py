"""Shared code of the suites with a real DNS service: a publication target that the test drives, a relay that can fail, and queries.

    path = Path(build, {"publisher": "powerdns", ...});  path.desire("www", a=["192.0.2.1"]);  path.wait("www", "IN_SYNC")
"""
import contextlib
import http.client
import json
import os
import queue
import socket
import sqlite3
import subprocess
import threading
import time

import orrery_lab as lab

ZONE = "gslb.test."
passed = failed = 0


def holds(what, condition, seen=""):
    global passed, failed
    if condition:
        passed += 1
        lab.log(f"ok    {what}")
    else:
        failed += 1
        lab.log(f"FAILED {what}: {seen}")
    return condition


def full(name):
    return name if name.endswith(".") else f"{name}.{ZONE}"


class Path:
    """publish_driver with its settings: one publisher, one zone."""

    def __init__(self, build, settings, name="path"):
        self.settings = {"zone": ZONE, "owner": "site-1", "poll_interval": "2s", "call_timeout": "2s", "max_backoff": "2s", **settings}
        self.name, self.build = name, build
        self.start()

    def start(self):
        file = lab.write_file(os.path.join(lab.scratch(), f"{self.name}.json"), json.dumps(self.settings))
        self.log = open(os.path.join(lab.scratch("logs"), f"{self.name}.log"), "ab")
        self.child = subprocess.Popen([os.path.join(self.build, "tests/conformance/publish_driver"), file], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                      stderr=self.log, env=lab.clean_environment(), text=True, start_new_session=True)
        self.lines, self.latest, self.history = queue.Queue(), {}, []
        threading.Thread(target=self._read, daemon=True).start()
        Path.running.append(self)

    running = []

    def _read(self):
        for line in self.child.stdout:
            document = json.loads(line)
            if "name" in document:
                document["at"] = time.monotonic()
                self.latest[document["name"]] = document
                self.history.append(document)
            else:
                self.lines.put(document)

    def log(self, **line):
        self.child.stdin.write(json.dumps(line) + "\n")
        self.child.stdin.flush()

    def desire(self, name, **what):
        self.log(desire=full(name), **what)
        return time.monotonic()

    def status(self, name):
        return self.latest.get(full(name), {})

    def wait(self, name, state, seconds=15, why="", since=0.0, desired=""):
        """The status once it is `state`, with `why` in its reason, newer than `since` and of that desire."""
        def there():
            status = self.status(name)
            return status if (status.get("state") == state and why in status.get("message", "") and status.get("at", 0) >= since and desired in status.get("desired", "")) else None
        try:
            return lab.wait_until(f"{name} is {state} {why}", there, seconds)
        except lab.Failed:
            return {}

    def counts(self):
        self.log(counts=True)
        while True:
            document = self.lines.get(timeout=10)
            if "counts" in document:
                return document["counts"]

    def stop(self):
        self.child.stdin.close()
        status = self.child.wait(15)
        Path.running.remove(self)
        return status

    def kill(self):
        self.child.kill()
        self.child.wait()
        Path.running.remove(self)

    def errors(self):
        with open(self.log.name, errors="replace") as file:
            return file.read()


class Between:
    """A TCP relay to a server on loopback that can hang, refuse connections, or answer 500."""

    def __init__(self, port):
        self.to, self._mode, self.connections = port, "pass", set()
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def mode(self):
        return self._mode

    @mode.setter
    def mode(self, mode):
        """Closes earlier connections, because a client on an open connection would not notice the change."""
        self._mode = mode
        for connection in list(self.connections):
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def _accept(self):
        while True:
            connection, _ = self.listener.accept()
            self.connections.add(connection)
            threading.Thread(target=self._serve, args=(connection, self.mode), daemon=True).start()

    def _serve(self, client, mode):
        with client:
            try:
                if mode == "hang":
                    time.sleep(30)
                elif mode == "500":
                    client.recv(65536)
                    client.sendall(b"HTTP/1.1 500 Internal Server Error\r\nContent-Length: 5\r\nConnection: close\r\n\r\nboom\n")
                elif mode == "garbage":
                    client.recv(65536)
                    client.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\nConnection: close\r\n\r\n<html>")
                else:
                    with socket.create_connection(("127.0.0.1", self.to), 5) as server:
                        back = threading.Thread(target=self._copy, args=(server, client), daemon=True)
                        back.start()
                        self._copy(client, server)
                        back.join(30)
            except OSError:
                pass
            finally:
                self.connections.discard(client)

    @staticmethod
    def _copy(source, target):
        try:
            while data := source.recv(65536):
                target.sendall(data)
            target.shutdown(socket.SHUT_WR)
        except OSError:
            pass


class Powerdns:
    """pdns_server with its API; also as a secondary."""

    key = "the-key-of-the-lab"

    def __init__(self, name="pdns"):
        self.program, self.name = lab.program("pdns_server", "pdns-server"), name
        self.folder = lab.scratch(name)
        self.dns, self.api = lab.free_port(), lab.free_port()
        with open("/usr/share/doc/pdns-backend-sqlite3/schema.sqlite3.sql") as schema:
            with contextlib.closing(sqlite3.connect(os.path.join(self.folder, "db"))) as database:
                database.executescript(schema.read())
        lab.write_file(os.path.join(self.folder, "pdns.conf"), f"""launch=gsqlite3
gsqlite3-database={self.folder}/db
local-address=127.0.0.1
local-port={self.dns}
daemon=no
guardian=no
setgid=
setuid=
socket-dir={self.folder}
api=yes
api-key={self.key}
webserver=yes
webserver-address=127.0.0.1
webserver-port={self.api}
webserver-allow-from=127.0.0.0/8
secondary=yes
allow-notify-from=127.0.0.0/8
xfr-cycle-interval=5
query-cache-ttl=0
cache-ttl=0
negquery-cache-ttl=0
""")
        self.start()

    def make_zone(self):
        status = self.call("POST", "/zones", {"name": ZONE, "kind": "Native", "nameservers": ["ns1.gslb.test."]})[0]
        if status != 201:
            raise lab.Failed(f"PowerDNS does not create the zone: {status}")

    def start(self):
        self.process = lab.Process(self.name, [self.program, f"--config-dir={self.folder}"])
        lab.wait_until("PowerDNS answers", self.answers, 20)

    def answers(self):
        try:
            return self.call("GET", "")[0] == 200
        except OSError:
            return False

    def call(self, method, path, body=None):
        connection = http.client.HTTPConnection("127.0.0.1", self.api, timeout=10)
        connection.request(method, "/api/v1/servers/localhost" + path, json.dumps(body) if body is not None else None, {"X-API-Key": self.key, "Content-Type": "application/json"})
        answer = connection.getresponse()
        text = answer.read()
        connection.close()
        return answer.status, json.loads(text) if text[:1] in (b"{", b"[") else {}

    def by_hand(self, name, addresses, kind="A", ttl=30):
        rrset = {"name": full(name), "type": kind, "ttl": ttl, "changetype": "REPLACE", "records": [{"content": one, "disabled": False} for one in addresses]}
        status = self.call("PATCH", f"/zones/{ZONE}", {"rrsets": [rrset]})[0]
        if status != 204:
            raise lab.Failed(f"PowerDNS refuses a manual change: {status}")

    def serial(self):
        return self.call("GET", f"/zones/{ZONE}?rrsets=false")[1]["serial"]


def dig(port, name, kind="A", server="127.0.0.1"):
    """The answers of a name server, sorted; None without a response."""
    done = subprocess.run(["dig", "+short", "+time=1", "+tries=2", "-p", str(port), f"@{server}", full(name), kind], capture_output=True, text=True, env=lab.clean_environment())
    return sorted(done.stdout.split()) if done.returncode == 0 else None


def troubles(path, name, edge, answers, addresses, killed=None):
    """Checks for every publisher while its DNS service fails: names keep their last good answer, the status gives the reason, and the newest decision arrives after
    the failure. `answers()` queries the name server; `killed` = (kill, start) of the service."""
    first, last = addresses
    for mode, words in (("500", "500"), ("hang", ""), ("garbage", "")):
        edge.mode = mode
        since = path.desire(name, a=[last])
        status = path.wait(name, "ERROR", 20, words, since)
        holds(f"{mode}: the status is ERROR and gives the reason", "the last answer stays" in status.get("message", ""), path.status(name))
        holds(f"{mode}: the name keeps its last good answer", answers() == [first], answers())
        path.desire(name, a=["192.0.2.250"])
        path.desire(name, a=[last])
        edge.mode = "pass"
        status = path.wait(name, "IN_SYNC", 30, since=since)
        holds(f"{mode}: after the failure the newest decision is published ({status.get('seconds', 0):.1f} s after it was made)", answers() == [last] and status, path.status(name))
        first, last = last, first
    if killed:
        kill, start = killed
        kill()
        since = path.desire(name, a=[last])
        status = path.wait(name, "ERROR", 20, since=since)
        holds("killed: the status is ERROR and gives the reason", "the last answer stays" in status.get("message", ""), path.status(name))
        start()
        status = path.wait(name, "IN_SYNC", 40, since=since)
        holds("killed: the answer is published when the service is back", answers() == [last] and status, path.status(name))
        first, last = last, first
    return first


def finish(main, secrets=()):
    """Runs a suite, ends what it started and reports how many held."""
    global failed
    try:
        main()
    except (lab.Failed, lab.Skip, lab.Problem, OSError, subprocess.SubprocessError) as why:
        failed += 1
        lab.log(f"FAILED {why}")
        for process in list(lab.Process.running):
            print(f"--- the end of {process.name}'s log\n{process.log_text()[-3000:]}", flush=True)
    finally:
        for path in list(Path.running):
            print(f"--- the end of {path.name}'s log\n{path.errors()[-2000:]}", flush=True)
            path.kill()
        for process in list(lab.Process.running):
            if process.name in ("keystone",):
                try:
                    process.stop(30)  # uwsgi ends its workers itself
                except lab.Failed:
                    pass
            process.kill()
        if lab.scratch.path:
            lab.shutil.rmtree(lab.scratch.path, ignore_errors=True)
    print(f"{passed} passed, {failed} failed")
    return 1 if failed else 0

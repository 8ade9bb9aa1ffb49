#!/usr/bin/python3
"""Outbound rules: targets of service checks, monitors and http tasks on loopback are denied before a packet is sent, by address, by name and by redirect; a
setting opens it. Also: the checks that the Consul facade refuses. Everything is on loopback."""
import contextlib
import http.client
import json
import os
import socket
import sys
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
sys.dont_write_bytecode = True
import orrery_lab as lab  # noqa: E402
from networks import own_network  # noqa: E402

QUICK = {"interval": "1s", "timeout": "500ms", "rise": 1, "fall": 1}


class Listener:
    """Counts connections, and gives each request the same response."""

    def __init__(self, address="127.0.0.1", answer="HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"):
        self.accepted, self.answer = 0, answer
        self.socket = socket.socket()
        self.socket.bind((address, 0))
        self.socket.listen(64)
        self.port = self.socket.getsockname()[1]
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self):
        while True:
            client, _ = self.socket.accept()
            self.accepted += 1
            threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client):
        with contextlib.suppress(OSError), client:
            while client.recv(4096):
                client.sendall(self.answer.encode())


def forms(port):
    """Checks that reach the listener on loopback, by name."""
    return {"literal": {"kind": "tcp", "address": "127.0.0.1", "port": port},
            "name": {"kind": "tcp", "address": "localhost", "port": port},
            "url": {"kind": "http", "url": f"http://127.0.0.1:{port}/"},
            "url-name": {"kind": "http", "url": f"http://localhost:{port}/"},
            "unspecified": {"kind": "http", "url": f"http://0.0.0.0:{port}/"},
            "mapped": {"kind": "http", "url": f"http://[::ffff:127.0.0.1]:{port}/"},
            "short": {"kind": "http", "url": f"http://127.1:{port}/"}}


def declare(server, port, redirecting):
    api = server.api()
    api.put("/v1/nodes/n1", lab.node("n1", {"role": "web"}, address="192.0.2.1"))
    for name, check in forms(port).items():
        api.put(f"/v1/services/{name}", {"spec": {"port": port, "checks": [{"id": "up", **QUICK, **check}]}})
        api.put(f"/v1/instances/{name}", {"spec": {"service": name, "node": "n1"}})
    for name, spec, address in (("monitor", {"kind": "tcp", "port": port}, "127.0.0.1"), ("web", {"kind": "http", "port": port}, "127.0.0.1"),
                                ("redirect", {"kind": "http", "port": redirecting.port, "follow_redirects": 3}, "127.0.0.50"),
                                ("grpc", {"kind": "grpc", "port": port}, "127.0.0.1"), ("udp", {"kind": "udp", "port": port, "send": "x"}, "127.0.0.1"), ("icmp", {"kind": "icmp"}, "127.0.0.1")):
        api.put(f"/v1/monitors/{name}", {"spec": {**QUICK, **spec}})
        api.put(f"/v1/pools/{name}", {"spec": {"monitors": [name]}})
        api.put(f"/v1/members/{name}", {"spec": {"pool": name, "addresses": [address]}})
        api.put(f"/v1/loadbalancers/{name}", {"spec": {"fqdn": f"{name}.names.example", "pools": [{"pool": name}]}})


def call(server, name, url, method="GET"):
    """The state and the message of a job with one http task."""
    api = server.api()
    api.post("/v1/jobs", {"name": name, "spec": {"tasks": [{"name": "call", "run": {"http": {"url": url, "method": method, "timeout": "5s"}}}]}})
    status = lab.wait_until(f"job {name} has ended", lambda: (lambda s: s if s.get("state") in ("succeeded", "failed") else None)(api.get(f"/v1/jobs/{name}").get("status", {})), 15)
    return status["state"], json.dumps(status) + json.dumps(api.get(f"/v1/jobs/{name}/tasks"))


def denied(server, listener, redirecting):
    declare(server, listener.port, redirecting)
    api = server.api()
    for name in forms(listener.port):
        why = lab.wait_until(f"check {name} reports that it cannot run", lambda n=name: (lambda w: w if "net.outbound.allow" in w else None)(api.get(f"/v1/instances/{n}")["status"].get("message", "")), 10)
        lab.contains(f"check {name}: no evidence, the rule and what opens it", why, "cannot run, no evidence", 'outbound rule "loopback" (127.0.0.0/8) denies', f'net.outbound.allow: ["127.0.0.1:{listener.port}"] opens it')
        lab.equal(f"check {name} does not pass", api.get(f"/v1/services/{name}")["status"].get("passing"), 0)
    for name in ("monitor", "web", "grpc", "udp", "icmp"):
        status = lab.wait_until(f"monitor {name} reports that it cannot run", lambda n=name: (lambda s: s if "unchecked" in s else None)(api.get(f"/v1/members/{n}").get("status", {})), 10)
        lab.contains(f"monitor {name}: the rule and what opens it", status["unchecked"], 'outbound rule "loopback"', "net.outbound.allow")
        lab.equal(f"monitor {name}: neither up nor down", status["state"], "unknown")
    status = lab.wait_until("a redirect to another port of a permitted address is denied", lambda: (lambda s: s if "unchecked" in s else None)(api.get("/v1/members/redirect").get("status", {})), 10)
    lab.contains("and gives the reason", status["unchecked"], 'outbound rule "loopback"')
    lab.check("the redirecting URL itself was requested", redirecting.accepted > 0)
    for name, url in (("call", f"http://127.0.0.1:{listener.port}/"), ("call-name", f"http://localhost:{listener.port}/"), ("call-zero", f"http://0:{listener.port}/"),
                      ("call-meta", "http://169.254.169.254/latest/meta-data/")):
        state, output = call(server, name, url)
        lab.equal(f"http task {name} fails", state, "failed")
        lab.contains(f"http task {name} names rule and setting", output, "outbound rule", "net.outbound.allow")
    time.sleep(1.5)
    lab.equal("no connection arrived", listener.accepted, 0)


def opened(server, listener):
    api = server.api()
    for name in forms(listener.port):
        lab.wait_until(f"check {name} passes once loopback is open", lambda n=name: api.get(f"/v1/services/{n}")["status"].get("passing") == 1, 10)
        lab.equal(f"check {name}: its error has ended", "cannot run" in api.get(f"/v1/instances/{name}")["status"]["message"], False)
    for name in ("monitor", "web", "redirect"):
        lab.wait_until(f"monitor {name} is up", lambda n=name: api.get(f"/v1/members/{n}")["status"].get("state") == "up", 10)
    lab.equal("an http task arrives", call(server, "open", f"http://localhost:{listener.port}/")[0], "succeeded")
    lab.check("connections arrived", listener.accepted > 0)
    state, output = call(server, "self", f"{server.url}/readyz")
    lab.equal("the server's own listener stays closed", state, "failed")
    lab.contains("and is opened by address and port only", output, 'outbound rule \\"this server\\" denies', f"127.0.0.1:{server.port}")


def consul_view(server, port, listener):
    def register(name, check):
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
        with contextlib.closing(connection):
            connection.request("PUT", "/v1/agent/service/register", json.dumps({"Name": name, "Port": 1, "Check": {"Interval": "1s", **check}}))
            answer = connection.getresponse()
            return answer.status, answer.read().decode()

    url = f"http://127.0.0.1:{listener.port}/v3/kv/put"
    for what, check, part in (("a POST", {"HTTP": url, "Method": "POST"}, "Method must be GET or HEAD"), ("a DELETE", {"HTTP": url, "Method": "DELETE"}, "Method must be GET or HEAD"),
                              ("a body", {"HTTP": url, "Body": "x"}, "Body is not supported")):
        status, text = register("refused", check)
        lab.equal(f"the Consul facade refuses {what}", status, 400)
        lab.contains(f"{what}: and gives the reason", text, part)
    for method in ("GET", "HEAD", ""):
        lab.equal(f'and accepts "{method}"', register(f"taken{method.lower()}", {"HTTP": url, "Method": method})[0], 200)
    server.api().refused("a check of an Instance is no POST either", 400, "PUT", "/v1/instances/literal",
                         {"spec": {"service": "literal", "node": "n1", "checks": [{"id": "x", "kind": "http", "url": url, "method": "POST"}]}})


def etcd_stays_closed(orrery):
    """Although loopback is open, and although the store's URL has a name."""
    etcd = lab.Etcd()
    port = etcd.clients[0]
    server = lab.Server(orrery, "on-etcd", store_url=f"etcd://localhost:{port}/lab")
    server.start()
    for name, url in (("put", f"http://127.0.0.1:{port}/v3/kv/put"), ("by-name", f"http://localhost:{port}/v3/kv/put"), ("peers", "http://127.0.0.1:2380/")):
        state, output = call(server, name, url, "POST")
        lab.equal(f"a task may not connect to etcd ({name})", state, "failed")
        lab.contains(f"and gets the reason ({name})", output, 'outbound rule \\"etcd\\" denies')
    server.stop()


def main(options):
    own_network(__file__)
    listener = Listener()
    redirecting = Listener("127.0.0.50")
    redirecting.answer = f"HTTP/1.1 302 Found\r\nLocation: http://127.0.0.50:{listener.port}/\r\nContent-Length: 0\r\n\r\n"
    second = Listener.__new__(Listener)  # the same port at the redirecting address: what would be reached there counts, too
    second.__dict__.update(accepted=0, answer=listener.answer, socket=socket.socket(), port=listener.port)
    second.socket.bind(("127.0.0.50", listener.port))
    second.socket.listen(64)
    threading.Thread(target=second._run, daemon=True).start()
    view = lab.free_port()
    server = lab.Server(options.orrery, arguments=["--catalog-http-listen", f"127.0.0.1:{view}", "--catalog-http-anonymous", "operator"], outbound_allow=[])
    if not options.old:
        server.outbound_allow = [f"127.0.0.50:{redirecting.port}"]
    server.start()
    if options.old:
        declare(server, listener.port, redirecting)
        call(server, "call", f"http://localhost:{listener.port}/")
        time.sleep(4)
        lab.equal("no connection arrived, by check, monitor and task, nor by redirect", (listener.accepted, second.accepted), (0, 0))
    denied(server, listener, redirecting)
    lab.equal("nor at the target of the redirect", second.accepted, 0)
    consul_view(server, view, listener)
    server.stop()
    server.outbound_allow = lab.LOOPBACK
    server.start()
    opened(server, listener)
    server.stop()
    etcd_stays_closed(options.orrery)


if __name__ == "__main__":
    lab.run(main, lambda parser: parser.add_argument("--old", action="store_true", help="the program has no outbound rules: shows what fails"))

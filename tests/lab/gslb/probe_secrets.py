#!/usr/bin/python3 -B
"""Secrets that probes send: from the server, and from a managed Node over a real sshd by its curl. They arrive byte for byte, follow the Secret, and are in no argument, status, event, decision, evidence or log line. A check without its
value cannot run and reports it. Checkers get values over a private connection only, and pages that are open on loopback need a login elsewhere."""
import glob
import http.client
import http.server
import json
import os
import sys
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import orrery_lab as lab  # noqa: E402
from hosts import Hosts  # noqa: E402

HERE = "10.77.255.1"
FIRST, SECOND = "first-token-4711 \"quoted\\n\" # x = y", "second-token-4712-plain"
HOSTILE = {"X-Quote": "a\"b\\c\\\\d\\\"e 'f' $(id) `id` # g = h", "X-Option": "\" output = \"/tmp/orrery-lab-injected", "X-At": "@/etc/hostname", "X-Unicode": "gr\u00fc\u00df"}
BODY = "line one\n\"\noutput = \"/tmp/orrery-lab-injected\"\n@/etc/hostname \\ body-secret-4713"


class Target(http.server.BaseHTTPRequestHandler):
    """Answers slowly, so that arguments can be read meanwhile, and repeats the request."""
    seen, code = {}, 500

    def do_POST(self):
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        Target.seen[self.client_address[0]] = (dict(self.headers.items()), body)
        time.sleep(0.15)
        answer = f"you sent {self.headers.get('Authorization')} {body!r}".encode()
        self.send_response(Target.code)
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, *_):
        pass


def watch_arguments(found, stop):
    """Every argument of every process, repeatedly: curl's and those that hold a secret."""
    while not stop.is_set():
        for path in glob.glob("/proc/[0-9]*/cmdline"):
            try:
                with open(path, "rb") as file:
                    line = file.read().replace(b"\0", b" ").decode(errors="replace")
            except OSError:
                continue
            if "curl" in line:
                found.add(line)
            if "4711" in line or "4712" in line or "4713" in line:
                found.add("SECRET " + line)
        time.sleep(0.01)


def get(address, port, path, token=None):
    connection = http.client.HTTPConnection(address, port, timeout=10)
    connection.request("GET", path, headers={"Authorization": f"Bearer {token}"} if token else {})
    answer = connection.getresponse()
    return answer.status, answer.read().decode()


def refusal(api, name, monitor):
    try:
        api.put(f"/v1/monitors/{name}", monitor)
    except lab.Problem as problem:
        return json.dumps(problem.document)
    return "it was accepted"


def sent(address, token):
    headers, body = Target.seen.get(address, ({}, b""))
    # HTTP treats text beyond ASCII in a header as bytes; Python reads them as Latin-1.
    hostile = {name: headers.get(name, "").encode("latin-1").decode() for name in HOSTILE}
    return headers.get("Authorization") == token and hostile == HOSTILE and body == BODY.encode()


def main(options):
    hosts = Hosts(1)
    hosts.enter()
    server = lab.Server(options.orrery, "site", arguments=["--health-nodes", "h1", "--log-level", "debug", "--server-allow-plaintext"])
    server.arguments += ["--server-listen", f"{HERE}:{server.port}"]
    server.start()
    api = server.api()
    target = http.server.ThreadingHTTPServer((HERE, 0), Target)
    threading.Thread(target=target.serve_forever, daemon=True).start()
    found, stop = set(), threading.Event()
    threading.Thread(target=watch_arguments, args=(found, stop), daemon=True).start()

    api.put("/v1/secrets/lab-key", {"spec": {"values": {"private_key": hosts.private_key()}}})
    api.put("/v1/nodes/h1", hosts.node(hosts[0]))
    monitor = {"spec": {"kind": "http", "method": "POST", "port": target.server_port, "interval": "1s", "fall": 1, "rise": 1,
                        "headers": {"Authorization": {"secret": "probe.token"}, **HOSTILE}, "body": {"secret": "probe.body"}}}
    lab.contains("a Monitor that names a missing Secret is refused, by its field", refusal(api, "web", monitor), "spec.headers.Authorization.secret", "does not exist")
    api.put("/v1/secrets/probe", {"spec": {"values": {"token": FIRST + "\n"}}})
    lab.contains("and one that names a missing value", refusal(api, "web", monitor), "spec.body.secret", "has no value", "it has token")
    api.put("/v1/secrets/probe", {"spec": {"values": {"token": FIRST + "\n", "body": BODY}}})
    lab.contains("a header of two lines is refused", refusal(api, "split", {"spec": {"kind": "http", "headers": {"X-A": "a\r\nX-B: b"}}}), "spec.headers.X-A", "must be one line")
    api.put("/v1/monitors/web", monitor)
    api.put("/v1/pools/web", {"spec": {"monitors": ["web"]}})
    api.put("/v1/members/web-1", {"spec": {"pool": "web", "addresses": [HERE]}})
    api.put("/v1/zones/names", {"spec": {"origin": "names.example", "nameservers": ["ns1.names.example"]}})
    api.put("/v1/loadbalancers/web", {"spec": {"fqdn": "web.names.example", "zone": "names.example", "pools": [{"pool": "web"}]}})

    status = lambda: json.dumps(api.get("/v1/members/web-1").get("status", {}))  # noqa: E731
    node = hosts[0].address
    lab.wait_until("the server sends the secret", lambda: sent(HERE, FIRST), 30)
    lab.wait_until("the node sends the same, byte for byte, over sshd and curl", lambda: sent(node, FIRST), 30)
    lab.wait_until("the member is down", lambda: '"down"' in status(), 30)
    lab.check("the status does not contain the secret that the response repeats", FIRST not in status() and BODY not in status(), status())
    Target.code = 200
    api.put("/v1/secrets/probe", {"spec": {"values": {"token": SECOND, "body": BODY}}})
    lab.wait_until("a changed secret reaches server and node", lambda: sent(HERE, SECOND) and sent(node, SECOND), 30)
    lab.wait_until("and the member is up", lambda: '"up"' in status(), 30)
    assignments = "/v1/health/assignments"
    _, private = get("127.0.0.1", server.port, assignments, server.token())
    _, open_ = get(HERE, server.port, assignments, server.token())
    lab.contains("on loopback a checker gets the value", private, SECOND)
    lab.check("over plaintext beyond loopback it does not, and gets the reason", SECOND not in open_ and "over TLS only" in open_, open_)
    for path in ("/metrics", "/docs", "/openapi.json"):
        lab.equal(f"{path} needs a login from beyond loopback", [get(HERE, server.port, path)[0], get(HERE, server.port, path, server.token())[0], get("127.0.0.1", server.port, path)[0]], [401, 200, 200])

    api.put("/v1/secrets/probe", {"spec": {"values": {"body": BODY}}})
    lab.wait_until("without its value the check cannot run, and reports it", lambda: "Secret probe has no value" in status(), 30)
    lab.check("and the member is neither up nor down for that", '"state": "down"' not in status(), status())
    stop.set()
    lab.check("the node's curl was observed", any("curl -q" in line for line in found), found)
    lab.check("no argument of any process held a secret", not [line for line in found if line.startswith("SECRET")], found)
    lab.check("no value became an option of curl", not glob.glob("/tmp/orrery-lab-injected") and "injected" not in hosts[0].run("sh", "-c", "ls /tmp"))
    pages = {path: json.dumps(api.get(path)) for path in
             ("/v1/monitors", "/v1/secrets", "/v1/events?limit=500", "/v1/members", "/v1/pools", "/v1/loadbalancers", "/v1/loadbalancers/web/decisions?limit=50", "/v1/health/vantages")}
    pages |= {"log": server.log_text(), "metrics": server.probe("/metrics")[1]}
    for where, text in pages.items():
        leaked = [secret for secret in ("token-4711", "token-4712", "secret-4713") if secret in text]
        lab.check(f"no secret in {where}", not leaked, leaked)
    lab.check("the server stops on SIGTERM", server.stop() == 0)


if __name__ == "__main__":
    lab.run(main)

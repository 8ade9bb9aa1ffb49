#!/usr/bin/python3
"""Services with real listeners: the server finds the passing instances, reports them to every client, and keeps their states over kill -9."""
import contextlib
import http.client
import json
import os
import socket
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
sys.dont_write_bytecode = True
import orrery_lab as lab  # noqa: E402

BASE = f"127.{40 + os.getpid() % 180}.{os.getpid() // 180 % 250}"


def dig(address, name, kind=1):
    """(rcode, addresses) of an A query over UDP; a minimal DNS client."""
    query = b"\x12\x34\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00" + b"".join(bytes([len(p)]) + p.encode() for p in name.split(".")) + b"\0" + bytes([0, kind, 0, 1])
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as client:
        client.settimeout(3)
        client.sendto(query, address)
        answer = client.recv(4096)
    addresses = [".".join(str(b) for b in answer[i + 12:i + 16]) for i in range(len(query), len(query) + 16 * int.from_bytes(answer[6:8], "big"), 16)] if answer[3] & 15 == 0 else []
    return answer[3] & 15, sorted(addresses)


def view(path, method="GET", body=None, seconds=30):
    connection = http.client.HTTPConnection(f"{BASE}.1", 18500, timeout=seconds)
    with contextlib.closing(connection):
        connection.request(method, "/v1/" + path, json.dumps(body) if body is not None else None)
        answer = connection.getresponse()
        return answer.status, answer.headers, json.loads(answer.read() or b"null")


def main(options):
    server = lab.Server(options.orrery, "site1", arguments=["--catalog-http-listen", f"{BASE}.1:18500", "--catalog-http-anonymous", "operator", "--catalog-dns-listen", f"{BASE}.1:18600"])
    server.start()
    names = (f"{BASE}.1", 18600)
    api = server.api()
    listeners = {name: lab.Web(f"{BASE}.{10 + i}") for i, name in enumerate(("n1", "n2", "n3"))}
    for i, name in enumerate(listeners):
        api.put(f"/v1/nodes/{name}", lab.node(name, {"role": "web"}, address=f"{BASE}.{10 + i}"))
    api.put("/v1/services/web", {"kind": "Service", "name": "web", "spec": {
        "port": 8088, "wanted": "hosts(web)", "checks": [{"kind": "http", "path": "/health", "interval": "1s", "timeout": "1s", "rise": 1, "fall": 2}]}})
    for name in listeners:
        api.put(f"/v1/instances/web-{name}", {"kind": "Instance", "name": f"web-{name}", "spec": {"service": "web", "node": name, "tags": ["real"]}})

    def state():
        return api.get("/v1/services/web")["status"]

    lab.wait_until("all three pass", lambda: state().get("state") == "complete", 10)
    lab.equal("the wanted number is the number of hosts with the role", state()["wanted"], 3)
    lab.equal("names answer with all of them", dig(names, "real.web.service.consul"), (0, [f"{BASE}.{i}" for i in (10, 11, 12)]))
    lab.equal("and by node", dig(names, "n2.node.consul"), (0, [f"{BASE}.11"]))

    # One fails: it leaves the names and the passing list, and the message gives the reason.
    listeners["n2"].status = 500
    _, headers, _ = view("health/service/web")
    index = headers["X-Consul-Index"]
    begin = time.monotonic()
    view(f"health/service/web?index={index}&wait=20s")
    waited = time.monotonic() - begin
    lab.wait_until("DNS answers have the other two", lambda: dig(names, "web.service.consul")[1] == [f"{BASE}.10", f"{BASE}.12"], 10, 0.005)
    lab.log(f"a blocking query came back after {waited:.1f} s, when the second bad result was in")
    lab.wait_until("and the status has the reason", lambda: "is critical" in api.get("/v1/instances/web-n2")["status"]["message"], 5)
    lab.contains("with its status code", api.get("/v1/instances/web-n2")["status"]["message"], "500")
    lab.wait_until("the service lacks one instance", lambda: state()["state"] == "short", 5)
    listeners["n2"].status = 200
    lab.wait_until("it passes again", lambda: state()["state"] == "complete", 10)

    # From a word to the name: how long a change takes through the store to a blocked client and to DNS.
    view("agent/service/register", "PUT", {"Name": "tick", "Address": f"{BASE}.77", "Port": 1, "Check": {"TTL": "60s", "Status": "passing"}})
    took = []
    for _ in range(20):
        for verb, gone in (("fail", True), ("pass", False)):
            begin = time.monotonic()
            view(f"agent/check/{verb}/service:tick", "PUT")
            while (dig(names, "tick.service.consul")[0] == 3) != gone:
                lab.check("a name follows its check within a second", time.monotonic() - begin < 1) if time.monotonic() - begin > 1 else None
            took.append(1000 * (time.monotonic() - begin))
    took.sort()
    lab.check(f"a check result is in DNS answers after {took[len(took) // 2]:.1f} ms (median), {took[-1]:.1f} ms at most", took[len(took) // 2] < 100)

    # The results survive kill -9; the checks continue.
    listeners["n3"].close()
    lab.wait_until("n3 is removed", lambda: dig(names, "web.service.consul")[1] == [f"{BASE}.10", f"{BASE}.11"], 10)
    server.kill()
    server.start()
    lab.wait_until("the facade answers again", lambda: lab_safe(lambda: view("status/leader")[0] == 200), 10)
    seen = set()
    end = time.monotonic() + 2.5
    while time.monotonic() < end:
        with contextlib.suppress(OSError):
            seen.add(str(dig(names, "web.service.consul")))
        time.sleep(0.02)
    lab.equal("no instance flapped after the restart", seen, {str((0, [f"{BASE}.10", f"{BASE}.11"]))})
    asked = listeners["n1"].asked
    lab.wait_until("checks run again", lambda: listeners["n1"].asked > asked + 1, 10)
    api = server.api()
    api.get("/v1/nodes?limit=1")
    before = api.get("/v1/nodes?limit=1")["revision"]
    time.sleep(3)
    lab.equal("nothing is written while nothing changes", api.get("/v1/nodes?limit=1")["revision"], before)

    # Clients that block and leave do not stay behind.
    sockets = []
    for _ in range(50):
        client = socket.create_connection((f"{BASE}.1", 18500))
        client.sendall(b"GET /v1/kv/never?index=999999999&wait=10m HTTP/1.1\r\nHost: x\r\n\r\n")
        sockets.append(client)
    time.sleep(0.5)
    before = descriptors(server)
    for client in sockets:
        client.close()
    lab.wait_until("the state of fifty disconnected blocking clients is released", lambda: descriptors(server) <= before - 50, 10)
    lab.equal("the log has no errors", server.error_lines(), [])


def lab_safe(holds):
    try:
        return holds()
    except (OSError, ValueError, http.client.HTTPException):
        return False


def descriptors(server):
    return len(os.listdir(f"/proc/{server.process.pid}/fd"))


lab.run(main)

"""Stores many resources in a server quickly, over concurrent connections."""
import json
import socket
import time

import orrery_lab as lab
from cpu import cpu_seconds


def put(server, kind, name, spec):
    text = json.dumps({"spec": spec})
    return (f"PUT /v1/{kind}/{name} HTTP/1.1\r\nHost: bench\r\nAuthorization: Bearer {server.token()}\r\nContent-Type: application/json\r\nContent-Length: {len(text)}\r\n\r\n{text}").encode()


def store_all(server, requests, connections=32):
    """Sends the requests, one at a time on each of many connections."""
    sockets = [socket.create_connection(("127.0.0.1", server.port)) for _ in range(connections)]
    for start in range(0, len(requests), connections):
        group = requests[start:start + connections]
        for one, text in zip(sockets, group):
            one.sendall(text)
        for one, _ in zip(sockets, group):
            seen = b""
            while True:
                seen += one.recv(65536)
                head, gap, body = seen.partition(b"\r\n\r\n")
                if gap and len(body) >= int(head.lower().partition(b"content-length:")[2].split(b"\r\n")[0]):
                    break
            if not head.startswith(b"HTTP/1.1 20"):
                raise lab.Failed(seen.decode())
    for one in sockets:
        one.close()


def wait_idle(server, seconds=600):
    """Waits until the server has written all decisions and uses little CPU time."""
    lab.wait_until("the server has written all decisions", lambda: server.metrics().get("orrery_gslb_records_waiting", 0) == 0, seconds, 0.5)
    used = lambda: cpu_seconds(server.process.pid)  # noqa: E731
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        before = used()
        time.sleep(1)
        if used() - before < 0.4:
            return
    raise lab.Failed(f"the server is not idle after {seconds} s")
